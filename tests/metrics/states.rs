//! What an exporter sees of a candidate besides its terms, and of a member of a set.

use std::collections::HashMap;
use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::{Change, Changes, Election, Set, new_election, new_set};
use metrics::LocalRecorderGuard;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::seen::{gauge, seen};

/// Longer than a busy machine stands still.
const LEASE: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_secs(60);
const TAKEN: &str = "incumbent_set_moves_total move=take outcome=accepted";

/// All that was recorded of a candidate or a member since the last call: a recorder reports
/// everything once.
struct Exporter(Snapshotter);

impl Exporter {
    fn of(&self, name: &str, identity: &str) -> HashMap<String, DebugValue> {
        seen(&self.0, name, identity)
    }

    /// Waits until a member of a set with four shards leads this many, of which it has taken some
    /// from another member.
    async fn leads(&self, member: &str, shards: f64, members: f64, taken: u64) {
        let (mut load, mut counted) = (None, 0);
        let wait = async {
            while load != Some(shards) || counted < taken {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let seen = self.of("work", member);
                if let DebugValue::Counter(more) = &seen[TAKEN] {
                    counted += more;
                }
                if gauge(&seen, "incumbent_set_members") == members {
                    assert_eq!(gauge(&seen, "incumbent_set_shards"), 4.0);
                    assert_eq!(gauge(&seen, "incumbent_set_weight"), 1.0);
                    load = Some(gauge(&seen, "incumbent_set_load")); // recorded together
                }
            }
        };
        tokio::time::timeout(LONG * 2, wait).await.expect("it came to be so");
        assert_eq!(counted, taken);
    }
}

/// Records the metrics of this thread, which runs all tasks of the test.
pub fn record() -> (Snapshotter, LocalRecorderGuard<'static>) {
    let recorder: &'static DebuggingRecorder = Box::leak(Box::default());
    (recorder.snapshotter(), metrics::set_default_local_recorder(recorder))
}

pub async fn until(changes: &mut Changes<Change>, is_it: impl Fn(&Change) -> bool) {
    loop {
        let change = changes.next().await.expect("the election continues");
        if is_it(&change) {
            return;
        }
    }
}

pub async fn sees_a_leader(election: &Election) {
    let mut watch = election.watch();
    while watch.next().await.expect("the election continues").leader.is_none() {}
}

#[tokio::test]
async fn standbys_show_the_leader_and_whether_the_lock_responds() {
    let (snapshotter, _recorder) = record();
    let exporter = Exporter(snapshotter);
    let lock = MemoryLock::with_ttl(LEASE);
    lock.set_reachable(false);
    let first = new_election("app", lock.clone()).identity("c1").start().unwrap();
    let mut changes = first.changes();
    until(&mut changes, |change| matches!(change, Change::LockFailing(_))).await;
    assert_eq!(gauge(&exporter.of("app", "c1"), "incumbent_lock_up"), 0.0);
    lock.set_reachable(true);
    until(&mut changes, |change| matches!(change, Change::LockRecovered)).await;
    assert_eq!(gauge(&exporter.of("app", "c1"), "incumbent_lock_up"), 1.0);

    let leadership = first.won().await.unwrap();
    let second = new_election("app", lock).identity("c2").start().unwrap();
    sees_a_leader(&second).await;
    let token = leadership.token().0 as f64;
    let standby = exporter.of("app", "c2");
    assert_eq!(gauge(&standby, "incumbent_observed_leader_token"), token);
    assert_eq!(gauge(&standby, "incumbent_lock_up"), 1.0);
    let mut changes = second.changes();
    drop(leadership);
    until(&mut changes, |change| matches!(change, Change::Won { .. })).await;
    let observed = gauge(&exporter.of("app", "c2"), "incumbent_observed_leader_token");
    assert!(observed > token, "the term of its own");
}

#[tokio::test]
async fn drains_pauses_and_standings_are_shown() {
    let (snapshotter, _recorder) = record();
    let exporter = Exporter(snapshotter);
    let lock = MemoryLock::with_ttl(LEASE);
    let election = new_election("app", lock).identity("c1").drain(LONG).start().unwrap();
    let mut changes = election.changes();
    let leadership = election.won().await.unwrap();

    election.stand_aside(true);
    until(&mut changes, |change| matches!(change, Change::Readiness(_))).await;
    let aside = exporter.of("app", "c1");
    for (name, value) in [
        ("incumbent_ready", 0.0),
        ("incumbent_standing standing=ready", 0.0),
        ("incumbent_standing standing=aside", 1.0),
        ("incumbent_standing standing=sick", 0.0),
    ] {
        assert_eq!(gauge(&aside, name), value, "{name}");
    }
    election.pause(LONG).await.expect("a roll call");
    let paused = exporter.of("app", "c1");
    assert!(gauge(&paused, "incumbent_paused_until_timestamp_seconds") > 1e9);
    assert_eq!(paused["incumbent_roll_calls_total"], DebugValue::Counter(1));

    leadership.resign();
    until(&mut changes, |change| matches!(change, Change::Draining { .. })).await;
    assert_eq!(gauge(&exporter.of("app", "c1"), "incumbent_draining"), 1.0);
    drop(leadership);
    until(&mut changes, |change| matches!(change, Change::Lost { .. })).await;
    assert_eq!(gauge(&exporter.of("app", "c1"), "incumbent_draining"), 0.0);
}

#[tokio::test]
async fn members_of_a_set_show_their_load_and_requested_moves() {
    let (snapshotter, _recorder) = record();
    let exporter = Exporter(snapshotter);
    let lock = MemoryLock::with_ttl(LEASE / 3); // which members wait for
    let member = |identity: &str| -> Set {
        let set = new_set("work", lock.clone()).shards(4).identity(identity);
        set.settle(Duration::from_millis(100)).start().expect("a member")
    };
    let _first = member("m1");
    exporter.leads("m1", 4.0, 1.0, 0).await;
    let _second = member("m2");
    exporter.leads("m2", 2.0, 2.0, 2).await;
}
