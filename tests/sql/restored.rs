//! A server is started on files that were restored from a base backup, with the same system
//! identifier and timeline.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Content, Lock, LockErrorKind, Nonce, Reading, Release, Revision, Tombstone};
use incumbent::sql::{PostgresLock, TableSetup};
use incumbent::{Cause, new_election};
use incumbent_test_support::{FaultProxy, eventually};
use tokio::sync::mpsc;

use crate::conformance::{ExclusionChecker, TIMEOUT, first_write, leads, lost, soon};
use crate::env::{TestEnv, connected};

/// A busy machine takes long to start a server on a backup, and to look at it.
const LEASE: Duration = Duration::from_secs(20);

/// A lock on which the first term has ended with a release, and its revision.
async fn released(env: &TestEnv) -> (PostgresLock, Revision) {
    let lock = env.postgres_lock().await;
    let first = first_write(LEASE, 1, None, None);
    let expected = lock.write("my_app", first).await.expect("a first write");
    let (by, left) = (Nonce(1), Duration::ZERO);
    let release =
        Release { expected, by, left, cause: "stopped", to: None, pause: None, timeout: TIMEOUT };
    lock.release("my_app", release).await.expect("a release");
    (lock, expected)
}

/// A lock that has seen nothing.
async fn fresh(env: &TestEnv) -> PostgresLock {
    connected(&env.url(), TableSetup::existing()).await.lock()
}

async fn found(lock: &PostgresLock) -> (Revision, Content) {
    match lock.read("my_app", TIMEOUT).await.expect("an answer") {
        Reading::Found(record) => (record.revision, record.content),
        Reading::Empty { .. } => panic!("no row"),
    }
}

/// The backup is put back twice, and each time terms begin: each has a token of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn restored_server_repeats_no_token() {
    let env = TestEnv::alone(LEASE).await;
    let (_, first) = released(&env).await;
    let mut tokens = vec![first];
    for nonce in 2..=4 {
        if nonce > 2 {
            env.server.restore().await;
        }
        env.server.back_up();
        let lock = fresh(&env).await;
        for _ in 0..3 {
            let (revision, _) = found(&lock).await;
            tokens.push(
                lock.write("my_app", first_write(LEASE, nonce, Some(revision), None))
                    .await
                    .unwrap(),
            );
        }
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// A term may have begun since the release, and be lost: the successor waits until each lease of
/// before the start is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn release_of_before_a_restore_proves_nothing_at_first() {
    let env = TestEnv::alone(LEASE).await;
    let (lock, _) = released(&env).await;
    env.server.back_up();
    lock.write("other", first_write(LEASE, 2, None, None)).await.expect("an election that is lost");
    env.server.restore().await;
    let lock = fresh(&env).await;
    assert_eq!(found(&lock).await.1, Content::Vacant(Tombstone::Deleted));
    let other = lock.read("other", TIMEOUT).await.expect("an answer");
    assert_eq!(other, Reading::Empty { proof: false });
    eventually("each lease of before the start is over", async || {
        matches!(found(&lock).await.1, Content::Vacant(Tombstone::Released { .. })).then_some(())
    })
    .await;
    let other = lock.read("other", TIMEOUT).await.expect("an answer");
    assert_eq!(other, Reading::Empty { proof: true });
}

/// What was read before the start proves nothing either: neither a release, nor that a holder is
/// silent since. A create that rests on it is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn create_that_rests_on_reads_of_before_a_restore_is_refused() {
    let env = TestEnv::alone(LEASE).await;
    let (lock, _) = released(&env).await;
    let held = lock.write("held", first_write(LEASE, 1, None, None)).await.expect("a first write");
    let standby = fresh(&env).await;
    let (released, content) = found(&standby).await;
    assert!(matches!(content, Content::Vacant(Tombstone::Released { .. })), "{content:?}");
    standby.read("held", TIMEOUT).await.expect("an answer");
    env.server.back_up();
    lock.write("my_app", first_write(LEASE, 2, Some(released), None))
        .await
        .expect("a term that is lost");
    env.server.restore().await;
    let create = async |name: &str, expected| {
        eventually("an answer", async || {
            match standby.write(name, first_write(LEASE, 3, expected, None)).await {
                Err(error) if error.kind() == LockErrorKind::Conflict => Some(None),
                Err(_) => None, // the connections of before are gone
                Ok(revision) => Some(Some(revision)),
            }
        })
        .await
    };
    assert_eq!(create("my_app", Some(released)).await, None);
    assert_eq!(create("held", Some(held)).await, None);
    for _ in 0..2 {
        assert_eq!(found(&standby).await, (released, Content::Vacant(Tombstone::Deleted)));
        let record = standby.read("held", TIMEOUT).await.expect("an answer");
        assert!(matches!(&record, Reading::Found(r) if r.revision == held), "{record:?}");
        // That may have been the read of another candidate, so the first create is refused.
        let refused = standby.write("held", first_write(LEASE, 3, Some(held), None)).await;
        assert!(refused.is_err(), "the holder's lease counts from the start on: {refused:?}");
        let _ = standby.write("my_app", first_write(LEASE, 3, Some(released), None)).await;
    }
    assert!(found(&standby).await.0 > released, "it has read again");
    eventually("that lease is over", async || {
        standby.write("held", first_write(LEASE, 3, Some(held), None)).await.ok()
    })
    .await;
}

/// A leader whose term the backup lacks, and who is cut off, leads beside no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn leader_that_the_backup_lacks_is_waited_for() {
    let env = TestEnv::alone(LEASE).await;
    released(&env).await;
    env.server.back_up();
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let proxy = FaultProxy::start(env.server.port()).await;
    let url = env.url().replace(&env.server.port().to_string(), &proxy.port().to_string());
    let lock = connected(&url, TableSetup::existing()).await.lock();
    let cut_off = new_election("my_app", lock).identity("cut-off").lease(LEASE);
    let cut_off = checker.watch(cut_off, "cut-off", won.clone()).start().unwrap();
    assert_eq!(soon("a leader", wins.recv()).await.as_deref(), Some("cut-off"));
    proxy.hold();
    env.server.restore().await;
    let next = new_election("my_app", fresh(&env).await).identity("next").lease(LEASE);
    let next = checker.watch(next, "next", won).start().unwrap();
    assert_eq!(soon("another leader", wins.recv()).await.as_deref(), Some("next"));
    assert!(!cut_off.is_leader() && next.is_leader());
    checker.verdict();
}

/// What an operator runs ends each term, and moves revisions and tokens on.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn operator_says_that_the_server_was_restored() {
    let env = TestEnv::new(LEASE).await;
    let election = env.campaign("only").await;
    let mut changes = election.changes();
    let token = leads(&election).await.token();
    let lock = env.postgres_lock().await;
    env.admin("SELECT incumbent_restored()").await;
    assert_eq!(lost(&mut changes).await, Cause::Evicted);
    let other = lock.read("other", TIMEOUT).await.expect("an answer");
    assert_eq!(other, Reading::Empty { proof: false });
    let next = leads(&election).await.token();
    assert!(next.0 >= token.0 + 1_000_000, "{next} after {token}");
    assert!(!env.admin("SELECT incumbent_restored()").await.is_empty(), "it may be run again");
}
