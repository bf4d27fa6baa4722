//! Whether the sentinel of the process responds.
#![cfg(all(feature = "sentinel", unix))]

use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::new_election;
use incumbent::sentinel::{Sentinel, SentinelReply, VERSION, encode};
use metrics_util::debugging::{DebugValue, Snapshotter};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;

use crate::states::record;

/// Waits until the gauge has this value.
async fn shows(snapshotter: &Snapshotter, value: f64) {
    let shown = || {
        let all = snapshotter.snapshot().into_vec();
        let mut values =
            all.into_iter().filter(|(key, ..)| key.key().name() == "incumbent_sentinel_up");
        values.any(|(.., shown)| shown == DebugValue::Gauge(value.into()))
    };
    let wait = async {
        while !shown() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.expect("it is shown");
}

#[tokio::test]
async fn gauge_shows_whether_the_sentinel_responds() {
    let (snapshotter, _recorder) = record();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let builder = new_election("my_app", MemoryLock::with_ttl(Duration::from_secs(60)));
    let election = builder.sentinel(Sentinel::at(&path)).start().unwrap();
    let _leadership = election.won().await.unwrap();
    shows(&snapshotter, 0.0).await;
    let listener = UnixListener::bind(&path).unwrap();
    let (mut connection, _) = listener.accept().await.unwrap();
    let watching = encode(&SentinelReply::Watching { version: VERSION });
    connection.write_all(&watching).await.unwrap();
    shows(&snapshotter, 1.0).await;
    drop(connection);
    shows(&snapshotter, 0.0).await;
}
