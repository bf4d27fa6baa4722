//! A leader that is suspended between its check and its write, and resumed after its successor has
//! written: the stream's own history shows no late write.

use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Config;
use async_nats::{Client, ConnectOptions};
use incumbent::fence::{FenceErrorKind, FencedStream};
use incumbent::lock::Token;
use incumbent_test_support::{
    Cluster, Server, Worker, connected, late_write_rounds, worker_orders, worker_says, worker_stops,
};

use crate::fence::{STREAM, claim, create, history};

const URLS: &str = "INCUMBENT_TEST_URLS";

async fn connect(urls: &[String]) -> Client {
    let options = || ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(20));
    connected(|| options().connect(urls)).await
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
        // Without a fence it would be refused nothing.
        let (before, after) = if mode == "late" { (3, 1_000) } else { (1_000, 0) };
        let mut stored = publish(&stream, token, before).await;
        if after > 0 {
            worker_stops();
            stored += publish(&stream, token, after).await;
        }
        worker_says(stored);
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
    create(&client, config).await;
    let environment = [(URLS, servers.urls().join(","))];
    let mut worker = Worker::start("late_writes::worker", &environment);
    let (mut acknowledged, mut faults, began) = (0, 0, Instant::now());
    for round in 0..rounds {
        let (former, token) = (2 * round + 1, 2 * round + 2);
        worker.lead_and_suspend(former, round, Duration::from_millis(3)).await;
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
            publish(&stream, token, 2).await
        };
        let ((), stored) = tokio::join!(fault, succession);
        worker.resume();
        let said = worker.next().await;
        acknowledged += stored + said.parse::<usize>().expect("a number");
    }
    let what = format!("{rounds} rounds with {faults} faults in {:?}", began.elapsed());
    judge(&client, &what, 2 * rounds, acknowledged).await;
}

/// Reads the stream's own history.
async fn judge(client: &Client, what: &str, terms: u64, acknowledged: usize) {
    let history = history(client).await;
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
        "{what}: {} messages, {fences} of them fences, {acknowledged} acknowledged, {} late",
        history.len(),
        late.len(),
    );
    assert!(late.is_empty(), "a former leader has written: {late:?}");
    assert_eq!(fences as u64, terms, "one fence a term");
    assert!(history.len() - fences >= acknowledged);
}

/// Publishes so often, or until it is refused, and returns how many were acknowledged.
async fn publish(stream: &FencedStream, token: u64, most: usize) -> usize {
    let mut stored = 0;
    while stored < most {
        match stream.publish("orders.new", format!("{token} {stored}")).await {
            Ok(_) => stored += 1,
            Err(error) => match error.kind() {
                FenceErrorKind::Stale { greatest } if greatest > Token(token) => break,
                FenceErrorKind::OutcomeUnknown | FenceErrorKind::Unavailable => pause().await,
                _ => panic!("{error}"),
            },
        }
    }
    stored
}

/// A former leader that is not suspended at all, and continues to write while its successor fences
/// and the stream is given another leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_streams_store_no_late_write() {
    let cluster = Cluster::start().await;
    let client = connect(&cluster.urls()).await;
    let config = Config {
        name: STREAM.to_owned(),
        subjects: vec!["orders.>".to_owned()],
        num_replicas: 3,
        ..Config::default()
    };
    create(&client, config).await;
    let (rounds, began, mut acknowledged) = (late_write_rounds(4), Instant::now(), 0);
    let beside = connect(&cluster.urls()).await;
    for round in 0..rounds {
        let token = 2 * round + 1;
        let former = claim(&beside, token).await;
        let storm = tokio::spawn(async move { publish(&former, token, usize::MAX).await });
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..50))).await;
        let step_down = format!("$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}");
        let succession = async {
            let stream = claim(&client, token + 1).await;
            publish(&stream, token + 1, 2).await
        };
        let (_, stored) = tokio::join!(client.request(step_down, "".into()), succession);
        acknowledged += stored + storm.await.expect("no panic");
    }
    let what = format!("{rounds} moves in {:?}", began.elapsed());
    judge(&client, &what, 2 * rounds, acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_stores_no_late_write() {
    play(Server::start().await, 1, late_write_rounds(30), 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_store_no_late_write() {
    let rounds = late_write_rounds(10);
    // A fault takes seconds here.
    play(Cluster::start().await, 3, rounds, (rounds / 40).max(5)).await;
}
