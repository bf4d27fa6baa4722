//! Moves of the leadership: health, preference, pauses, candidates that stand aside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use incumbent::lock::CandidateRequest::Identify;
use incumbent::lock::{LockErrorKind, Messages};
use incumbent::memory::MemoryLock;
use incumbent::{
    Cause, Change, Changes, ElectionBuilder, HealthCheck, Observer, Readiness, Successor,
    new_election, observe,
};

use crate::conformance::{appears, becomes_true, change, leads, lost, sees, soon, working};
use crate::drain::draining_leader;
use crate::{STEADY, renewals_continue, without_hints};

fn candidate(lock: &MemoryLock, identity: &str) -> ElectionBuilder {
    working(new_election("my_app", lock.clone()).identity(identity))
}

/// A check whose result the test sets.
#[derive(Clone)]
struct Disk(Arc<AtomicBool>);

impl Disk {
    fn with_space() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn fills(&self, full: bool) {
        self.0.store(!full, Ordering::SeqCst);
    }

    fn check(&self) -> HealthCheck {
        let disk = self.clone();
        let check = move || {
            let has_space = disk.0.load(Ordering::SeqCst);
            async move { has_space.then_some(()).ok_or("disk\nfull") }
        };
        HealthCheck::new(check).every(Duration::from_millis(10)).failures(2)
    }
}

async fn stands(changes: &mut Changes<Change>, readiness: Readiness) {
    let wanted = |change: &Change| (*change == Change::Readiness(readiness)).then_some(());
    change(changes, &format!("it is {}", readiness.as_str()), wanted).await;
}

#[tokio::test]
async fn an_unhealthy_leader_yields_to_a_healthy_candidate() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (disk, other_disk) = (Disk::with_space(), Disk::with_space());
    let (first, mut changes) =
        candidate(&lock, "first").check(disk.check()).start_with_changes().unwrap();
    drop(leads(&first).await);
    let (second, mut of_second) =
        candidate(&lock, "second").check(other_disk.check()).start_with_changes().unwrap();
    sees(&second, "first").await;
    stands(&mut of_second, Readiness::Ready).await;

    disk.fills(true);
    assert_eq!(lost(&mut changes).await, Cause::HandedOver { to: "second".into() });
    let leadership = leads(&second).await;
    let status = first.watch().current();
    assert_eq!(status.readiness, Readiness::Unhealthy);
    assert_eq!(status.check_failure.as_deref(), Some(r"disk\nfull"));

    // A recovery moves nothing by itself.
    disk.fills(false);
    stands(&mut changes, Readiness::Ready).await;
    assert_eq!(first.watch().current().check_failure, None);
    renewals_continue(&leadership, STEADY, || {}).await;
}

#[tokio::test]
async fn where_all_are_unhealthy_the_leader_continues() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (disk, other_disk) = (Disk::with_space(), Disk::with_space());
    let (first, mut changes) =
        candidate(&lock, "first").check(disk.check()).start_with_changes().unwrap();
    let leadership = leads(&first).await;
    other_disk.fills(true);
    let second = candidate(&lock, "second").check(other_disk.check()).start().unwrap();
    sees(&second, "first").await;

    disk.fills(true);
    stands(&mut changes, Readiness::Unhealthy).await;
    renewals_continue(&leadership, STEADY * 2, || {}).await;
    // One that recovers is led by.
    other_disk.fills(false);
    drop(leads(&second).await);
    assert_eq!(lost(&mut changes).await, Cause::HandedOver { to: "second".into() });
}

#[tokio::test]
async fn a_check_that_hangs_or_panics_fails() {
    let lock = MemoryLock::with_ttl(STEADY);
    let hangs = || async {
        std::future::pending::<()>().await;
        Ok::<(), String>(())
    };
    fn panics() -> std::future::Ready<Result<(), String>> {
        panic!("a bug in the check")
    }
    let checks = [
        (HealthCheck::new(hangs), "the check took longer than 10ms"),
        (HealthCheck::new(panics), "the check panicked"),
    ];
    for (check, failure) in checks {
        let check = check.every(Duration::from_millis(10));
        let election = candidate(&lock, "only").check(check).start().unwrap();
        let mut watch = election.watch();
        let seen = soon("the failure", async {
            loop {
                let status = watch.next().await.expect("a status");
                if let Some(failure) = status.check_failure {
                    return failure;
                }
            }
        })
        .await;
        assert_eq!(&*seen, failure);
        soon("the stop", election.stop()).await;
    }
}

#[tokio::test]
async fn a_candidate_of_higher_priority_is_preferred_once_it_is_ready() {
    let lock = MemoryLock::with_ttl(STEADY);
    let preferred = |identity: &str, priority| {
        candidate(&lock, identity).priority(priority).prefer_after(Duration::from_millis(100))
    };
    let (low, mut changes) = preferred("low", 1).start_with_changes().unwrap();
    drop(leads(&low).await);
    let (high, mut of_high) = preferred("high", 5).start_with_changes().unwrap();
    let middle = preferred("middle", 3).start().unwrap();
    drop(leads(&high).await);
    assert_eq!(lost(&mut changes).await, Cause::HandedOver { to: "high".into() });

    // An operator's move is not undone within a lease, and then it is: the preference stays.
    let to = appears("the move", async || high.hand_over("middle").await.ok()).await;
    assert_eq!(&*to, "middle");
    assert_eq!(lost(&mut of_high).await, Cause::HandedOver { to: "middle".into() });
    let term = leads(&middle).await;
    let loss = soon("the end", term.ended()).await;
    assert_eq!(loss.cause, Cause::HandedOver { to: "high".into() });
    drop(term);
    drop(leads(&high).await);
}

/// Pauses the election. The holder alone answers; one that is too slow is asked again.
async fn pause(operator: &Observer, span: Duration) {
    appears("the answer of the holder", async || {
        let mut known = operator.pause(span).await.expect("a pause");
        assert!(known.len() <= 1, "{known:?}");
        known.pop()
    })
    .await;
}

#[tokio::test]
async fn a_pause_holds_back_preferences_and_not_operators() {
    let lock = MemoryLock::with_ttl(STEADY);
    let operator = observe("my_app", lock.clone()).unwrap();
    let low = candidate(&lock, "low").start().unwrap();
    let leadership = leads(&low).await;
    pause(&operator, Duration::from_secs(600)).await;
    let high = candidate(&lock, "high").priority(9).prefer_after(Duration::ZERO);
    let high = high.start().unwrap();
    sees(&high, "low").await;
    renewals_continue(&leadership, STEADY * 2, || {}).await;
    // The leader's entry states the pause, also to one that began later.
    let agrees = async || {
        let seen = high.watch().current().paused_until_unix_ms;
        seen.is_some() && seen == low.watch().current().paused_until_unix_ms
    };
    becomes_true("the pause is seen", agrees).await;

    appears("the move", async || operator.move_leader("high").await.ok()).await;
    drop(leadership);
    drop(leads(&high).await);
    appears("the move", async || operator.move_leader("low").await.ok()).await;
    let leadership = leads(&low).await;
    // Its successor has carried the pause on until now.
    pause(&operator, Duration::ZERO).await;
    let loss = soon("the end", leadership.ended()).await;
    assert_eq!(loss.cause, Cause::HandedOver { to: "high".into() });
}

/// Their answers may wait for half a minute.
#[tokio::test]
async fn slow_calls_of_observers_do_not_block_a_move() {
    let lock = MemoryLock::with_ttl(STEADY);
    let first = candidate(&lock, "first").start().unwrap();
    let leadership = leads(&first).await;
    let second = candidate(&lock, "second").start().unwrap();
    sees(&second, "first").await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let lock = lock.clone();
        let within = Duration::from_secs(30);
        calls.spawn(async move { lock.call_roll("my_app", Identify, within).await });
    }
    tokio::task::yield_now().await; // all are sent
    appears("the handover", async || leadership.hand_over("second").await.ok()).await;
    calls.abort_all();
}

#[tokio::test]
async fn a_handover_ends_though_the_lock_hangs() {
    let lock = MemoryLock::with_ttl(STEADY);
    let first = new_election("my_app", without_hints(lock)).identity("first").start().unwrap();
    let leadership = leads(&first).await;
    let outcome = soon("the answer", leadership.hand_over(Successor::Any)).await;
    let error = outcome.expect_err("nobody answers").to_string();
    assert!(error.contains("has not ended a roll call"), "{error}");
    let called = soon("the answer", first.roll_call(Duration::ZERO)).await;
    assert_eq!(called.map_err(|error| error.kind()), Err(LockErrorKind::OutcomeUnknown));
}

/// The successor crashed while the work drained: the others hold back only for a moment.
#[tokio::test]
async fn a_successor_that_is_gone_is_replaced_by_the_next() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (_first, leadership) = draining_leader(&lock).await;
    let second = candidate(&lock, "second").start().unwrap();
    let third = candidate(&lock, "third").start().unwrap();
    sees(&second, "first").await;
    sees(&third, "first").await;
    appears("the handover", async || leadership.hand_over("second").await.ok()).await;
    second.stop().await;
    drop(leadership);
    drop(leads(&third).await);
}
