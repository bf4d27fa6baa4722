//! The fields of the object.

use std::time::Duration;

use incumbent::lock::{
    Content, ElectionUpdate, Lock, Mark, Nonce, Reading, Release, Tombstone, Write, WriteId,
};
use incumbent_test_support::eventually;
use serde_json::{Value, json};

use crate::conformance::{Service, TIMEOUT, appears, becomes_true, frees, leads};
use crate::env::{InConfigMap, InLease, Kind, OBJECT, TestEnv};

const LEASE: Duration = Duration::from_secs(5);

/// The record of a term and of its release are those of client-go.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_fields_of_a_lease_are_those_of_client_go() {
    becomes_true("a term and its release", holds_and_releases).await;
}

/// False: the term expired, or was not released in time, as may be on a busy machine.
async fn holds_and_releases() -> bool {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let ours = env.campaign("ours").await;
    let leadership = leads(&ours).await;
    let held = eventually("a renewal", async || {
        let record = env.record().await?;
        (record["renewTime"] != record["acquireTime"]).then_some(record)
    })
    .await;
    if !leadership.is_valid() {
        return false;
    }
    assert_eq!(held["holderIdentity"], "ours");
    assert_eq!(held["leaseDurationSeconds"], 5);
    assert_eq!(held["leaseTransitions"], 0, "the first holder is no transition");
    assert_eq!(
        held["acquireTime"].as_str().map(str::len),
        Some("2026-01-01T00:00:00.000000Z".len())
    );
    if !frees(&env, &ours, leadership).await {
        return false;
    }
    let released = env.record().await.unwrap();
    assert_eq!(released["holderIdentity"], "");
    assert_eq!(released["leaseDurationSeconds"], 1);
    assert_eq!(released["acquireTime"], released["renewTime"]);
    assert_eq!(released["leaseTransitions"], 0);
    let next = env.campaign("next").await;
    let leadership = leads(&next).await;
    let record = env.record().await.unwrap();
    let is_valid = leadership.is_valid();
    assert!(!is_valid || record["leaseTransitions"] == 1, "{record}");
    is_valid
}

/// Older candidates of client-go write an annotation, whose times are in seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_fields_of_an_annotation_are_those_of_client_go() {
    let env = TestEnv::<InConfigMap>::new(LEASE).await;
    let ours = env.campaign("ours").await;
    drop(leads(&ours).await);
    let held = env.record().await.unwrap();
    let keys: Vec<_> = held.as_object().unwrap().keys().map(String::as_str).collect();
    let expected =
        ["acquireTime", "holderIdentity", "leaderTransitions", "leaseDurationSeconds", "renewTime"];
    assert_eq!(keys, expected);
    assert_eq!(held["renewTime"].as_str().map(str::len), Some("2026-01-01T00:00:00Z".len()));
}

async fn what_is_left<K: Kind>() {
    let env = TestEnv::<K>::new(LEASE).await;
    let lock = Service::lock(&env).await;
    let mark = |number| Mark::new(WriteId { nonce: Nonce(1), number }, LEASE, None);
    let create = Write {
        expected: None,
        identity: "ours".into(),
        mark: mark(1),
        ttl: LEASE * 2,
        advertisement: None,
        timeout: TIMEOUT,
    };
    let expected = lock.write("my_app", create).await.unwrap();
    assert_eq!(env.record().await.unwrap()["leaseDurationSeconds"], 10);
    let left = Duration::from_millis(3_400);
    let (by, timeout) = (Nonce(1), TIMEOUT);
    lock.release(
        "my_app",
        Release { expected, by, left, cause: "stopped", to: None, pause: None, timeout },
    )
    .await
    .unwrap();
    let record = env.record().await.unwrap();
    assert_eq!(record["holderIdentity"], "ours", "client-go's candidates must wait as well");
    assert_eq!(record["leaseDurationSeconds"], 4);
    let Ok(Reading::Found(found)) = lock.read("my_app", TIMEOUT).await else { panic!() };
    assert_eq!(
        found.content,
        Content::Vacant(Tombstone::Released {
            by,
            left,
            cause: Some("stopped".into()),
            to: None,
            pause: None
        })
    );
}

/// Who stops while it still waits for an earlier holder passes on what is left, to client-go's
/// candidates too.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_release_passes_on_the_remaining_cool_down() {
    what_is_left::<InLease>().await;
    what_is_left::<InConfigMap>().await;
}

/// An object that is there, without any holder, is taken; what it carries besides stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_existing_object_is_used_and_keeps_its_other_fields() {
    let env = TestEnv::<InConfigMap>::new(Duration::from_secs(1)).await;
    let path = format!("/api/v1/namespaces/{}/configmaps", env.namespace);
    let object = json!({
        "metadata": { "name": "my-app", "annotations": { "theirs": "stays" } },
        "data": { "theirs": "stays" },
    });
    env.post(&path, &object).await;
    let ours = env.campaign("ours").await;
    drop(leads(&ours).await);
    ours.stop().await;
    let object = env.object().await.unwrap();
    assert_eq!(object["data"], json!({ "theirs": "stays" }));
    assert_eq!(object["metadata"]["annotations"]["theirs"], "stays");
}

/// As candidates do, who use the object whatever the election is called.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn operators_see_one_election_of_a_fixed_object() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", env.namespace);
    let time = "2026-01-01T00:00:00.000001Z";
    for name in ["other", OBJECT] {
        let spec = json!({
            "holderIdentity": name, "leaseDurationSeconds": 5, "acquireTime": time, "renewTime": time,
        });
        env.post(&path, &json!({ "metadata": { "name": name }, "spec": spec })).await;
    }
    let lock = env.operators_lock().await;
    let admin = lock.admin().expect("an operator's lock");
    assert_eq!(admin.names(TIMEOUT).await.unwrap(), [OBJECT]);
    let record = async || admin.record("my_app", TIMEOUT).await.unwrap().expect("a record");
    let held = record().await;
    assert_eq!(held.election, "my_app");
    assert_eq!(held.holder().map(|holder| &*holder.identity), Some(OBJECT));
    let mut watch = admin.watch(&["my_app".to_owned()], TIMEOUT).await.unwrap();
    match watch.next().await {
        Some(Ok(ElectionUpdate::Written(record))) => assert_eq!(record.election, "my_app"),
        other => panic!("{other:?}"),
    }
    admin.evict("my_app", held.revision, TIMEOUT).await.unwrap();
    assert!(record().await.vacancy().is_some());
}

/// Events of the object name the leader, in the words of client-go.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn events_name_the_new_leader() {
    let env = TestEnv::<InLease>::new(Duration::from_secs(1)).await;
    let event = appears("an Event", async || {
        let ours = env.campaign("ours").await;
        drop(leads(&ours).await);
        let event = env.event("ours became leader").await;
        ours.stop().await;
        event
    })
    .await;
    let uid = env.object().await.unwrap()["metadata"]["uid"].clone();
    assert_eq!(event["reason"], "LeaderElection");
    assert_eq!(event["involvedObject"]["kind"], "Lease");
    assert_eq!(event["involvedObject"]["uid"], uid);
    assert_ne!(uid, Value::Null);
}
