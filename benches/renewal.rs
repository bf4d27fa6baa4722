//! A renewal beside a raw conditional publish of the client library, on the same server and
//! connection, in turn.
//!
//! Prints the medians and the ratio of each pair's medians over several rounds, so that a drift of
//! the machine hits both alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream;
use incumbent::lock::{Lock, Mark, MoveInfo, Nonce, Revision, Token, Write, WriteId};
use incumbent::nats::{Bucket, BucketConfig};
use incumbent_test_support::Server;

const ROUNDS: usize = 20;
const WRITES: u64 = 500;
const BUCKET: &str = "BENCH";

#[tokio::main]
async fn main() {
    let server = Server::start().await;
    let client = server.connect().await;
    let bucket = Bucket::create(client.clone(), BucketConfig::new(BUCKET)).await.expect("a bucket");
    let mut raw = Raw { js: jetstream::new(client), last: 0 };
    let mut ours = Ours { lock: Arc::new(bucket.lock()), last: None, number: 0 };
    raw.write().await;
    ours.write().await;

    let (mut raws, mut renewals, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..WRITES {
            let begin = Instant::now();
            raw.write().await;
            a.push(begin.elapsed());
            let begin = Instant::now();
            ours.write().await;
            b.push(begin.elapsed());
        }
        let (a, b) = (median(a), median(b));
        ratios.push(b.as_secs_f64() / a.as_secs_f64());
        raws.push(a);
        renewals.push(b);
    }
    ratios.sort_by(f64::total_cmp);
    println!("raw conditional publish: median {:?}", median(raws));
    println!("renewal:                 median {:?}", median(renewals));
    println!(
        "renewal / raw: median {:.3}, {:.3} to {:.3} over {ROUNDS} rounds of {WRITES} pairs",
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1],
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

struct Raw {
    js: jetstream::Context,
    last: u64,
}

impl Raw {
    async fn write(&mut self) {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", self.last.to_string());
        headers.insert("Nats-TTL", "60");
        let subject = format!("$KV.{BUCKET}.raw");
        let ack = self.js.publish_with_headers(subject, headers, "c1.example.net".into());
        self.last = ack.await.expect("a publish").await.expect("an acknowledgement").sequence;
    }
}

struct Ours {
    lock: Arc<dyn Lock>,
    last: Option<Revision>,
    number: u64,
}

impl Ours {
    async fn write(&mut self) {
        self.number += 1;
        let lease = Duration::from_secs(60);
        let write = Write {
            expected: self.last,
            identity: "c1.example.net".into(),
            mark: Mark {
                write: WriteId { nonce: Nonce(1), number: self.number },
                lease,
                token: self.last.map(|last| Token(last.0)),
                since_unix_ms: 1,
                moves: Box::new(MoveInfo::default()),
            },
            ttl: lease,
            advertisement: None,
            timeout: Duration::from_secs(5),
        };
        self.last = Some(self.lock.write("ours", write).await.expect("a renewal"));
    }
}
