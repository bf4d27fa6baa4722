//! A leader that is suspended between its check and its write, and resumed after its successor has
//! written: the object, to which each write appends a line, shows no late write.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use incumbent::fence::{FenceErrorKind, FencedObject};
use incumbent::lock::Token;
use incumbent::object_storage::Bucket;
use incumbent_test_support::object_stores::Program;
use incumbent_test_support::{
    Worker, eventually, late_write_rounds, worker_orders, worker_says, worker_stops,
};

use crate::env::{Azure, Gcs, Kind, LEASE, S3, TestEnv};
use crate::fence::is_passing;

const PORT: &str = "INCUMBENT_TEST_PORT";
const PREFIX: &str = "INCUMBENT_TEST_PREFIX";
const KIND: &str = "INCUMBENT_TEST_KIND";

async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// A claimed object, and the lines that it has.
struct Log {
    object: FencedObject,
    token: u64,
    lines: String,
}

impl Log {
    /// Claims the object, however often that takes.
    async fn claim(bucket: &Bucket, token: u64) -> Self {
        loop {
            match FencedObject::claim_with_token("my_app", Token(token), bucket, "log").await {
                Ok((object, before)) => {
                    let lines = String::from_utf8(before.to_vec()).expect("lines");
                    return Self { object, token, lines };
                }
                Err(error) if is_passing(&error) => pause().await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Appends a line; false if a later term has claimed the object.
    async fn append(&mut self, number: usize) -> bool {
        let lines = format!("{}{} {number}\n", self.lines, self.token);
        loop {
            match self.object.write(lines.clone()).await {
                Ok(()) => {
                    self.lines = lines;
                    return true;
                }
                Err(error) if is_passing(&error) => pause().await,
                Err(error) => match error.kind() {
                    FenceErrorKind::Stale { greatest } if greatest > Token(self.token) => {
                        return false;
                    }
                    _ => panic!("{error}"),
                },
            }
        }
    }
}

/// The leader of each round: `late TOKEN` has it stop between its check and its write, `storm
/// TOKEN` has it write until it is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by the tests below"]
async fn worker() {
    let Ok(prefix) = std::env::var(PREFIX) else { return };
    let port = std::env::var(PORT).expect("a port").parse().expect("a number");
    let bucket = match &*std::env::var(KIND).expect("a kind") {
        "FakeGcs" => Gcs::bucket(port),
        "Azurite" => Azure::bucket(port),
        _ => S3::bucket(port),
    };
    let bucket = bucket.prefix(prefix);
    let mut orders = worker_orders();
    while let Some(order) = orders.next_line().await.expect("an order") {
        let (mode, token) = order.split_once(' ').expect("a mode and a token");
        let mut log = Log::claim(&bucket, token.parse().expect("a token")).await;
        worker_says("leads");
        let mut stored = 0;
        for number in 0..500 {
            if mode == "late" && number == 2 {
                worker_stops();
            }
            if !log.append(number).await {
                break;
            }
            stored += 1;
        }
        worker_says(stored);
    }
}

/// The object, as it is.
async fn read(bucket: &Bucket) -> (Token, Bytes) {
    eventually("the object", async || match FencedObject::read(bucket, "log").await {
        Err(error) if error.kind() == FenceErrorKind::Unavailable => None,
        found => Some(found.unwrap().unwrap()),
    })
    .await
}

async fn play<K: Kind>(env: &TestEnv<K>, rounds: u64, fault_every: u64) {
    let bucket = env.bucket();
    let environment = [
        (PORT, env.proxy.port().to_string()),
        (PREFIX, env.prefix.clone()),
        (KIND, format!("{:?}", K::PROGRAM)),
    ];
    let mut worker = Worker::start("late_writes::worker", &environment);
    let (mut acknowledged, mut faults, began) = (BTreeSet::new(), 0, Instant::now());
    for round in 0..rounds {
        let (former, token) = (2 * round + 1, 2 * round + 2);
        worker.lead_and_suspend(former, round, Duration::from_millis(10)).await;
        let fault = async {
            if round % fault_every != fault_every - 1 {
                return;
            }
            faults += 1;
            // The others keep nothing.
            if K::PROGRAM == Program::Versitygw && faults % 2 == 0 {
                env.server.kill();
                env.server.restart().await;
            } else {
                env.server.pause();
                tokio::time::sleep(Duration::from_millis(20)).await;
                env.server.resume();
            }
        };
        let succession = async {
            let mut log = Log::claim(&bucket, token).await;
            for number in 0..2 {
                assert!(log.append(number).await, "nobody has claimed it since");
                acknowledged.insert((token, number));
            }
            log.lines
        };
        let ((), lines) = tokio::join!(fault, succession);
        worker.resume();
        let stored: usize = worker.next().await.parse().expect("a number");
        acknowledged.extend((0..stored).map(|number| (former, number)));
        let (greatest, contents) = read(&bucket).await;
        assert_eq!(greatest, Token(token), "a former leader has written");
        assert!(lines.as_bytes() == &*contents, "a former leader has written");
    }

    let took = began.elapsed();
    let (_, contents) = read(&bucket).await;
    let history: Vec<(u64, usize)> = std::str::from_utf8(&contents)
        .expect("lines")
        .lines()
        .map(|line| {
            let (token, number) = line.split_once(' ').expect("two numbers");
            (token.parse().expect("a token"), number.parse().expect("a number"))
        })
        .collect();
    let present: BTreeSet<_> = history.iter().copied().collect();
    let lost: Vec<_> = acknowledged.difference(&present).collect();
    eprintln!(
        "{:?}: {rounds} rounds with {faults} faults in {took:?}: {} writes, {} acknowledged, {} of them lost",
        K::PROGRAM,
        history.len(),
        acknowledged.len(),
        lost.len(),
    );
    assert!(history.is_sorted(), "a former leader has written: {history:?}");
    assert!(lost.is_empty(), "a former leader has written over {lost:?}");
    assert!(acknowledged.len() as u64 >= 4 * rounds / 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn object_of_s3_shows_no_late_write() {
    play(&TestEnv::<S3>::alone(LEASE).await, late_write_rounds(30), 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn object_of_google_shows_no_late_write() {
    play(&TestEnv::<Gcs>::alone(LEASE).await, late_write_rounds(10), 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn object_of_azure_shows_no_late_write() {
    play(&TestEnv::<Azure>::alone(LEASE).await, late_write_rounds(10), 5).await;
}
