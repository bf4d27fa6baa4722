//! What an exporter of the metrics facade sees of an election.
#![cfg(feature = "metrics")]

use std::collections::HashMap;
use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::{Change, new_election};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Metrics by name and labels (but for election and identity, which are checked here).
fn seen(snapshotter: &Snapshotter) -> HashMap<String, DebugValue> {
    let metrics = snapshotter.snapshot().into_vec().into_iter();
    metrics
        .map(|(key, _, _, value)| {
            let (mut name, mut common) = (key.key().name().to_owned(), 0);
            for label in key.key().labels() {
                match (label.key(), label.value()) {
                    ("election", "my_app") | ("identity", "c1") => common += 1,
                    (label, value) => name += &format!(" {label}={value}"),
                }
            }
            assert_eq!(common, 2, "{name} has the labels election and identity");
            (name, value)
        })
        .collect()
}

#[tokio::test]
async fn an_election_records_what_the_docs_list() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("the only recorder of this process");
    let lock = MemoryLock::with_ttl(Duration::from_secs(1));
    let election = new_election("my_app", lock.clone()).identity("c1").start().unwrap();
    let leadership = election.won().await.unwrap();
    let deadline = leadership.deadline();
    while leadership.deadline() == deadline {
        tokio::task::yield_now().await; // until it has renewed
    }
    let leading = seen(&snapshotter);
    assert_eq!(leading["incumbent_leader"], DebugValue::Gauge(1.0.into()));
    assert_eq!(leading["incumbent_terms_total"], DebugValue::Counter(1));
    for name in [
        "incumbent_campaigns_total state=candidate",
        "incumbent_campaigns_total state=leader",
        "incumbent_renewal_seconds",
        "incumbent_last_renewal_timestamp_seconds",
        "incumbent_takeover_seconds",
    ] {
        assert!(leading.contains_key(name), "{name} of {:?}", leading.keys());
    }

    let mut changes = election.changes();
    lock.evict("my_app");
    drop(leadership);
    while !matches!(changes.next().await, Some(Change::Lost { .. })) {}
    let out = seen(&snapshotter);
    assert_eq!(out["incumbent_leader"], DebugValue::Gauge(0.0.into()));
    assert_eq!(out["incumbent_losses_total cause=evicted"], DebugValue::Counter(1));
}
