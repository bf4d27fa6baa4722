//! What an exporter sees while requests to the lock fail, and after.

use std::time::Duration;

use incumbent::clock::TokioClock;
use incumbent::lock::LockErrorKind;
use incumbent::memory::MemoryLock;
use incumbent::{Change, Election, Leadership, new_election};
use incumbent_conformance::{Diary, Failing, SwitchableLock};
use metrics_util::debugging::DebugValue;

use crate::seen::{gauge, seen};
use crate::states::{record, sees_a_leader, until};

const LEASE: Duration = Duration::from_secs(30);
const LATE: &str = "incumbent_late_renewals_total";
const LEADERLESS: &str = "incumbent_leaderless_seconds_total";

/// A leader on a lock that can fail.
async fn lead() -> (MemoryLock, Election, Leadership) {
    let clock = TokioClock::new();
    let lock = MemoryLock::with_clock(LEASE, clock);
    let election = new_election("app", lock.clone()).identity("c1").clock(clock).start().unwrap();
    let leadership = election.won().await.unwrap();
    (lock, election, leadership)
}

#[tokio::test(start_paused = true)]
async fn a_renewal_after_two_thirds_of_the_lease_is_late() {
    let (snapshotter, _recorder) = record();
    let (lock, _election, leadership) = lead().await;
    let mut deadline = leadership.renewed(leadership.deadline()).await.unwrap();
    for part_of_lease in [0.5, 0.75] {
        assert_eq!(seen(&snapshotter, "app", "c1")[LATE], DebugValue::Counter(0));
        lock.set_reachable(false);
        tokio::time::sleep(LEASE.mul_f64(part_of_lease)).await;
        lock.set_reachable(true);
        deadline = leadership.renewed(deadline).await.expect("it still leads");
    }
    assert_eq!(seen(&snapshotter, "app", "c1")[LATE], DebugValue::Counter(1));
}

/// Another candidate may lead meanwhile.
#[tokio::test(start_paused = true)]
async fn failing_requests_do_not_count_as_time_without_a_leader() {
    let (snapshotter, _recorder) = record();
    let (lock, election, leadership) = lead().await;
    let mut changes = election.changes();
    lock.set_reachable(false);
    drop(leadership.ended().await);
    drop(leadership);
    until(&mut changes, |change| matches!(change, Change::Lost { .. })).await;
    seen(&snapshotter, "app", "c1");
    tokio::time::sleep(20 * LEASE).await;
    assert_eq!(seen(&snapshotter, "app", "c1")[LEADERLESS], DebugValue::Counter(0));
}

/// Its candidates receive hints, and may not read.
#[tokio::test(start_paused = true)]
async fn a_lock_that_refuses_requests_is_down_though_hints_arrive() {
    let (snapshotter, _recorder) = record();
    let clock = TokioClock::new();
    let lock = MemoryLock::with_clock(LEASE, clock);
    let leader = new_election("app", lock.clone()).identity("c1").clock(clock).start().unwrap();
    let _leadership = leader.won().await.unwrap();
    let unreadable = SwitchableLock::new(&lock, "unreadable", &Diary::default());
    unreadable.fail(Failing::Reads(LockErrorKind::Denied));
    let standby = new_election("app", unreadable).identity("c2").clock(clock).start().unwrap();
    let mut changes = standby.changes();
    until(&mut changes, |change| matches!(change, Change::LockFailing(_))).await;
    sees_a_leader(&standby).await;
    let standby = seen(&snapshotter, "app", "c2");
    assert!(gauge(&standby, "incumbent_observed_leader_token") > 0.0);
    assert_eq!(gauge(&standby, "incumbent_lock_up"), 0.0);
}
