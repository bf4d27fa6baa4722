//! Reading who holds elections, and evicting a holder.

use std::time::Duration;

use incumbent::Cause;
use incumbent::kubernetes::{ElectionEvent, HolderStatus};
use incumbent::lock::{Content, Lock, LockErrorKind, Nonce, Reading, Release, Tombstone};
use kube::api::DeleteParams;
use serde_json::json;

use crate::conformance::{leads, soon};
use crate::env::{InConfigMap, InLease, OBJECT, TestEnv};

const LEASE: Duration = Duration::from_secs(5);

/// Only what was looked at is evicted: a holder that has renewed, or another one, is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_eviction_applies_to_the_version_that_was_read() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let ours = env.campaign("ours").await;
    let leadership = leads(&ours).await;
    let lock = env.cluster().await.lease_lock();
    let read = async || lock.status(OBJECT, LEASE).await.unwrap().expect("a record");
    let before = read().await;
    let HolderStatus::Held(holder) = &before.holding else { panic!("{before:?}") };
    assert_eq!((&*holder.identity, holder.token), ("ours", Some(leadership.token())));
    assert_eq!(before.transitions, 0);
    env.patch(json!({ "metadata": { "labels": { "a": "b" } } })).await;
    let refused = lock.evict(OBJECT, before.resource_version, LEASE).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict);
    assert!(leadership.is_valid());

    soon("an eviction between two renewals", async {
        while lock.evict(OBJECT, read().await.resource_version, LEASE).await.is_err() {}
    })
    .await;
    assert_eq!(leadership.ended().await.cause, Cause::Evicted);
    drop(leadership);
    let leadership = leads(&ours).await;
    let after = read().await;
    let HolderStatus::Held(holder) = &after.holding else { panic!("{after:?}") };
    assert_eq!((holder.token, after.transitions), (Some(leadership.token()), 1), "of one term");
    env.api().delete(OBJECT, &DeleteParams::default()).await.expect("a delete");
    let refused = lock.evict(OBJECT, 1, LEASE).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict);
    for path in ["../configmaps/x", "a?b", ""] {
        assert_eq!(
            lock.status(path, LEASE).await.unwrap_err().kind(),
            LockErrorKind::Misconfigured
        );
    }
}

/// Of a lock, what counts is the record: others may write to the rest of the object.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_eviction_by_a_lock_applies_to_the_record_that_was_read() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let lock = env.cluster().await.lease_lock();
    let read = async || match lock.read(OBJECT, LEASE).await.unwrap() {
        Reading::Found(record) => record,
        Reading::Empty { .. } => panic!("no Lease"),
    };
    let held = json!({ "metadata": { "name": OBJECT }, "spec": { "holderIdentity": "theirs" } });
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", env.namespace);
    env.post(&leases, &held).await;
    let before = read().await.revision;
    env.patch(json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!(read().await.revision, before);
    Lock::evict(&lock, OBJECT, before, LEASE).await.unwrap();
    assert_eq!(read().await.content, Content::Vacant(Tombstone::Deleted));
    let refused = Lock::evict(&lock, OBJECT, before, LEASE).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict);

    // A released record, which names no holder either.
    let (expected, left) = (read().await.revision, Duration::from_secs(3));
    let release =
        Release { expected, by: Nonce(7), left, cause: "stopped", to: None, timeout: LEASE };
    lock.release(OBJECT, release).await.unwrap();
    let released = read().await;
    assert_eq!(
        released.content,
        Content::Vacant(Tombstone::Released {
            by: Nonce(7),
            left,
            cause: Some("stopped".into()),
            to: None
        })
    );
    Lock::evict(&lock, OBJECT, released.revision, LEASE).await.unwrap();
    assert_eq!(read().await.content, Content::Vacant(Tombstone::Deleted));
}

/// A watch begins with what is there, and reports deletions; of ConfigMaps it requests the metadata
/// only.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_watch_reports_existing_and_deleted_elections() {
    let env = TestEnv::<InConfigMap>::new(LEASE).await;
    let ours = env.campaign("ours").await;
    let token = leads(&ours).await.token();
    let admin = incumbent::kubernetes::Cluster::new(env.admin.clone());
    let lock = admin.in_namespace(&*env.namespace).config_map_lock();
    let statuses = lock.list(LEASE).await.unwrap();
    assert_eq!(statuses.len(), 1, "and none for a ConfigMap without a record: {statuses:?}");
    let mut watch = lock.watch(None, LEASE).await.unwrap();
    let Some(Ok(ElectionEvent::Written(status))) = soon("a change", watch.next()).await else {
        panic!("nothing found")
    };
    assert_eq!(status.object, OBJECT);
    assert!(
        matches!(&status.holding, HolderStatus::Held(holder) if holder.token == Some(token)),
        "{status:?}"
    );
    crate::conformance::Service::evict(&env, "my_app").await;
    soon("a deletion", async {
        while let Some(change) = watch.next().await {
            if let ElectionEvent::Deleted(status) = change.unwrap() {
                return assert_eq!(status.object, OBJECT);
            }
        }
        panic!("the watch is over");
    })
    .await;
}
