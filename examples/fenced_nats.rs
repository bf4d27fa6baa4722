//! A stream and a bucket that store nothing of a former leader.
//!
//! Needs nats-server 2.11 or later with JetStream:
//!
//! ```text
//! nats-server --jetstream &
//! cargo run --example fenced_nats
//! ```
//!
//! `NATS_URL` is the server, by default `nats://127.0.0.1:4222`.

use std::error::Error;
use std::time::Duration;

use async_nats::jetstream::{self, kv, stream};
use incumbent::fence::{FenceErrorKind, FencedBucket, FencedStream};
use incumbent::nats::{self, Bucket, BucketConfig};
use incumbent::new_election;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let connection = nats::connect(url, nats::connect_options()).await?;
    let js = jetstream::new(connection.client().clone());
    js.get_or_create_stream(stream::Config {
        name: "BILLS".to_owned(),
        subjects: vec!["bills.>".to_owned()],
        ..Default::default()
    })
    .await?;
    if js.get_key_value("BILLING").await.is_err() {
        let config = kv::Config { bucket: "BILLING".to_owned(), ..Default::default() };
        js.create_key_value(config).await?;
    }

    let config = BucketConfig::new("ELECTIONS").ttl(Duration::from_secs(2));
    let lock = Bucket::create_or_open(&connection, config).await?.lock();
    let first = new_election("billing", lock.clone()).identity("host-1").start()?;
    let leadership = first.won().await?;
    let bills = FencedStream::open(&leadership, &connection, "BILLS", "bills.fence").await?;
    let state = FencedBucket::open(&leadership, &connection, "BILLING").await?;
    bills.publish("bills.sent", "bill 1, by host-1").await?;
    state.put("last", "1").await?;

    // A worker of host-1 that was given the token, and is suspended before its next write.
    let token = leadership.token();
    let worker =
        FencedStream::with_token("billing", token, &connection, "BILLS", "bills.fence").await?;

    drop(leadership);
    first.stop().await;
    let second = new_election("billing", lock).identity("host-2").start()?;
    let leadership = second.won().await?;
    let bills = FencedStream::open(&leadership, &connection, "BILLS", "bills.fence").await?;
    let state = FencedBucket::open(&leadership, &connection, "BILLING").await?;
    bills.publish("bills.sent", "bill 2, by host-2").await?;
    state.put("last", "2").await?;

    // The worker continues.
    match worker.publish("bills.sent", "bill 2 again, by host-1").await {
        Ok(_) => return Err("a former leader has written".into()),
        Err(error) if matches!(error.kind(), FenceErrorKind::Stale { .. }) => {
            println!("refused: {error}");
        }
        Err(error) => return Err(error.into()),
    }
    drop(leadership);
    second.stop().await;
    Ok(())
}
