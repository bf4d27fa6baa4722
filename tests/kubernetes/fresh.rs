//! Objects that are made for a new election, so that its first leader need not wait.

use std::sync::Arc;
use std::time::Duration;

use incumbent::kubernetes::Cluster;
use incumbent::lock::{LockErrorKind, Reading};
use incumbent::{Cause, new_election};
use incumbent_test_support::eventually;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

use crate::conformance::{Process, Service, leads, lost, working};
use crate::env::{InConfigMap, InLease, Kind, OBJECT, TestEnv};
use crate::relay::{Relay, Way};

const LEASE: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(3600);

async fn made<K: Kind>(env: &TestEnv<K>) {
    let plural = K::RESOURCE.1;
    let group = match K::RESOURCE.0 {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    let path = format!("{group}/namespaces/{}/{plural}", env.namespace);
    let annotations = json!({ "incumbent/new": "true" });
    env.post(&path, &json!({ "metadata": { "name": OBJECT, "annotations": annotations } })).await;
}

async fn is_led_at_once<K: Kind>() {
    let env = TestEnv::<K>::new(LONG).await;
    made(&env).await;
    let ours = env.campaign("ours").await;
    // Had it to wait out a lease, it would be an hour.
    drop(leads(&ours).await);
    ours.stop().await;
    let object = env.object().await.unwrap();
    assert_eq!(object["metadata"]["annotations"].get("incumbent/new"), None, "{object}");
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
async fn a_lease_is_created_for_a_new_election_and_never_replaces_another() {
    let env = TestEnv::<InLease>::new(LONG).await;
    let lock = env.cluster().await.lease_lock();
    lock.create(OBJECT, LEASE).await.expect("it is made");
    let refused = lock.create(OBJECT, LEASE).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    let refused = lock.create("no_name", LEASE).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured, "{refused}");
    drop(leads(&env.campaign("ours").await).await);
}

/// Its creator may be wrong: applying a manifest again recreates a deleted object, under a living
/// leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_recreated_lease_is_not_taken_for_new() {
    let env = Arc::new(TestEnv::<InLease>::new(LEASE).await);
    made(&env).await;
    let first = Process::start(&env, "first").await;
    drop(leads(&first.election).await);
    first.crash();
    env.api().delete(OBJECT, &DeleteParams::default()).await.unwrap();
    let deleted = Instant::now();
    made(&env).await;
    let ours = env.campaign("ours").await;
    let leadership = leads(&ours).await;
    assert!(deleted.elapsed() >= LEASE, "{:?}", deleted.elapsed());
    assert!(leadership.is_valid());
}

/// The same where the record of a living leader is wiped out.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_without_its_record_is_not_taken_for_new() {
    let env = Arc::new(TestEnv::<InLease>::new(LEASE).await);
    made(&env).await;
    let first = Process::start(&env, "first").await;
    drop(leads(&first.election).await);
    first.crash();
    let annotations = json!({ "incumbent/new": "true", "incumbent/mark": null });
    let spec = json!({
        "holderIdentity": null, "leaseDurationSeconds": null, "acquireTime": null,
        "renewTime": null, "leaseTransitions": null,
    });
    env.patch(json!({ "metadata": { "annotations": annotations }, "spec": spec })).await;
    let wiped = Instant::now();
    let ours = env.campaign("ours").await;
    let leadership = leads(&ours).await;
    assert!(wiped.elapsed() >= LEASE, "{:?}", wiped.elapsed());
    assert!(leadership.is_valid());
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
    let delete = async || env.api().delete(OBJECT, &DeleteParams::default()).await.unwrap();
    // Another one takes over, renews all the time, and is deleted.
    let record = |renewed: u8| {
        json!({
            "holderIdentity": "stranger", "leaseDurationSeconds": 4, "leaseTransitions": 9,
            "renewTime": format!("2026-01-01T00:00:{renewed:02}.000001Z"),
        })
    };
    env.write_record(record(0)).await;
    assert!(matches!(lost(&mut changes).await, Cause::Superseded { .. }));
    for renewed in 1..10 {
        tokio::time::sleep(LEASE / 8).await;
        env.write_record(record(renewed)).await;
    }
    delete().await;
    let landed = Instant::now();
    relay.lands().await;
    let _leadership = leads(&ours).await;
    assert!(landed.elapsed() >= LEASE, "{:?}", landed.elapsed());
}

/// Lets the account watch the Leases of the control plane, where one has been renewed for hours, by
/// its holder's clock.
async fn with_a_witness(env: &TestEnv) {
    let name = format!("{}-witness", env.namespace);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";
    let rule = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["watch"] });
    let role = json!({ "metadata": { "name": name }, "rules": [rule] });
    env.post(&format!("{rbac}/roles"), &role).await;
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": "my-app", "namespace": env.namespace }],
    });
    env.post(&format!("{rbac}/rolebindings"), &binding).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let renewed = |hour: u8| {
        let time = format!("2026-01-01T{hour:02}:00:00.000001Z");
        json!({ "holderIdentity": "scheduler", "leaseDurationSeconds": 15, "renewTime": time })
    };
    let lease = json!({ "metadata": { "name": name }, "spec": renewed(1) });
    env.post(path, &lease).await;
    for hour in 2..9 {
        let patch = serde_json::to_vec(&json!({ "spec": renewed(hour) })).unwrap();
        let at = format!("{path}/{name}");
        env.send("PATCH", &at, "application/merge-patch+json", patch).await.unwrap();
    }
}

/// Nothing was created or declared beforehand: the API server's history shows that there was no
/// such Lease within a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_first_leader_leads_at_once_when_deletions_are_visible() {
    let env = TestEnv::<InLease>::new(LONG).await;
    with_a_witness(&env).await;
    let lock = Service::lock(&env).await;
    eventually("the right to watch", async || {
        matches!(lock.read("my_app", LEASE).await, Ok(Reading::Empty { proof: true })).then_some(())
    })
    .await;
    let ours = env.campaign("ours").await;
    // Had it to wait out a lease, it would be an hour.
    drop(leads(&ours).await);
}

/// The same memory shows that there was one.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_first_leader_after_a_visible_deletion_waits() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    with_a_witness(&env).await;
    made(&env).await;
    env.api().delete(OBJECT, &DeleteParams::default()).await.unwrap();
    let lock = Service::lock(&env).await;
    eventually("the right to watch", async || {
        matches!(lock.read("my_app", LEASE).await, Ok(Reading::Empty { proof: true })).then_some(())
    })
    .await;
    let began = Instant::now();
    let ours = env.campaign("ours").await;
    let _leadership = leads(&ours).await;
    assert!(began.elapsed() >= LEASE, "{:?}", began.elapsed());
}
