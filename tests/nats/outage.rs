//! Servers that restart, die, pause or fall silent, for less and for more than a lease.

use std::time::Duration;

use incumbent::{Cause, Change, Election};
use incumbent_test_support::{Proxy, eventually};

use crate::conformance::{leads, lost, sees, soon};
use crate::env::TestEnv;

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
