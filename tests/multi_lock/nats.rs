//! A lock in process, and one on best effort on a real nats-server.

use incumbent::{Change, all_of, best_effort, required};

use crate::conformance::{Service, change, leads};
use crate::env::{NAME, STEADY, candidate, has_second, steady};
use crate::nats_env::TestEnv;

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_best_effort_server_that_restarts_costs_no_term() {
    let nats = TestEnv::with_ttl(STEADY).await;
    let both = all_of([required(steady()), best_effort(nats.lock().await)]);
    let election = candidate(both, "only").lease(STEADY).start().unwrap();
    let leadership = leads(&election).await;
    assert!(has_second(&leadership, true).await);
    let mut changes = election.changes();
    nats.server.kill();
    change(&mut changes, "the failure is reported", |change| {
        matches!(change, Change::LockFailing(_)).then_some(())
    })
    .await;
    assert!(has_second(&leadership, false).await);
    nats.server.start_again().await;
    assert!(has_second(&leadership, true).await);
    assert!(leadership.is_valid() && election.is_leader());
    assert_eq!(Service::holder(&nats, NAME).await.as_deref(), Some("only"));
}
