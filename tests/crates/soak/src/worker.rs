//! One process: a candidate in each of many elections, on one connection.

use std::alloc::System;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cap::Cap;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::lock::Lock;
use incumbent::{Election, Leadership, nats, new_election};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

/// Counts what is in use: unlike the resident memory, it does not grow with fragmentation.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// What a worker is to do.
#[derive(Debug, Clone, clap::Args)]
pub struct Work {
    /// The servers.
    #[arg(long, value_delimiter = ',', required = true)]
    pub urls: Vec<String>,
    #[arg(long)]
    pub identity: String,
    #[arg(long)]
    pub elections: usize,
    /// The TTL of the bucket, in seconds.
    #[arg(long)]
    pub ttl: u64,
}

/// A line of a worker's.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Won {
        election: usize,
        token: u64,
        at: u64,
    },
    Lost {
        election: usize,
        token: u64,
        at: u64,
        cause: String,
    },
    State {
        led: usize,
        tasks: usize,
        fds: usize,
        heap_kib: u64,
        rss_kib: u64,
    },
    /// All elections were stopped, and the connection closed.
    Ended {
        tasks: usize,
        fds: usize,
    },
}

fn send_report(said: &Said) {
    if let Ok(line) = serde_json::to_string(said) {
        println!("{line}");
    }
}

fn nanos(instant: Instant) -> u64 {
    u64::try_from(instant.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

/// How often a worker reports its state.
const REPORT: Duration = Duration::from_secs(2);

/// Campaigns until standard input ends, and reports on standard output.
///
/// # Errors
/// Where no server is reached, or the elections cannot begin.
pub async fn work(work: Work) -> Result<(), Box<dyn std::error::Error>> {
    let led = Arc::new(AtomicUsize::new(0));
    {
        let connection =
            nats::connect(work.urls.as_slice(), async_nats::ConnectOptions::new()).await?;
        let config = nats::BucketConfig::new("SOAK").ttl(Duration::from_secs(work.ttl));
        let bucket = nats::Bucket::create_or_open(connection, config).await?;
        let elections = (0..work.elections)
            .map(|number| start(&work, number, Arc::new(bucket.lock()), &led))
            .collect::<Result<Vec<_>, _>>()?;
        drop(bucket);
        let mut report = tokio::time::interval(REPORT);
        let mut stdin = tokio::io::stdin();
        let mut byte = [0];
        loop {
            tokio::select! {
                _ = report.tick() => send_report(&Said::State {
                    led: led.load(Ordering::Relaxed),
                    tasks: tasks(),
                    fds: fds(),
                    heap_kib: HEAP.allocated() as u64 / 1024,
                    rss_kib: rss_kib(),
                }),
                _ = stdin.read(&mut byte) => break,
            }
        }
        let mut stops = tokio::task::JoinSet::new();
        for election in elections {
            stops.spawn(async move { election.stop().await });
        }
        stops.join_all().await;
    }
    // What a dropped connection leaves behind ends soon, or has leaked.
    for _ in 0..100 {
        if tasks() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    send_report(&Said::Ended { tasks: tasks(), fds: fds() });
    Ok(())
}

fn start(
    work: &Work,
    number: usize,
    lock: Arc<dyn Lock>,
    led: &Arc<AtomicUsize>,
) -> Result<Election, incumbent::StartError> {
    let led = Arc::clone(led);
    new_election(format!("election-{number}"), lock)
        .identity(work.identity.as_str())
        .on_won(move |leadership| lead(number, leadership, Arc::clone(&led)))
        .start()
}

async fn lead(election: usize, leadership: Leadership, led: Arc<AtomicUsize>) {
    led.fetch_add(1, Ordering::Relaxed);
    let token = leadership.token().0;
    send_report(&Said::Won { election, token, at: nanos(BootClock.now()) });
    let cause = leadership.ended().await.cause;
    // The right to lead ends at the deadline, however late the process learns of it.
    let ended = BootClock.now().min(leadership.deadline());
    led.fetch_sub(1, Ordering::Relaxed);
    send_report(&Said::Lost {
        election,
        token,
        at: nanos(ended),
        cause: cause.as_str().to_owned(),
    });
}

/// How many tasks of the runtime have not ended.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

fn fds() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn rss_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
