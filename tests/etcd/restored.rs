//! A cluster is started on a restored snapshot.

use std::sync::Arc;
use std::time::Duration;

use incumbent::etcd::EtcdLock;
use incumbent::lock::{Content, Lock, LockErrorKind, Nonce, Reading, Release, Revision, Tombstone};
use incumbent_test_support::{EtcdCluster, FaultProxy, eventually};
use tokio::sync::mpsc;

use crate::conformance::{ExclusionChecker, TIMEOUT, first_write, leads_before, soon};
use crate::env::{TestEnv, read, write};

const LEASE: Duration = Duration::from_secs(4);
/// Longer than a busy machine stands still.
const LONG: Duration = Duration::from_secs(15);
/// How long to wait for an answer that may not come.
const ATTEMPT: Duration = Duration::from_secs(5);

async fn release(lock: &EtcdLock, nonce: u64, expected: Revision) {
    lock.release("my_app", released(nonce, expected)).await.expect("a release");
}

fn released(nonce: u64, expected: Revision) -> Release {
    let (by, left) = (Nonce(nonce), Duration::ZERO);
    Release { expected, by, left, cause: "stopped", to: None, pause: None, timeout: TIMEOUT }
}

async fn found(lock: &EtcdLock) -> (Revision, Content) {
    match eventually("an answer", async || lock.read("my_app", ATTEMPT).await.ok()).await {
        Reading::Found(record) => (record.revision, record.content),
        Reading::Empty { .. } => panic!("no key"),
    }
}

fn is_released(content: &Content) -> bool {
    matches!(content, Content::Vacant(Tombstone::Released { .. }))
}

/// A release that others have written over is restored. Who has seen the later entry takes nothing
/// for proof, and counts on from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_release_proves_nothing_to_who_saw_what_followed() {
    for options in [&[][..], &["--bump-revision", "1000000", "--mark-compacted"]] {
        let env = TestEnv::<1>::alone(LEASE).await;
        if !options.is_empty() && !env.cluster.can_bump_revision().await {
            continue;
        }
        let lock = env.etcd_lock();
        let first =
            write(&lock, "my_app", first_write(LEASE, 1, None, None)).await.expect("a write");
        release(&lock, 1, first).await;
        let (released, content) = found(&lock).await;
        assert!(is_released(&content), "{content:?}");
        let snapshot = env.cluster.snapshot().await;
        let later =
            write(&lock, "my_app", first_write(LEASE, 2, Some(released), None)).await.unwrap();
        env.cluster.kill(0);
        env.cluster.restore(&snapshot, options).await;
        env.cluster.restart(0).await;
        let (restored, content) = found(&lock).await;
        assert_eq!(content, Content::Vacant(Tombstone::Deleted), "no proof");
        assert!(restored > later, "{restored} after {later}");
        // A write that expects the lost entry is refused.
        let lost =
            write(&lock, "my_app", first_write(LEASE, 2, Some(later), None)).await.unwrap_err();
        assert_eq!(lost.kind(), LockErrorKind::Conflict, "{lost}");
        let next =
            write(&lock, "my_app", first_write(LEASE, 3, Some(restored), None)).await.unwrap();
        assert!(next > later, "{next} after {later}");
        let (_, content) = found(&env.etcd_lock()).await;
        assert!(matches!(content, Content::Held(_)), "{content:?}");
    }
}

/// The term of Raft begins anew in a restored cluster, which shows it to who has seen nothing, if
/// the first cluster had elected more than one leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_entry_of_a_later_raft_term_proves_nothing() {
    let env = TestEnv::<1>::alone(LEASE).await;
    for _ in 0..2 {
        env.cluster.kill(0);
        env.cluster.restart(0).await; // another term of Raft
    }
    let lock = env.etcd_lock();
    read(&lock, "my_app").await;
    let first = write(&lock, "my_app", first_write(LEASE, 1, None, None)).await.expect("a write");
    release(&lock, 1, first).await;
    assert!(is_released(&found(&env.etcd_lock()).await.1));
    let snapshot = env.cluster.snapshot().await;
    env.cluster.kill(0);
    env.cluster.restore(&snapshot, &[]).await;
    env.cluster.restart(0).await;
    let (revision, content) = found(&env.etcd_lock()).await;
    assert_eq!(content, Content::Vacant(Tombstone::Deleted), "no proof");
    let fresh = env.etcd_lock();
    found(&fresh).await;
    write(&fresh, "my_app", first_write(LEASE, 2, Some(revision), None)).await.unwrap();
    assert!(
        matches!(found(&env.etcd_lock()).await.1, Content::Held(entry) if entry.mark.is_some())
    );
}

/// A restored cluster with a token of its own has another identifier, which shows it to everybody.
/// With the token of the first, and no lower term of Raft, nothing shows it to who has seen nothing
/// since the snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_cluster_with_its_own_token_proves_nothing() {
    for (options, is_noticed) in [(&["--initial-cluster-token", "second"][..], true), (&[], false)]
    {
        let env = TestEnv::<1>::alone(LEASE).await;
        let lock = env.etcd_lock();
        read(&lock, "my_app").await;
        let first =
            write(&lock, "my_app", first_write(LEASE, 1, None, None)).await.expect("a write");
        release(&lock, 1, first).await;
        let (released, _) = found(&lock).await;
        let snapshot = env.cluster.snapshot().await;
        let other = env.etcd_lock();
        found(&other).await;
        let later = first_write(LEASE, 2, Some(released), None);
        write(&other, "my_app", later).await.expect("a write that is lost");
        env.cluster.kill(0);
        env.cluster.restore(&snapshot, options).await;
        env.cluster.restart(0).await;
        let (revision, content) = found(&env.etcd_lock()).await;
        assert_eq!(is_released(&content), !is_noticed, "{content:?}");
        assert_eq!(revision, released);
        // Who has seen the entry itself hears nothing until the leases of the first one are over.
        let (revision, content) = found(&lock).await;
        assert_eq!(is_released(&content), !is_noticed, "{content:?}");
        assert_eq!(revision > released, is_noticed, "{revision} after {released}");
    }
}

/// Who has seen the very entry that is restored does not take the holder for silent since then: the
/// renewals that followed were lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_entry_is_another_one_to_who_has_seen_it() {
    let env = TestEnv::<1>::alone(LEASE).await;
    for _ in 0..2 {
        env.cluster.kill(0);
        env.cluster.restart(0).await; // another term of Raft
    }
    let holder = env.etcd_lock();
    let (reading, writing) = (env.etcd_lock(), env.etcd_lock());
    read(&holder, "my_app").await;
    let first = write(&holder, "my_app", first_write(LEASE, 1, None, None)).await.unwrap();
    for lock in [&reading, &writing] {
        assert!(
            matches!(found(lock).await, (seen, Content::Held(entry)) if seen == first && entry.mark.is_some())
        );
    }
    let snapshot = env.cluster.snapshot().await;
    let renewal = first_write(LEASE, 1, Some(first), Some(first.into()));
    write(&holder, "my_app", renewal).await.unwrap();
    env.cluster.kill(0);
    env.cluster.restore(&snapshot, &[]).await;
    env.cluster.restart(0).await;
    // Without a read, as of a candidate that has received all hints: it acquires nothing.
    let acquires = async || {
        let next = first_write(LEASE, 2, Some(first), None);
        writing
            .write("my_app", next)
            .await
            .err()
            .filter(|error| error.kind() == LockErrorKind::Conflict)
    };
    let is_unknown =
        |content: &Content| matches!(content, Content::Held(entry) if entry.mark.is_none());
    let (revision, content) = found(&reading).await;
    assert!(is_unknown(&content) && revision > first, "{content:?}");
    eventually("a refusal", acquires).await;
    let (revision, content) = found(&writing).await;
    assert!(is_unknown(&content) && revision > first, "{content:?}");
}

/// A leader that hung finds a restored entry of its own, and another one may lead whose entry was
/// lost: its release would be proof that nobody does.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_entry_is_not_released() {
    let env = TestEnv::<1>::alone(LEASE).await;
    let (holder, other) = (env.etcd_lock(), env.etcd_lock());
    let first = write(&holder, "my_app", first_write(LEASE, 1, None, None)).await.unwrap();
    let (seen, _) = found(&other).await;
    let snapshot = env.cluster.snapshot().await;
    write(&other, "my_app", first_write(LEASE, 2, Some(seen), None)).await.unwrap();
    read(&holder, "another").await; // it shows the revision of that
    env.cluster.kill(0);
    env.cluster.restore(&snapshot, &[]).await;
    env.cluster.restart(0).await;
    eventually("a response", async || holder.read("another", ATTEMPT).await.ok()).await;
    let refused = holder.release("my_app", released(1, first)).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    assert!(!is_released(&found(&env.etcd_lock()).await.1));
    // Within its lease nobody else has written over its entry.
    let renewal = first_write(LEASE, 1, Some(first), Some(first.into()));
    let renewed = write(&holder, "my_app", renewal).await.unwrap();
    release(&holder, 1, renewed).await;
}

/// Candidates that took part before lead one after the other through a restore.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_leads_beside_a_leader_whose_entry_was_lost() {
    let env = TestEnv::<1>::alone(LEASE).await;
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let candidate = |identity: &str| {
        let builder = incumbent::new_election("my_app", env.etcd_lock());
        let builder = builder.identity(identity).lease(LEASE);
        checker.watch(builder, identity, won.clone()).start().unwrap()
    };
    let first = candidate("first");
    soon("a leader", wins.recv()).await;
    first.stop().await;
    let snapshot = env.cluster.snapshot().await; // with the release
    let second = candidate("second");
    soon("the second", wins.recv()).await;
    let third = candidate("third");
    drop(leads_before(&second, &[&third]).await);
    while wins.try_recv().is_ok() {} // of a lease that has run out on a busy machine
    env.cluster.kill(0);
    env.cluster.restore(&snapshot, &[]).await;
    env.cluster.restart(0).await;
    soon("somebody leads again", wins.recv()).await;
    checker.verdict();
}

/// Another cluster at the same address is refused while a leader of the first may lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn another_cluster_at_the_address_is_refused_at_first() {
    let env = TestEnv::<1>::alone(LONG).await;
    let proxy = FaultProxy::start(env.cluster.port(0)).await;
    let lock = env.etcd_at(vec![format!("127.0.0.1:{}", proxy.port())]).lock().unwrap();
    // Before the write: the refusals end two leases after the last response.
    let other = EtcdCluster::start(1, &[]).await;
    write(&lock, "my_app", first_write(LONG, 1, None, None)).await.expect("a write");
    proxy.redirect(other.port(0));
    let mut refusals = Vec::new();
    let empty =
        eventually("it is used in the end", async || match lock.read("my_app", ATTEMPT).await {
            Ok(reading) => Some(reading),
            Err(error) => {
                refusals.push(error.to_string());
                None
            }
        })
        .await;
    assert_eq!(empty, Reading::Empty { proof: false });
    let says = "name the members of one cluster";
    assert!(refusals.iter().any(|refusal| refusal.contains(says)), "{refusals:?}");
}

/// One of two addresses leads to another cluster: the other address is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_address_of_another_cluster_is_left() {
    let env = TestEnv::<1>::new(LONG).await;
    let (port, other) = (env.cluster.port(0), EtcdCluster::start(1, &[]).await);
    let proxies = [FaultProxy::start(port).await, FaultProxy::start(port).await];
    let addresses = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port()));
    let lock = env.etcd_at(addresses.collect()).lock().unwrap();
    let written = write(&lock, "my_app", first_write(LONG, 1, None, None)).await.expect("a write");
    for proxy in &proxies {
        proxy.redirect(other.port(0));
        tokio::time::sleep(Duration::from_millis(200)).await; // it notices
        for _ in 0..3 {
            assert_eq!(found(&lock).await.0, written);
        }
        proxy.redirect(port);
    }
}
