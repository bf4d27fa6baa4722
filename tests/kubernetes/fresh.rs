//! Objects that are made for a new election, so that its first leader need not wait.

use std::time::Duration;

use incumbent::kubernetes::Cluster;
use incumbent::lock::LockErrorKind;
use incumbent::{Cause, new_election};
use serde_json::json;
use tokio::time::Instant;

use crate::conformance::{Service, TIMEOUT, leads, lost, working};
use crate::env::{InConfigMap, InLease, Kind, OBJECT, TestEnv};
use crate::relay::{Relay, Way};

const LEASE: Duration = Duration::from_secs(12);
const LONG: Duration = Duration::from_secs(3600);

/// Makes the object of a new election, whose first leader need not wait.
pub async fn made<K: Kind>(env: &TestEnv<K>) {
    let annotations = json!({ "incumbent/new": "true" });
    let object = json!({ "metadata": { "name": OBJECT, "annotations": annotations } });
    env.post(&env.objects(), &object).await;
}

async fn is_led_at_once<K: Kind>() {
    let env = TestEnv::<K>::new(LONG).await;
    made(&env).await;
    let ours = env.campaign("ours").await;
    // Had it to wait out a lease, it would be an hour.
    drop(leads(&ours).await);
    ours.stop().await;
    let object = env.object().await.unwrap();
    // Else a tool that applies manifests would restore it again and again.
    assert_eq!(object["metadata"]["annotations"]["incumbent/new"], "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_created_for_a_new_election_is_led_at_once() {
    is_led_at_once::<InLease>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_config_map_created_for_a_new_election_is_led_at_once() {
    is_led_at_once::<InConfigMap>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_new_election_creates_a_lease_and_replaces_no_other() {
    let env = TestEnv::<InLease>::new(LONG).await;
    let lock = env.cluster().await.lease_lock();
    lock.create(OBJECT, TIMEOUT).await.expect("it is made");
    let refused = lock.create(OBJECT, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    let refused = lock.create("no_name", TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured, "{refused}");
    drop(leads(&env.campaign("ours").await).await);
}

/// A create that something in the way holds up lands when its term is long over, and another holder
/// has come and was deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_late_create_leads_after_a_full_lease_only() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let relay = Relay::start(env.admin.clone(), "ours").await;
    relay.set(Way::HoldsCreate);
    let cluster = Cluster::from_kubeconfig(relay.kubeconfig(&env), None).await.unwrap();
    let cluster = cluster.in_namespace(&*env.namespace);
    let lock = cluster.lease_lock().without_events().timing(env.timing).object(OBJECT);
    let ours = working(new_election("my_app", lock).identity("ours")).start().unwrap();
    drop(leads(&ours).await);
    let mut changes = ours.changes();
    // Another one takes over, renews all the time, and is deleted.
    let record = |renewed: u8| {
        json!({
            "holderIdentity": "stranger", "leaseDurationSeconds": LEASE.as_secs(), "leaseTransitions": 9,
            "renewTime": format!("2026-01-01T00:00:{renewed:02}.000001Z"),
        })
    };
    env.write_record(record(0)).await;
    // On a busy machine its lease may have run out before.
    let cause = lost(&mut changes).await;
    assert!(matches!(cause, Cause::Superseded { .. } | Cause::Expired { .. }), "{cause:?}");
    for renewed in 1..10 {
        tokio::time::sleep(LEASE / 8).await;
        env.write_record(record(renewed)).await;
    }
    env.evict("my_app").await;
    let landed = Instant::now();
    relay.lands().await;
    let _leadership = leads(&ours).await;
    assert!(landed.elapsed() >= LEASE, "{:?}", landed.elapsed());
}
