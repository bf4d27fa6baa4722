//! Servers that restart, die, pause or fall silent, for less and for more than a lease.

use std::time::Duration;

use incumbent::lock::Lock;
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::{Cause, Change, Election, new_election};
use incumbent_test_support::{Proxy, Server, eventually};

use crate::conformance::{change, leads, lost, sees, soon, working};
use crate::env::{BUCKET, TestEnv};

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(12);

/// Waits until the entry has been renewed, from now on.
async fn renewed(env: &TestEnv) {
    let before = env.message().await.map(|message| message.sequence);
    eventually("a renewal", async || {
        let now = env.message().await.map(|message| message.sequence);
        (now > before).then_some(())
    })
    .await;
}

async fn a_leader_keeps_its_term_through(outage: impl AsyncFnOnce(&TestEnv, &Election)) {
    let env = TestEnv::with_ttl(LONG).await;
    let builder = env.maker("only").renewal(Duration::from_millis(200));
    let election = builder.start().unwrap();
    let leadership = leads(&election).await;
    let mut changes = election.changes();
    outage(&env, &election).await;
    renewed(&env).await;
    assert!(leadership.is_valid());
    assert_eq!(election.token(), Some(leadership.token()));
    election.stop().await;
    let mut losses = 0;
    while let Some(change) = changes.next().await {
        losses += usize::from(matches!(change, Change::Lost { .. }));
    }
    assert_eq!(losses, 1, "the stop is the only end of a term");
}

/// The first slow call must not make the leader abdicate (home-operations/kopiur#324).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_within_the_lease_costs_nothing() {
    a_leader_keeps_its_term_through(async |env, _| env.server.restart().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_returns_within_the_lease_costs_nothing() {
    a_leader_keeps_its_term_through(async |env, _| {
        env.server.kill();
        env.server.start_again().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_of_the_server_within_the_lease_costs_nothing() {
    a_leader_keeps_its_term_through(async |env, election| {
        env.server.pause();
        eventually("a renewal fails", async || election.lock_failure().map(drop)).await;
        env.server.resume();
    })
    .await;
}

/// Stops the leader by an outage that lasts longer than the lease, then waits for a new one.
async fn an_outage_ends_the_term(
    begin: impl AsyncFnOnce(&TestEnv),
    end: impl AsyncFnOnce(&TestEnv),
) {
    let env = TestEnv::with_ttl(SHORT).await;
    let first = env.start("first").await;
    let leadership = leads(&first).await;
    let second = env.start("second").await;
    sees(&second, "first").await;
    let mut changes = first.changes();
    begin(&env).await;
    assert!(matches!(lost(&mut changes).await, Cause::Expired { last_error: Some(_) }));
    assert!(!first.is_leader() && !leadership.is_valid());
    drop(leadership);
    end(&env).await;
    let leadership = soon("there is a leader again", async {
        tokio::select! {
            leadership = first.won() => leadership.unwrap(),
            leadership = second.won() => leadership.unwrap(),
        }
    })
    .await;
    assert!(leadership.is_valid());
    assert!(first.is_leader() != second.is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_for_longer_than_a_lease_ends_the_term() {
    an_outage_ends_the_term(
        async |env| env.server.kill(),
        async |env| env.server.start_again().await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_paused_for_longer_than_a_lease_ends_the_term() {
    an_outage_ends_the_term(async |env| env.server.pause(), async |env| env.server.resume()).await;
}

/// Black-holed TCP (hashicorp/consul#18271): the leader notices by its own clock, and is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_on_a_silent_connection_stops_by_its_own_deadline() {
    let env = TestEnv::with_ttl(SHORT).await;
    let proxy = Proxy::start(env.server.address());
    let first = env.start_at(&proxy.url(), "first").await;
    let leadership = leads(&first).await;
    let second = env.start("second").await;
    sees(&second, "first").await;
    let mut changes = first.changes();
    proxy.black_hole();
    let next = leads(&second).await;
    assert!(!first.is_leader(), "the first is out before the second is in");
    assert!(next.token() > leadership.token());
    assert!(matches!(lost(&mut changes).await, Cause::Expired { .. }));
    drop(leadership);
    proxy.pass();
    proxy.cut();
    sees(&first, "second").await;
}

/// A renewal that is answered when the lease is over extends nothing (kubernetes/kubernetes#44887).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_answered_too_late_extends_nothing() {
    let env = TestEnv::with_ttl(SHORT).await;
    let proxy = Proxy::start(env.server.address());
    let first = env.start_at(&proxy.url(), "first").await;
    let leadership = leads(&first).await;
    let second = env.start("second").await;
    sees(&second, "first").await;
    proxy.hold();
    drop(leadership);
    let next = leads(&second).await;
    proxy.pass();
    sees(&first, "second").await;
    assert!(!first.is_leader());
    assert!(next.is_valid());
}

/// A campaign may start before its server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_may_start_before_its_server() {
    let server = Server::start().await;
    server.stop().await;
    let client = async_nats::ConnectOptions::new()
        .retry_on_initial_connect()
        .reconnect_delay_callback(|_| Duration::from_millis(50))
        .connect(server.url())
        .await
        .unwrap();
    let config = BucketConfig::new(BUCKET).ttl(SHORT).create_if_missing(true);
    let lock = Bucket::deferred(client, config).unwrap().lock();
    assert_eq!(lock.capabilities().max_lease, SHORT);
    let election = working(new_election("my_app", lock).identity("early")).start().unwrap();
    let mut changes = election.changes();
    if election.lock_failure().is_none() {
        change(&mut changes, "the failure is reported", |change| {
            matches!(change, Change::LockFailing(_)).then_some(())
        })
        .await;
    }
    server.start_again().await;
    drop(leads(&election).await);
    assert_eq!(election.lock_failure(), None);
}

/// Standbys receive hints of a vacancy after the server has been restarted under them
/// (nats-io/nats.rs#1596: the watch was dead, unnoticed).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_receive_hints_again_after_a_restart() {
    let env = TestEnv::with_ttl(LONG).await;
    let first = env.maker("first").start().unwrap();
    drop(leads(&first).await);
    let second = env.start("second").await;
    sees(&second, "first").await;
    env.server.restart().await;
    let reconnected = |election: &Election| {
        let election = election.clone();
        async move {
            eventually("the campaign is well", async || {
                election.lock_failure().is_none().then_some(())
            })
            .await;
        }
    };
    reconnected(&first).await;
    first.stop().await;
    // Long before the lease is over, and long before a standby with hints would read by itself.
    let leadership = leads(&second).await;
    assert!(leadership.is_valid());
}
