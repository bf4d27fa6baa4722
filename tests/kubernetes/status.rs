//! Reading who holds elections, and evicting a holder.

use std::time::Duration;

use incumbent::lock::{
    Content, ElectionUpdate, Lock, LockAdmin, LockErrorKind, Nonce, Reading, Revision, Tombstone,
    Vacancy,
};
use incumbent::{Cause, Leadership};
use serde_json::json;

use crate::conformance::{Service, TIMEOUT, becomes_true, leads, soon};
use crate::env::{InConfigMap, InLease, OBJECT, TestEnv};

const LEASE: Duration = Duration::from_secs(5);

/// Only what was looked at is evicted: a holder that has renewed, or another one, is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_eviction_is_conditional_and_counts_as_a_term() {
    becomes_true("terms that last", eviction_is_conditional).await;
}

/// Whether a term has expired before anything else ended it, as may be on a busy machine.
pub async fn has_expired(leadership: &Leadership) -> bool {
    if leadership.is_valid() {
        return false;
    }
    matches!(leadership.ended().await.cause, Cause::Expired { .. })
}

/// False: a lease ran out meanwhile.
async fn eviction_is_conditional() -> bool {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let ours = env.campaign("ours").await;
    let leadership = leads(&ours).await;
    let lock = env.cluster().await.lease_lock();
    let read = async || lock.record(OBJECT, TIMEOUT).await.unwrap().expect("a record");
    let before = read().await;
    if has_expired(&leadership).await {
        return false;
    }
    let holder = before.holder().expect("a holder");
    assert_eq!((&*holder.identity, holder.token), ("ours", Some(leadership.token())));
    env.patch(json!({ "metadata": { "labels": { "a": "b" } } })).await;
    let stale = Revision(before.revision.0 - 1);
    let refused = lock.evict(OBJECT, stale, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict);
    if has_expired(&leadership).await {
        return false;
    }
    assert!(leadership.is_valid());

    soon("an eviction between two renewals", evict(&lock)).await;
    let cause = leadership.ended().await.cause;
    let after = read().await;
    if has_expired(&leadership).await || ours.token().is_some() {
        return false; // or it leads again
    }
    assert_eq!(cause, Cause::Evicted);
    assert_eq!(after.vacancy(), Some(&Vacancy::Evicted));
    drop(leadership);
    let leadership = leads(&ours).await;
    let after = read().await;
    let record = env.record().await.unwrap();
    if has_expired(&leadership).await {
        return false;
    }
    let token = after.holder().expect("a holder").token;
    assert_eq!(token, Some(leadership.token()));
    assert_eq!(record["leaseTransitions"], 1, "of one term");
    env.evict("my_app").await;
    let refused = lock.evict(OBJECT, Revision(1), TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict);
    for path in ["../configmaps/x", "a?b", ""] {
        let refused = lock.evict(path, Revision(1), TIMEOUT).await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
        assert_eq!(
            lock.record(path, TIMEOUT).await.unwrap_err().kind(),
            LockErrorKind::Misconfigured
        );
    }
    true
}

/// Evicts the leader.
pub async fn evict(lock: &(impl Lock + LockAdmin)) {
    loop {
        let Reading::Found(record) = lock.read(OBJECT, TIMEOUT).await.unwrap() else { panic!() };
        match lock.evict(OBJECT, record.revision, TIMEOUT).await {
            Ok(()) => return,
            Err(error) => assert_eq!(error.kind(), LockErrorKind::Conflict, "{error}"), // renewed
        }
    }
}

/// Others may write to the rest of the object. client-go's candidates read no mark: they have to
/// see a holder that is not renewed, for as long as the evicted one may lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_eviction_leaves_a_holder_that_nobody_renews() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let lock = env.cluster().await.lease_lock();
    let read = async || match lock.read(OBJECT, TIMEOUT).await.unwrap() {
        Reading::Found(record) => record,
        Reading::Empty { .. } => panic!("no Lease"),
    };
    let spec = json!({ "holderIdentity": "theirs", "leaseDurationSeconds": 60 });
    let held = json!({ "metadata": { "name": OBJECT }, "spec": spec });
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", env.namespace);
    env.post(&leases, &held).await;
    let before = read().await.revision;
    env.patch(json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!(read().await.revision, before);
    lock.evict(OBJECT, before, TIMEOUT).await.unwrap();
    let record = env.record().await.unwrap();
    assert_eq!(record["holderIdentity"], "evicted: theirs");
    assert_eq!(record["leaseDurationSeconds"], 60);
    let (by, left) = (Nonce::NOBODY, Duration::from_secs(60));
    let evicted =
        Tombstone::Released { by, left, cause: Some("evicted".into()), to: None, pause: None };
    let now = read().await;
    assert_eq!(now.content, Content::Vacant(evicted));
    let refused = lock.evict(OBJECT, before, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict);
    lock.evict(OBJECT, now.revision, TIMEOUT).await.unwrap();
    assert_eq!(read().await, now, "there is no holder to evict");
}

/// A watch begins with what is there, and reports deletions; of ConfigMaps it requests the metadata
/// only.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_watch_reports_existing_and_deleted_elections() {
    becomes_true("a term that lasts", watch_reports).await;
}

/// False: the lease ran out meanwhile.
async fn watch_reports() -> bool {
    let env = TestEnv::<InConfigMap>::new(LEASE).await;
    let ours = env.campaign("ours").await;
    let leadership = leads(&ours).await;
    let admin = incumbent::kubernetes::Cluster::new(env.admin.clone());
    let lock = admin.in_namespace(&*env.namespace).config_map_lock();
    let statuses = lock.list(TIMEOUT).await.unwrap();
    assert_eq!(statuses.len(), 1, "and none for a ConfigMap without a record: {statuses:?}");
    let mut watch = lock.watch(&[], TIMEOUT).await.unwrap();
    let Some(Ok(ElectionUpdate::Written(status))) = soon("a change", watch.next()).await else {
        panic!("nothing found")
    };
    assert_eq!(status.election, OBJECT);
    if has_expired(&leadership).await {
        return false;
    }
    let token = status.holder().and_then(|holder| holder.token);
    assert_eq!(token, Some(leadership.token()), "{status:?}");
    drop(leadership);
    env.evict("my_app").await;
    soon("a deletion", async {
        while let Some(change) = watch.next().await {
            if let ElectionUpdate::Written(status) = change.unwrap()
                && status.vacancy() == Some(&Vacancy::Evicted)
            {
                return assert_eq!(status.election, OBJECT);
            }
        }
        panic!("the watch is over");
    })
    .await;
    true
}
