//! A lock in process and one on a real nats-server.

use incumbent::lock::LockErrorKind;
use incumbent::{Cause, Change, Election, all_of, best_effort, required};

use crate::conformance::{LEASE, Service, change, leads, sees, soon};
use crate::env::{NAME, candidate, held, memory};
use crate::nats_env::{BUCKET, TestEnv};

async fn failure(election: &Election) -> LockErrorKind {
    let mut changes = election.changes();
    if let Some(failure) = election.lock_failure() {
        return failure.kind;
    }
    change(&mut changes, "the failure is reported", |change| match change {
        Change::LockFailing(failure) => Some(failure.kind),
        _ => None,
    })
    .await
}

/// A paused server ends the term before another can lead, and the lock in process is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_paused_server_ends_the_term_where_it_is_required() {
    let (memory, nats) = (memory(), TestEnv::with_ttl(LEASE).await);
    let both = all_of([required(memory.clone()), required(nats.lock().await)]);
    let election = candidate(both, "only").start().unwrap();
    let leadership = leads(&election).await;
    nats.server.pause();
    let loss = soon("the end", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Expired { .. }), "{loss:?}");
    drop(leadership);
    held(&memory, None).await;
    nats.server.resume();
    drop(leads(&election).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_best_effort_server_that_restarts_costs_no_term() {
    let (memory, nats) = (memory(), TestEnv::with_ttl(LEASE).await);
    let both = all_of([required(memory.clone()), best_effort(nats.lock().await)]);
    let election = candidate(both, "only").start().unwrap();
    let leadership = leads(&election).await;
    assert!(leadership.tokens()[1].is_some());
    nats.server.kill();
    failure(&election).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_bucket_that_is_missing_is_reported_and_handled_as_chosen() {
    let nats = TestEnv::with_ttl(LEASE).await;
    let (lock, other) = (nats.lock().await, nats.lock().await);
    let js = async_nats::jetstream::new(nats.client().await);
    js.delete_key_value(BUCKET).await.expect("a deletion");
    let strict = memory();
    let needs_it = all_of([required(strict.clone()), required(lock)]);
    let needs_it = candidate(needs_it, "strict").start().unwrap();
    failure(&needs_it).await;
    let lenient = candidate(all_of([required(memory()), best_effort(other)]), "lenient");
    let lenient = lenient.start().unwrap();
    drop(leads(&lenient).await);
    assert!(lenient.lock_failure().is_some());
    // Who needs no bucket leads by the other lock meanwhile.
    let plain = candidate(strict, "plain").start().unwrap();
    drop(leads(&plain).await);
    sees(&needs_it, "plain").await;
    assert!(!needs_it.is_leader());
}
