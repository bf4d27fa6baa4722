//! What an exporter sees of a candidate or a member that has ended, while its process continues.
//!
//! Each test looks once, as the recorder sets what it has reported to 0.

use std::collections::HashMap;
use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::{Change, ShardChange, new_election, new_set};
use metrics_util::debugging::DebugValue;

use crate::seen::{gauge, seen};
use crate::states::{record, sees_a_leader, until};

/// Longer than a busy machine stands still.
const LEASE: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_secs(60);

fn shows_nothing_to_alert_on(seen: &HashMap<String, DebugValue>) {
    let expected = [
        ("incumbent_leader", 0.0),
        ("incumbent_lock_up", 1.0),
        ("incumbent_observed_leader_token", 0.0),
        ("incumbent_ready", 0.0),
        ("incumbent_standing standing=ready", 0.0),
        ("incumbent_standing standing=aside", 0.0),
        ("incumbent_standing standing=sick", 0.0),
    ];
    assert_eq!(expected.map(|(name, _)| (name, gauge(seen, name))), expected);
}

#[tokio::test]
async fn a_candidate_that_has_stopped_shows_nothing_to_alert_on() {
    let (snapshotter, _recorder) = record();
    let lock = MemoryLock::with_ttl(LEASE);
    let leader = new_election("app", lock.clone()).identity("c1").start().unwrap();
    let _leadership = leader.won().await.unwrap();
    let standby = new_election("app", lock.clone()).identity("c2").start().unwrap();
    sees_a_leader(&standby).await;
    let mut changes = standby.changes();
    standby.stand_aside(true);
    until(&mut changes, |change| matches!(change, Change::Readiness(_))).await;
    standby.pause(LONG).await.expect("a roll call");
    let mut status = standby.watch();
    while status.next().await.expect("it takes part").paused_until_unix_ms.is_none() {}
    lock.set_reachable(false);
    until(&mut changes, |change| matches!(change, Change::LockFailing(_))).await;
    standby.stop().await;
    let stopped = seen(&snapshotter, "app", "c2");
    shows_nothing_to_alert_on(&stopped);
    assert_eq!(gauge(&stopped, "incumbent_paused_until_timestamp_seconds"), 0.0);
    assert!(!stopped.contains_key("incumbent_draining"), "it never drained");
}

#[test]
fn a_leader_whose_runtime_is_gone_shows_nothing_to_alert_on() {
    let (snapshotter, _recorder) = record();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let leadership = runtime.block_on(async {
        let lock = MemoryLock::with_ttl(LEASE);
        let election =
            new_election("app", lock).identity("c1").stand_aside(true).drain(LONG).start().unwrap();
        let leadership = election.won().await.unwrap();
        let mut changes = election.changes();
        leadership.resign();
        until(&mut changes, |change| matches!(change, Change::Draining { .. })).await;
        std::mem::forget(election);
        leadership
    });
    drop(runtime);
    let gone = seen(&snapshotter, "app", "c1");
    shows_nothing_to_alert_on(&gone);
    assert_eq!(gauge(&gone, "incumbent_draining"), 0.0);
    assert!(!leadership.is_valid());
}

#[tokio::test]
async fn a_stopped_member_leads_nothing_and_counts_in_no_imbalance() {
    let (snapshotter, _recorder) = record();
    let set = new_set("work", MemoryLock::with_ttl(LEASE / 3)).shards(2).identity("m1");
    let (set, mut changes) = set.start_with_changes().expect("a member");
    while set.shards().len() < 2 {
        assert!(!matches!(changes.next().await, None | Some(ShardChange::Missed(_))));
    }
    set.stop().await;
    let stopped = seen(&snapshotter, "work", "m1");
    let expected = ["load", "weight", "shards", "members"].map(|name| (name, 0.0));
    let of_set = |name: &str| gauge(&stopped, &format!("incumbent_set_{name}"));
    assert_eq!(expected.map(|(name, _)| (name, of_set(name))), expected);
}
