//! What an exporter of the metrics facade sees of an election.
#![cfg(feature = "metrics")]

mod seen;

use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::{Change, new_election};
use metrics_util::debugging::DebuggingRecorder;

use seen::{seen, shows_a_leader, shows_a_loss};

#[tokio::test]
async fn an_election_records_what_the_docs_list() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("the only recorder of this process");
    let lock = MemoryLock::with_ttl(Duration::from_secs(1));
    let election = new_election("my_app", lock.clone()).identity("c1").start().unwrap();
    let leadership = election.won().await.unwrap();
    leadership.renewed(leadership.deadline()).await.unwrap();
    shows_a_leader(&seen(&snapshotter, "my_app", "c1"));

    let mut changes = election.changes();
    lock.evict("my_app");
    drop(leadership);
    while !matches!(changes.next().await, Some(Change::Lost { .. })) {}
    shows_a_loss(&seen(&snapshotter, "my_app", "c1"), "evicted");
}
