//! The requests of a thousand standbys when the leader stops, the time without a leader, and the
//! answers to a roll call.
//!
//! Each standby has a connection of its own. A plain subscriber to the key counts what is sent to
//! the server, accepted or not. `STANDBYS=5000 cargo bench --bench stampede` changes their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::{Change, Election, new_election};
use incumbent_test_support::Server;
use tokio::sync::mpsc;

const BUCKET: &str = "BENCH";
const TAKEOVERS: usize = 10;
const TTL: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() {
    let standbys = std::env::var("STANDBYS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let server = Server::start().await;
    let config = BucketConfig::new(BUCKET).ttl(TTL);
    Bucket::create(server.connect().await, config).await.expect("a bucket");
    let creates = count_creates(&server).await;

    let (won, mut wins) = mpsc::unbounded_channel();
    let mut candidates = Vec::with_capacity(standbys + 1);
    for number in 0..=standbys {
        candidates.push(candidate(&server, number, won.clone()).await);
    }
    let mut leader = wins.recv().await.expect("a leader");
    tokio::time::sleep(3 * TTL).await; // until all have heard a few renewals

    let (mut asked, mut empty) = (Vec::new(), Vec::new());
    for _ in 0..TAKEOVERS {
        creates.store(0, Ordering::SeqCst);
        let mut changes = candidates[leader].changes();
        let begin = Instant::now();
        candidates[leader].resign();
        leader = wins.recv().await.expect("a leader");
        empty.push(begin.elapsed());
        while !matches!(changes.next().await, Some(Change::Lost { .. })) {}
        tokio::time::sleep(TTL).await; // late creates count, and hearing settles
        asked.push(creates.load(Ordering::SeqCst));
    }
    asked.sort_unstable();
    empty.sort_unstable();
    println!(
        "{standbys} standbys, {TAKEOVERS} takeovers after a release: creates sent {asked:?}, median {}",
        asked[TAKEOVERS / 2]
    );
    println!(
        "from resigning to the next leader's work: median {:?}, max {:?}",
        empty[TAKEOVERS / 2],
        empty[TAKEOVERS - 1]
    );
    for within in [1, 5] {
        let within = Duration::from_secs(within);
        let found = candidates[leader].roll_call(within).await.expect("a roll call").len();
        println!("answers to a roll call within {within:?}: {found} of {}", standbys + 1);
    }
}

async fn candidate(server: &Server, number: usize, won: mpsc::UnboundedSender<usize>) -> Election {
    let bucket = Bucket::open(server.connect().await, BUCKET).await.expect("the bucket");
    new_election("stampede", bucket.lock())
        .identity(format!("c{number}"))
        .on_won(move |leadership| {
            let won = won.clone();
            async move {
                let _ = won.send(number);
                leadership.ended().await;
            }
        })
        .start()
        .expect("a start")
}

/// Counts the creates that reach the server.
async fn count_creates(server: &Server) -> Arc<AtomicUsize> {
    let client = server.connect().await;
    let mut sent =
        client.subscribe(format!("$KV.{BUCKET}.stampede")).await.expect("a subscription");
    client.flush().await.expect("a flush");
    let creates = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&creates);
    tokio::spawn(async move {
        while let Some(message) = sent.next().await {
            let headers = message.headers.unwrap_or_default();
            let renewal = headers.get("Incumbent-Token").is_some();
            if !renewal && headers.get("KV-Operation").is_none() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    creates
}
