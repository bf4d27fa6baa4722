//! A leader that is suspended between its check and its write, and resumed after its successor has
//! written: the stream's own history shows no late write.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Config;
use async_nats::{Client, ConnectOptions, jetstream};
use incumbent::fence::{FenceErrorKind, FencedStream};
use incumbent::lock::Token;
use incumbent_test_support::{Cluster, Server, Worker, worker_orders, worker_says, worker_stops};

use crate::fence::{STREAM, history, open};

const URLS: &str = "INCUMBENT_TEST_URLS";

/// How many rounds: `INCUMBENT_LATE_WRITES` for more.
fn rounds(usual: u64) -> u64 {
    std::env::var("INCUMBENT_LATE_WRITES").map_or(usual, |n| n.parse().expect("a number"))
}

async fn connect(urls: &[String]) -> Client {
    ConnectOptions::new()
        .reconnect_delay_callback(|_| Duration::from_millis(20))
        .connect(urls)
        .await
        .expect("a connection")
}

/// Fences, however often that takes.
async fn claim(client: &Client, token: u64) -> FencedStream {
    loop {
        match open(client, token).await {
            Ok(stream) => return stream,
            Err(error) if error.kind() == FenceErrorKind::Unavailable => pause().await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// The leader of each round: `late TOKEN` has it stop between its check and its write, `storm
/// TOKEN` has it write until it is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by the tests below"]
async fn worker() {
    let Ok(urls) = std::env::var(URLS) else { return };
    let urls: Vec<_> = urls.split(',').map(str::to_owned).collect();
    let client = connect(&urls).await;
    let mut orders = worker_orders();
    while let Some(order) = orders.next_line().await.expect("an order") {
        let (mode, token) = order.split_once(' ').expect("a mode and a token");
        let token: u64 = token.parse().expect("a token");
        let stream = claim(&client, token).await;
        worker_says("leads");
        let (mut stored, mut late) = (BTreeSet::new(), mode == "late");
        for number in 0..1_000 {
            if late && number == 3 {
                worker_stops();
                late = false;
            }
            match stream.publish("orders.new", format!("{token} {number}")).await {
                Ok(sequence) => assert!(stored.insert(sequence)),
                Err(error) => match error.kind() {
                    FenceErrorKind::Stale { greatest } if greatest > Token(token) => break,
                    FenceErrorKind::OutcomeUnknown | FenceErrorKind::Unavailable => pause().await,
                    _ => panic!("{error}"),
                },
            }
        }
        let stored: Vec<_> = stored.iter().map(u64::to_string).collect();
        worker_says(stored.join(" "));
    }
}

/// A server, or three.
trait Servers {
    fn urls(&self) -> Vec<String>;
    /// Kills, pauses or restarts one.
    async fn fault(&self, round: u64);
}

impl Servers for Server {
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }

    async fn fault(&self, round: u64) {
        match round % 3 {
            0 => {
                self.kill();
                self.start_again().await;
            }
            1 => self.restart().await,
            _ => {
                self.pause();
                pause().await;
                self.resume();
            }
        }
    }
}

impl Servers for Cluster {
    fn urls(&self) -> Vec<String> {
        self.urls()
    }

    /// Of the one that leads the stream.
    async fn fault(&self, round: u64) {
        let leader = self.server(self.await_stream_leader(STREAM).await);
        match round % 3 {
            0 => {
                leader.kill();
                leader.start_again().await;
            }
            1 => leader.restart().await,
            _ => {
                // Long enough for another to lead: it awakes as a former leader itself.
                leader.pause();
                tokio::time::sleep(Duration::from_secs(10)).await;
                leader.resume();
            }
        }
    }
}

async fn play(servers: impl Servers, replicas: usize, rounds: u64, fault_every: u64) {
    let client = connect(&servers.urls()).await;
    let config = Config {
        name: STREAM.to_owned(),
        subjects: vec!["orders.>".to_owned()],
        num_replicas: replicas,
        ..Config::default()
    };
    jetstream::new(client.clone()).create_stream(config).await.expect("a stream");
    let environment = [(URLS, servers.urls().join(","))];
    let mut worker = Worker::start("late_writes::worker", &environment);
    let (mut acknowledged, mut faults, began) = (BTreeSet::new(), 0, Instant::now());
    for round in 0..rounds {
        let (former, token) = (2 * round + 1, 2 * round + 2);
        let late = round % 2 == 0;
        worker.order(&format!("{} {former}", if late { "late" } else { "storm" })).await;
        assert_eq!(worker.next().await, "leads");
        if late {
            worker.stopped().await;
        } else {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(..3_000))).await;
            worker.pause().await;
        }
        let is_faulty = round % fault_every == fault_every - 1;
        // Before the successor comes, or while it writes.
        let fault = async {
            if is_faulty {
                faults += 1;
                servers.fault(faults).await;
            }
        };
        let succession = async {
            let stream = claim(&client, token).await;
            let mut stored = Vec::new();
            while stored.len() < 2 {
                let text = format!("{token} {}", stored.len());
                match stream.publish("orders.new", text).await {
                    Ok(sequence) => stored.push(sequence),
                    Err(error) => match error.kind() {
                        FenceErrorKind::OutcomeUnknown | FenceErrorKind::Unavailable => {
                            pause().await;
                        }
                        _ => panic!("{error}"),
                    },
                }
            }
            stored
        };
        let ((), stored) = tokio::join!(fault, succession);
        acknowledged.extend(stored);
        worker.resume();
        let said = worker.next().await;
        acknowledged.extend(said.split_whitespace().map(|n| n.parse::<u64>().expect("a number")));
    }

    let took = began.elapsed();
    let history = history(&client).await;
    let token = |text: &str| -> u64 {
        text.split(' ').next().and_then(|token| token.parse().ok()).expect("a token")
    };
    let mut greatest = 0;
    let late: Vec<_> = history
        .iter()
        .filter(|(_, text)| {
            greatest = greatest.max(token(text));
            token(text) < greatest
        })
        .collect();
    let fences = history.iter().filter(|(subject, _)| subject == "orders.fence").count();
    eprintln!(
        "{rounds} rounds with {faults} faults in {took:?}: {} messages, {fences} of them fences, {} acknowledged, {} late",
        history.len(),
        acknowledged.len(),
        late.len(),
    );
    assert!(late.is_empty(), "a former leader has written: {late:?}");
    assert_eq!(fences as u64, 2 * rounds, "one fence a term");
    assert!(history.len() - fences >= acknowledged.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_stores_no_late_write() {
    play(Server::start().await, 1, rounds(30), 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_store_no_late_write() {
    let rounds = rounds(10);
    // A fault takes seconds here.
    play(Cluster::start().await, 3, rounds, (rounds / 40).max(5)).await;
}
