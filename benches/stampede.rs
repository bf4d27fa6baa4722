//! The messages of a thousand standbys while the leader leads, their requests when it stops, the
//! time without a leader, and the answers to a roll call.
//!
//! Each standby has a connection of its own. A plain subscriber to the key counts what is sent to
//! the server, accepted or not. `STANDBYS=5000 QUEUE_GROUPS=8 cargo bench --bench stampede` changes
//! their number, and how they receive hints. With `CSV=FILE` it appends a row of the figures.

#[path = "support/load.rs"]
mod load;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::{Change, Election, new_election};
use incumbent_test_support::Server;
use load::{append_row, number};
use tokio::sync::mpsc;

const BUCKET: &str = "BENCH";
const TAKEOVERS: usize = 10;
const TTL: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() {
    let standbys = number("STANDBYS").unwrap_or(1_000);
    let groups = u8::try_from(number("QUEUE_GROUPS").unwrap_or(0)).expect("few groups");
    let server = Server::start().await;
    let config = BucketConfig::new(BUCKET).ttl(TTL);
    Bucket::create(server.connect().await, config).await.expect("a bucket");
    let (creates, renewals) = count_writes(&server).await;

    let (won, mut wins) = mpsc::unbounded_channel();
    let mut candidates = Vec::with_capacity(standbys + 1);
    for number in 0..=standbys {
        candidates.push(candidate(&server, number, groups, won.clone()).await);
    }
    let mut leader = wins.recv().await.expect("a leader");
    tokio::time::sleep(3 * TTL).await; // until all have heard a few renewals
    let window = 12 * TTL;
    let messages = measure_messages(&server, &renewals, window).await;

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
    let millis = |took: Duration| format!("{:.1}", took.as_secs_f64() * 1e3);
    let row = [standbys, groups.into(), asked[TAKEOVERS / 2], asked[TAKEOVERS - 1]];
    let mut row: Vec<_> = row.iter().map(usize::to_string).collect();
    row.extend([empty[TAKEOVERS / 2], empty[TAKEOVERS - 1]].map(millis));
    row.extend(messages.map(|figure| format!("{figure:.1}")));
    append_row(&row);
    for within in [1, 5] {
        let within = Duration::from_secs(within);
        let found = candidates[leader].roll_call(within).await.expect("a roll call").len();
        println!("answers to a roll call within {within:?}: {found} of {}", standbys + 1);
    }
}

/// What the standbys cost while nothing happens: messages per second into the server and out,
/// deliveries of a renewal, reads per second.
async fn measure_messages(server: &Server, renewals: &AtomicUsize, window: Duration) -> [f64; 4] {
    let messages = async || {
        let varz = server.varz().await;
        ["in_msgs", "out_msgs"].map(|key| varz[key].as_u64().expect("a count"))
    };
    let [into_before, out_before] = messages().await;
    let before = renewals.load(Ordering::SeqCst);
    tokio::time::sleep(window).await;
    let [into, out] = messages().await;
    let (into, out) = (into - into_before, out - out_before);
    let renewals = (renewals.load(Ordering::SeqCst) - before) as u64;
    let reads = into.saturating_sub(renewals);
    // A renewal is acknowledged, and counted by this bench; a read has a response.
    let deliveries = out.saturating_sub(2 * renewals + reads) as f64 / renewals as f64;
    let rate = |count: u64| count as f64 / window.as_secs_f64();
    let [into, out, reads] = [into, out, reads].map(rate);
    println!(
        "messages a second: {into:.1} in, {out:.1} out; {renewals} renewals, each delivered {deliveries:.1} times; {reads:.1} reads a second",
    );
    [into, out, deliveries, reads]
}

async fn candidate(
    server: &Server,
    number: usize,
    groups: u8,
    won: mpsc::UnboundedSender<usize>,
) -> Election {
    let config = BucketConfig::new(BUCKET).queue_groups(groups);
    let bucket = Bucket::open_with(server.connect().await, config).await.expect("the bucket");
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

/// Counts the creates and the renewals that reach the server.
async fn count_writes(server: &Server) -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let client = server.connect().await;
    let mut sent =
        client.subscribe(format!("$KV.{BUCKET}.stampede")).await.expect("a subscription");
    client.flush().await.expect("a flush");
    let creates = Arc::new(AtomicUsize::new(0));
    let renewals = Arc::new(AtomicUsize::new(0));
    let counted = (Arc::clone(&creates), Arc::clone(&renewals));
    tokio::spawn(async move {
        while let Some(message) = sent.next().await {
            let headers = message.headers.unwrap_or_default();
            if headers.get("KV-Operation").is_none() {
                let renews = headers.get("Incumbent-Token").is_some();
                let count = if renews { &counted.1 } else { &counted.0 };
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (creates, renewals)
}
