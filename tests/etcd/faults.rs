//! Members that are killed, stopped or cut off, and what operators do to a database.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Lock, LockErrorKind};
use incumbent::{Cause, Election, new_election};
use incumbent_test_support::{FaultProxy, eventually};
use tokio::sync::mpsc;

use crate::conformance::{ExclusionChecker, LEASE, first_write, leads, leads_before, soon};
use crate::env::{TestEnv, read, write};

/// Longer than the members need to elect a leader of their own, also on a busy machine.
const LONG: Duration = Duration::from_secs(24);
/// How long to wait for a member, which may be stopped.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Waits until the leader has written twice: the first write may have been on its way before.
async fn renews<const N: usize>(env: &TestEnv<N>, election: &Election) {
    for _ in 0..2 {
        let before = written(env).await;
        eventually("a renewal", async || (written(env).await > before).then_some(())).await;
    }
    assert!(election.is_leader());
}

async fn written<const N: usize>(env: &TestEnv<N>) -> u64 {
    let lock = env.etcd_lock();
    eventually("an answer", async || lock.read("my_app", ATTEMPT).await.ok().map(revision)).await
}

fn revision(reading: incumbent::lock::Reading) -> u64 {
    match reading {
        incumbent::lock::Reading::Found(record) => record.revision.0,
        incumbent::lock::Reading::Empty { .. } => 0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_term_outlives_each_member_in_turn() {
    let env = TestEnv::<3>::alone(LONG).await;
    let builder = new_election("my_app", env.etcd_lock()).lease(LONG);
    let election = builder.renewal(Duration::from_secs(1)).start().unwrap();
    // A lease is waited for, as nothing is known of an earlier leader.
    let leadership = leads(&election).await;
    for member in 0..3 {
        env.cluster.kill(member);
        renews(&env, &election).await;
        env.cluster.restart(member).await;
        env.cluster.pause(member);
        renews(&env, &election).await;
        env.cluster.resume(member);
    }
    assert_eq!(election.token(), Some(leadership.token()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_leads_without_a_majority_and_somebody_does_with_one() {
    let env = TestEnv::<3>::alone(LEASE * 3).await;
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let candidate = |identity: &str| {
        let builder = new_election("my_app", env.etcd_lock()).identity(identity).lease(LEASE * 3);
        checker.watch(builder, identity, won.clone()).start().unwrap()
    };
    let elections = [candidate("first"), candidate("second")];
    soon("a leader", wins.recv()).await;
    for _ in 0..2 {
        env.cluster.kill(1);
        env.cluster.pause(2);
        let none = async || (!elections.iter().any(Election::is_leader)).then_some(());
        eventually("nobody leads", none).await;
        env.cluster.resume(2);
        env.cluster.restart(1).await;
        soon("a leader again", wins.recv()).await;
    }
    checker.verdict();
}

/// Whether it was applied is for a read to show.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lost_reply_is_an_unknown_outcome() {
    let env = TestEnv::<1>::new(LONG).await;
    let proxy = FaultProxy::start(env.cluster.port(0)).await;
    let lock = env.etcd_at(vec![format!("127.0.0.1:{}", proxy.port())]).lock().unwrap();
    proxy.lose_reply("lease_ms");
    let error = write(&lock, "my_app", first_write(LONG, 1, None, None)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(proxy.lost_replies(), 1);
    read(&lock, "my_app").await; // by another connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn compaction_and_defragmentation_cost_no_term() {
    let env = TestEnv::<1>::alone(LONG).await;
    let first = env.campaign("first");
    drop(leads(&first).await);
    let second = env.campaign("second");
    let leadership = leads_before(&first, &[&second]).await;
    for _ in 0..3 {
        let revision = env.cluster.ctl(&["put", "another", "key", "-w", "json"]).await;
        let revision: serde_json::Value = serde_json::from_str(&revision).expect("json");
        let revision = revision["header"]["revision"].to_string();
        env.cluster.ctl(&["compact", "--physical", &revision]).await;
        env.cluster.ctl(&["defrag"]).await;
        renews(&env, &first).await;
    }
    assert_eq!(first.token(), Some(leadership.token()));
    // The watch still reports.
    first.stop().await;
    drop(leads(&second).await);
}

/// Its watch is cut while it stands by. What is written meanwhile is read once there is another.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_standby_whose_watch_was_cut_learns_what_it_missed() {
    let env = TestEnv::<1>::new(LONG).await;
    let proxy = FaultProxy::start(env.cluster.port(0)).await;
    let first = env.campaign("first");
    drop(leads(&first).await);
    let lock = env.etcd_at(vec![format!("127.0.0.1:{}", proxy.port())]).lock().unwrap();
    let second = env.campaign_with("second", lock);
    drop(leads_before(&first, &[&second]).await);
    proxy.cut();
    first.stop().await;
    proxy.restore();
    drop(leads(&second).await);
}

/// A full database refuses every write in words that say what to do, and the term ends in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_full_database_ends_the_term_and_says_why() {
    let quota = ["--quota-backend-bytes=2000000"];
    let cluster = incumbent_test_support::EtcdCluster::start(1, &quota).await;
    let env = TestEnv::<1>::on(Arc::new(cluster), LEASE * 2);
    let first = env.campaign("first");
    let leadership = leads(&first).await;
    let lock = env.etcd_lock();
    let large = "x".repeat(100_000);
    let full = async || {
        let put = env.cluster.ctl_command().args(["put", "large", &large]).output().await.unwrap();
        let said = String::from_utf8_lossy(&put.stderr);
        said.contains("database space exceeded").then_some(())
    };
    eventually("the database is full", full).await;
    let error = write(&lock, "other", first_write(LEASE, 1, None, None)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::OutcomeUnknown, "{error}");
    assert!(error.to_string().contains("its space is used up"), "{error}");
    let cause = soon("the end", leadership.ended()).await.cause;
    assert!(matches!(cause, Cause::Expired { .. }), "{cause:?}");
    let revision = env.cluster.ctl(&["get", "large", "-w", "json"]).await;
    let revision: serde_json::Value = serde_json::from_str(&revision).expect("json");
    env.cluster.ctl(&["compact", "--physical", &revision["header"]["revision"].to_string()]).await;
    env.cluster.ctl(&["defrag"]).await;
    env.cluster.ctl(&["alarm", "disarm"]).await;
    drop(leads(&first).await);
    first.stop().await;
}
