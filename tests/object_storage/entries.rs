//! What becomes of entries that others write over, put back or delete.

use std::sync::Arc;
use std::time::Duration;

use incumbent::Cause;
use incumbent::lock::{Lock, LockAdmin, LockError, LockErrorKind, Nonce, Reading, Release, Write};
use incumbent_test_support::eventually;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::time::Instant;

use crate::conformance::{Process, becomes_true, is_renewed, leads, lost, soon, won};
use crate::env::{Gcs, Kind, LEASE, S3, TIMEOUT, TestEnv, write};

/// A write, a renewal and a release name what they replace, so that a later write of another stays.
async fn what_others_wrote_stays<K: Kind>() {
    let env = TestEnv::<K>::new(LEASE).await;
    let (ours, theirs) = (env.bucket().lock(), env.bucket().lock());
    let conflict = |error: LockError| {
        assert_eq!(error.kind(), LockErrorKind::Conflict, "{error}");
    };
    let first = ours.write("my_app", write(1)).await.unwrap();
    conflict(theirs.write("my_app", write(2)).await.unwrap_err());
    let over = |number| Write { expected: Some(first), ..write(number) };
    theirs.write("my_app", over(3)).await.unwrap();
    let theirs = env.object().await;
    conflict(ours.write("my_app", over(4)).await.unwrap_err());
    conflict(ours.evict("my_app", first, TIMEOUT).await.unwrap_err());
    let release = Release {
        expected: first,
        by: Nonce(7),
        left: Duration::ZERO,
        cause: "stopped",
        to: None,
        pause: None,
        timeout: TIMEOUT,
    };
    conflict(ours.release("my_app", release).await.unwrap_err());
    assert_eq!(env.object().await, theirs);
}

on_stores!(foreign_objects_are_kept: what_others_wrote_stays);

#[tokio::test]
async fn no_election_is_in_the_folder_of_checkpoints() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let lock = env.bucket().lock();
    let refused = lock.check_name("incumbent-checkpoints/my_app").unwrap_err();
    assert!(refused.contains("is for checkpoints: rename the election"), "{refused}");
    assert_eq!(lock.check_name("incumbent-checkpoints"), Ok(()));
}

/// What no candidate has written is not taken for an election.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_object_that_is_not_an_entry_is_left_alone() {
    let env = TestEnv::<S3>::new(LEASE).await;
    for body in [b"{\"holder\": 1}".to_vec(), vec![b'x'; 100_000]] {
        env.put(body.clone()).await;
        let error = env.bucket().lock().read("my_app", TIMEOUT).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        let stands = env.campaign("c1");
        eventually("it says what is wrong", async || stands.lock_failure()).await;
        stands.stop().await;
        assert_eq!(env.object().await, Some(body));
    }
}

/// Such as a fence or a note beside the elections. Alone it is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_foreign_object_hides_no_election() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let lock = env.bucket().lock();
    let note = Path::parse(format!("{}/README", env.prefix)).unwrap();
    env.store.put(&note, "these are elections".into()).await.unwrap();
    let error = lock.list(TIMEOUT).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    lock.write("my_app", write(1)).await.unwrap();
    let listed = lock.list(TIMEOUT).await.unwrap();
    assert_eq!(listed.iter().map(|record| &*record.election).collect::<Vec<_>>(), ["my_app"]);
}

async fn folder_of_any_name_is_listed<K: Kind>() {
    let mut env = TestEnv::<K>::new(LEASE).await;
    env.prefix.push_str("/größe/~team");
    let lock = env.bucket().lock();
    lock.write("my_app", write(1)).await.unwrap();
    assert_eq!(lock.names(TIMEOUT).await.unwrap(), ["my_app"]);
}

on_stores!(folders: folder_of_any_name_is_listed);

/// Tokens grow when the object is deleted, by who has seen it and by who has not.
async fn tokens_grow_over_a_deletion<K: Kind>() {
    let env = TestEnv::<K>::new(LEASE).await;
    let first = env.campaign("first");
    let token = leads(&first).await.token();
    env.delete().await;
    let again = eventually("it leads again", async || {
        let leadership = leads(&first).await;
        (leadership.token() > token).then_some(leadership)
    })
    .await;
    let token = again.token();
    drop(again);
    first.stop().await;
    env.delete().await;
    let newcomer = env.campaign("newcomer");
    assert!(leads(&newcomer).await.token() > token);
}

on_stores!(tokens_grow: tokens_grow_over_a_deletion);

/// An older version put back in the place of the last one supersedes the leader, whose term it
/// lacks; a candidate that has seen a later one waits out a lease, and none takes it for a fresh
/// start.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_object_is_noticed() {
    becomes_true("a term that does not expire", notices_a_restored_object).await;
}

/// False: the lease ran out before, as it may on a busy machine.
async fn notices_a_restored_object() -> bool {
    let env = TestEnv::<S3>::new(LEASE).await;
    let first = env.campaign("first");
    drop(leads(&first).await);
    let old = env.object().await.unwrap();
    first.stop().await;
    let second = env.campaign("second");
    let token = leads(&second).await.token();
    let mut changes = second.changes();
    let set_back = Instant::now();
    env.put(old).await;
    let cause = lost(&mut changes).await;
    if matches!(cause, Cause::Expired { .. }) {
        return false;
    }
    assert_eq!(cause, Cause::Superseded { by: Some("first".into()) });
    won(&mut changes).await;
    assert!(set_back.elapsed() >= LEASE, "{:?}", set_back.elapsed());
    assert!(leads(&second).await.token() > token);
    true
}

/// The holder's own last write, put back while it leads, is not taken for its present entry either.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_older_entry_of_the_same_candidate_is_not_its_term() {
    becomes_true("a term that does not expire", takes_no_older_entry).await;
}

/// False: the lease ran out before, as it may on a busy machine.
async fn takes_no_older_entry() -> bool {
    let env = TestEnv::<Gcs>::new(LEASE).await;
    let only = env.campaign("only");
    let token = leads(&only).await.token();
    let old = env.object().await.unwrap();
    eventually("a renewal", async || env.object().await.filter(|object| *object != old)).await;
    let mut changes = only.changes();
    env.put(old).await;
    let cause = lost(&mut changes).await;
    if matches!(cause, Cause::Expired { .. }) {
        return false;
    }
    assert!(matches!(cause, Cause::Superseded { .. }), "{cause:?}");
    won(&mut changes).await;
    assert!(leads(&only).await.token() > token);
    true
}

/// Every write differs from every other, so that no ETag comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_write_has_its_own_content() {
    becomes_true("terms that do not expire", writes_have_their_own_content).await;
}

/// False: a lease ran out, as it may on a busy machine.
async fn writes_have_their_own_content() -> bool {
    let env = TestEnv::<S3>::new(LEASE).await;
    let mut changes = 0;
    for _ in 0..2 {
        let only = env.campaign("only");
        let mut leadership = leads(&only).await;
        for _ in 0..2 {
            if !is_renewed(&leadership).await {
                return false;
            }
            leadership = leads(&only).await;
            changes += 1;
        }
        drop(leadership);
        only.stop().await;
    }
    let written = env.proxy.requests().into_iter().filter(|r| r.method() == "PUT");
    // Each candidate tries once, with two writes without a holder, whether conditions are checked.
    let mut bodies: Vec<_> = written
        .inspect(|r| {
            let condition = r.header("if-match").or(r.header("if-none-match"));
            assert!(condition.is_some(), "an unconditional write: {r:?}");
        })
        .map(|r| r.body)
        .collect();
    let all = bodies.len();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), all - 2, "but for the checks");
    assert!(all >= changes + 4);
    assert!(env.proxy.requests().iter().all(|r| r.method() != "DELETE"));
    true
}

/// A candidate whose process is paused while it leads does not lead when it wakes up.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_paused_leader_does_not_overwrite_its_successor() {
    becomes_true("a term that does not expire", leaves_its_successor_alone).await;
}

/// False: the lease of the successor ran out, as it may on a busy machine.
async fn leaves_its_successor_alone() -> bool {
    let env = Arc::new(TestEnv::<Gcs>::new(LEASE).await);
    let process = Process::start(&env, "blocked").await;
    let old = leads(&process.election).await;
    let blocked = process.block();
    let next = env.campaign("next");
    let leadership = leads(&next).await;
    drop(blocked);
    soon("the loss", old.ended()).await;
    assert!(leadership.token() > old.token());
    is_renewed(&leadership).await
}

/// An operator's eviction is distinguished from a release, and the next leader waits until the
/// evicted one knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_operator_evicts_conditionally() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let only = env.campaign("only");
    let lock = env.bucket().lock();
    let evicted = soon("an eviction", async {
        loop {
            let leadership = leads(&only).await;
            let reading = lock.read("my_app", TIMEOUT).await.unwrap();
            let Reading::Found(record) = reading else { panic!("{reading:?}") };
            let asked = Instant::now();
            if let Err(error) = lock.evict("my_app", record.revision, TIMEOUT).await {
                assert_eq!(error.kind(), LockErrorKind::Conflict, "{error}"); // renewed
                continue;
            }
            match leadership.ended().await.cause {
                Cause::Evicted => return asked,
                // The lease has run out before, as it may on a busy machine.
                cause => assert!(matches!(cause, Cause::Expired { .. }), "{cause:?}"),
            }
        }
    })
    .await;
    drop(leads(&only).await);
    assert!(evicted.elapsed() >= LEASE - Duration::from_millis(100), "{:?}", evicted.elapsed());
}
