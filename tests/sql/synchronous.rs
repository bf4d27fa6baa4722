//! Synchronous replicas: what is acknowledged survives a failover, and what a read shows may not.

use std::time::Duration;

use incumbent::Cause;
use incumbent::lock::{Content, Lock, LockErrorKind, Reading, Token};
use incumbent::sql::{PostgresLock, TableSetup};
use incumbent_test_support::{FaultProxy, eventually};
use sqlx::Row;

use crate::conformance::{first_write, leads, soon};
use crate::env::{connected, run};
use crate::failover::Pair;

/// Longer than a busy machine stands still.
const LEASE: Duration = Duration::from_secs(15);
/// Of a request that is sent again.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Backends that have committed, and wait for the replica.
const WAITING: &str = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
/// Ends them: what they have committed becomes visible, without an acknowledgement.
const END_WAITING: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

async fn synchronous_lock(pair: &Pair) -> PostgresLock {
    connected(&pair.env.url(), TableSetup::existing()).await.lock().synchronous_replicas()
}

async fn revision(pair: &Pair) -> i64 {
    pair.env.row().await.expect("a row").get("revision")
}

/// A renewal that was committed, and waits for the replica, shows once its backend is ended. It may
/// still be lost, so it entitles to nothing, however often it is looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_renewal_that_no_replica_has_extends_no_term() {
    let pair = Pair::start(LEASE).await;
    pair.be_synchronous().await;
    let leader = pair.campaign("leader", synchronous_lock(&pair).await);
    let leadership = leads(&leader).await;
    pair.replica.pause();
    let url = pair.env.url();
    let waits = async || (!run(&url, WAITING).await.is_empty()).then_some(());
    eventually("a renewal waits for the replica", waits).await;
    let (deadline, acknowledged) = (leadership.deadline(), revision(&pair).await);
    let end_them = async {
        loop {
            run(&url, END_WAITING).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let loss = tokio::select! {
        loss = soon("the end", leadership.ended()) => loss,
        () = end_them => unreachable!("it continues"),
    };
    assert!(matches!(loss.cause, Cause::Expired { .. }), "{:?}", loss.cause);
    assert!(revision(&pair).await > acknowledged, "a renewal showed");
    assert_eq!(leadership.deadline(), deadline);
    pair.replica.resume();
}

/// What the old primary committed without a replica, and what the new one stores instead, are two
/// writes with two revisions: else the second one would be taken for the first, and be over too
/// early.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_two_primaries_give_out_one_revision() {
    let pair = Pair::start(LEASE).await;
    pair.be_synchronous().await;
    let proxy = FaultProxy::start(pair.env.server.port()).await;
    let lock = pair.lock_through(&proxy).await.synchronous_replicas();
    let first =
        lock.write("my_app", first_write(LEASE, 1, None, None)).await.expect("a first write");
    pair.replica.kill(); // and nothing is on its way to it any more
    let (token, url) = (Some(Token(first.0)), pair.env.url());
    let committed = async {
        let renewal = lock.write("my_app", first_write(LEASE, 1, Some(first), token)).await;
        assert_eq!(renewal.unwrap_err().kind(), LockErrorKind::OutcomeUnknown);
    };
    let ended = async {
        let waits = async || (!run(&url, WAITING).await.is_empty()).then_some(());
        eventually("the renewal waits for the replica", waits).await;
        run(&url, END_WAITING).await;
    };
    tokio::join!(committed, ended);
    let shown = revision(&pair).await.cast_unsigned();
    assert!(shown > first.0);
    pair.env.server.kill();
    pair.replica.restart().await;
    pair.replica_takes_over(&proxy);
    let other = eventually("a write on the new primary", async || {
        match lock.write("my_app", first_write(LEASE, 2, Some(first), None)).await {
            Ok(revision) => Some(revision),
            Err(error) if error.kind() == LockErrorKind::Conflict => panic!("{error}"),
            Err(_) => None, // the connections of before are gone
        }
    })
    .await;
    assert_ne!(other.0, shown);
    // Two millions on: a server between the two, whose writes are all lost, would have gone on by
    // another number.
    assert!(other.0 >= first.0 + 2_000_000, "{other:?} after {first:?}");
}

/// Two machines' clocks are two clocks: what one of them wrote down, the other does not judge.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_clock_of_a_new_primary_ends_no_lease_of_the_old_one() {
    let pair = Pair::start(LEASE).await;
    pair.be_synchronous().await;
    let proxy = FaultProxy::start(pair.env.server.port()).await;
    let lock = pair.lock_through(&proxy).await.synchronous_replicas();
    lock.write("my_app", first_write(LEASE, 1, None, None)).await.expect("a first write");
    pair.env.server.kill();
    pair.replica_takes_over(&proxy);
    let passed = "SELECT FROM incumbent_elections
        WHERE renewed_at + lease_duration < clock_timestamp()";
    let url = pair.replica.url(&pair.env.database);
    eventually("the lease has passed by the clock of the new primary", async || {
        (!run(&url, passed).await.is_empty()).then_some(())
    })
    .await;
    let look = async || lock.read("my_app", ATTEMPT).await.ok();
    let found = eventually("an answer of the new primary", look).await;
    let Reading::Found(record) = found else { panic!("{found:?}") };
    assert!(matches!(record.content, Content::Held(_)), "{record:?}");
}
