//! A lock in process, and one on best effort on a real nats-server.

use incumbent::{Change, all_of, best_effort, required};

use crate::conformance::{LEASE, Service, change, leads, soon};
use crate::env::{NAME, candidate, memory};
use crate::nats_env::TestEnv;

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_best_effort_server_that_restarts_costs_no_term() {
    let nats = TestEnv::with_ttl(LEASE).await;
    let both = all_of([required(memory()), best_effort(nats.lock().await)]);
    let election = candidate(both, "only").start().unwrap();
    let leadership = leads(&election).await;
    assert!(leadership.tokens()[1].is_some());
    let mut changes = election.changes();
    nats.server.kill();
    change(&mut changes, "the failure is reported", |change| {
        matches!(change, Change::LockFailing(_)).then_some(())
    })
    .await;
    soon("its token is gone", async {
        let mut deadline = leadership.deadline();
        while leadership.tokens()[1].is_some() {
            deadline = leadership.renewed(deadline).await.unwrap();
        }
    })
    .await;
    nats.server.start_again().await;
    soon("it is taken again", async {
        let mut deadline = leadership.deadline();
        while leadership.tokens()[1].is_none() {
            deadline = leadership.renewed(deadline).await.unwrap();
        }
    })
    .await;
    assert!(leadership.is_valid() && election.is_leader());
    assert_eq!(Service::holder(&nats, NAME).await.as_deref(), Some("only"));
}
