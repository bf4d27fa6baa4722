//! Servers that die or pause for less than a lease.

use std::time::Duration;

use incumbent::{Change, Election};
use incumbent_test_support::eventually;

use crate::conformance::leads;
use crate::env::TestEnv;

/// A busy machine takes seconds to start a server.
const LONG: Duration = Duration::from_secs(60);

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
