//! Drains: a leader that is to stop continues to lead while its work comes to its end.

use std::time::Duration;

use futures_util::FutureExt;
use incumbent::clock::{BootClock, Clock};
use incumbent::memory::MemoryLock;
use incumbent::{Cause, Change, Election, ElectionBuilder, Leadership, StartError, new_election};
use tokio::sync::mpsc;

use crate::conformance::{change, leads, lost, soon, won};
use crate::{STEADY, renewals_continue};

const LONG: Duration = Duration::from_secs(600);

fn draining(lock: &MemoryLock, identity: &str) -> ElectionBuilder {
    new_election("my_app", lock.clone()).identity(identity).drain(LONG)
}

/// A leader whose work may drain for long.
pub async fn draining_leader(lock: &MemoryLock) -> (Election, Leadership) {
    let election = draining(lock, "first").start().unwrap();
    let leadership = leads(&election).await;
    (election, leadership)
}

/// A leader, asked to stop by a task of its own.
async fn stopping(lock: &MemoryLock) -> (Election, Leadership, tokio::task::JoinHandle<()>) {
    let (election, leadership) = draining_leader(lock).await;
    let stopped = tokio::spawn({
        let election = election.clone();
        async move { election.stop().await }
    });
    soon("the drain", leadership.draining()).await;
    (election, leadership, stopped)
}

#[tokio::test]
async fn a_stop_lets_the_work_drain_for_longer_than_a_lease() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (election, leadership, stopped) = stopping(&lock).await;
    let standby = new_election("my_app", lock.clone()).identity("second").start().unwrap();

    let token = leadership.token();
    renewals_continue(&leadership, STEADY * 2, || {
        assert!(election.is_leader() && leadership.is_draining() && !standby.is_leader());
    })
    .await;
    assert!(!stopped.is_finished());

    drop(leadership);
    soon("the stop", stopped).await.unwrap();
    let next = leads(&standby).await;
    assert!(next.token() > token);
    assert!(!next.is_draining());
}

#[tokio::test]
async fn what_others_see_of_a_drain() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (calls, mut called) = mpsc::unbounded_channel();
    let (election, mut changes) = draining(&lock, "first")
        .on_drain(move |notice| {
            let calls = calls.clone();
            async move { calls.send(notice).unwrap() }
        })
        .start_with_changes()
        .unwrap();
    let leadership = leads(&election).await;
    assert_eq!(election.watch().current().drain_ends, None);
    leadership.resign();
    leadership.resign();

    let notice = soon("the notice", leadership.draining()).await;
    assert_eq!(soon("the callback", called.recv()).await, Some(notice.clone()));
    assert_eq!((&*notice.election, notice.token), ("my_app", leadership.token()));
    assert!(notice.until > BootClock.now() + LONG - Duration::from_secs(60));
    let reported = change(&mut changes, "the drain", |change| match change {
        Change::Draining { token, until } => Some((*token, *until)),
        _ => None,
    });
    assert_eq!(reported.await, (notice.token, notice.until));
    assert_eq!(election.watch().current().drain_ends, Some(notice.until));

    drop(leadership);
    assert_eq!(lost(&mut changes).await, Cause::Resigned);
    assert_eq!(election.watch().current().drain_ends, None);
    drop(leads(&election).await); // it takes part again
    assert!(called.recv().now_or_never().is_none(), "one call for one drain");
    election.stop().await;
}

#[tokio::test]
async fn a_term_that_drains_takes_on_no_further_work() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (election, mut changes) = draining(&lock, "first").start_with_changes().unwrap();
    let leadership = leads(&election).await;
    let token = leadership.token();
    leadership.resign();
    soon("the drain", leadership.draining()).await;
    let next = tokio::spawn({
        let election = election.clone();
        async move { election.won().await.unwrap() }
    });
    // One that took part in the drain would be notified at once, and come back, again and again.
    soon("a renewal", leadership.renewed(leadership.deadline())).await.unwrap();
    assert!(!next.is_finished());
    drop(leadership);
    assert_eq!(lost(&mut changes).await, Cause::Resigned);
    assert!(soon("the next term", next).await.unwrap().token() > token);
}

#[tokio::test]
async fn a_drain_can_be_ended() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (election, leadership, stopped) = stopping(&lock).await;
    election.end_drain();
    assert_eq!(soon("the end", leadership.ended()).await.cause, Cause::Stopped);
    drop(leadership);
    soon("the stop", stopped).await.unwrap();
}

#[tokio::test]
async fn work_that_panics_in_a_drain_ends_it() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (election, mut changes) = draining(&lock, "first")
        .on_won(|leadership| async move {
            leadership.draining().await;
            panic!("while it drains");
        })
        .start_with_changes()
        .unwrap();
    won(&mut changes).await;
    soon("the stop", election.stop()).await;
    assert_eq!(lost(&mut changes).await, Cause::WorkPanicked);
    assert_eq!(lock.holder("my_app"), None);
}

#[tokio::test]
async fn nothing_is_waited_for_without_work() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (election, mut changes) = draining(&lock, "first").start_with_changes().unwrap();
    won(&mut changes).await;
    soon("the stop of a leader", election.stop()).await;
    assert_eq!(lock.holder("my_app"), None);
    let standby = draining(&lock, "second").start().unwrap();
    soon("the stop of a standby", standby.stop()).await;
}

#[tokio::test]
async fn a_drain_of_more_than_a_day_is_refused() {
    let builder = new_election("my_app", MemoryLock::new()).drain(Duration::from_secs(86_401));
    let error = builder.start().expect_err("too long");
    assert!(matches!(error, StartError::TooLong { what: "drain", .. }));
    assert_eq!(error.to_string(), "a drain of 86401s is above the maximum of 86400s");
}
