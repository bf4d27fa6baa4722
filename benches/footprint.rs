//! What one more election costs a process that leads it, or stands by: memory at the margin, CPU
//! time a renewal, and how renewals are spread.
//!
//! Leads 1,000 elections, then 5,000 more, on one connection to a real server, each renewed every
//! 1.67 s. Then stands by in 1,000 of them, then in the others, as another candidate on a
//! connection of its own in the same process. `ELECTIONS=99000 LEASE=60 cargo bench --bench
//! footprint` leads 99,000 more, with a lease of 60 s, and has no standbys. With `MINUTES=10` it
//! then restarts the server in the middle of that many minutes, and reports the terms that ended.

#[path = "support/load.rs"]
mod load;

use std::time::{Duration, Instant};

use async_nats::Client;
use futures_util::StreamExt;
use incumbent::nats::{Bucket, BucketConfig, NatsLock};
use incumbent::{Election, new_election};
use incumbent_test_support::Server;
use load::{cpu_ticks, least_left, number, resident_kib};

const FIRST: usize = 1_000;
const MORE: usize = 5_000;
/// In which the most renewals are counted.
const WINDOW: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() {
    let more = number("ELECTIONS").unwrap_or(MORE);
    let ttl = Duration::from_secs(number("LEASE").unwrap_or(5) as u64);
    let server = Server::start().await;
    let config = BucketConfig::new("BENCH").ttl(ttl);
    let bucket = Bucket::create(server.connect().await, config).await.expect("a bucket");
    let mut elections = Vec::with_capacity(FIRST + more);
    let leads = Election::is_leader;
    start(&bucket.lock(), "bench", FIRST, &mut elections, leads, ttl).await;
    let before = resident_kib();
    start(&bucket.lock(), "bench", more, &mut elections, leads, ttl).await;
    report("led", before, more);
    measure_renewals(&elections, ttl).await;
    measure_spread(server.connect().await, ttl).await;
    if let Some(minutes) = number("MINUTES") {
        restart_server(&server, &elections, Duration::from_secs(60 * minutes as u64)).await;
    }
    if more > MORE {
        return;
    }

    let bucket = Bucket::open(server.connect().await, "BENCH").await.expect("a bucket");
    let mut standbys = Vec::with_capacity(FIRST + MORE);
    let stands_by = |election: &Election| election.leader().is_some();
    start(&bucket.lock(), "standby", FIRST, &mut standbys, stands_by, ttl).await;
    let before = resident_kib();
    start(&bucket.lock(), "standby", more, &mut standbys, stands_by, ttl).await;
    report("standby", before, more);
    let leading = elections.iter().filter(|e| e.is_leader()).count();
    println!("{leading} of {} lead at the end", elections.len());
}

async fn measure_renewals(elections: &[Election], ttl: Duration) {
    let (cpu, window) = (cpu_ticks(), Duration::from_secs(20));
    tokio::time::sleep(window).await;
    let busy = (cpu_ticks() - cpu) as f64 / 100.0;
    let renewals = elections.len() as f64 * window.as_secs_f64() / (ttl.as_secs_f64() / 3.0);
    let leading = elections.iter().filter(|e| e.is_leader()).count();
    println!(
        "{leading} of {} lead after {window:?}; {:.1} % of a core, {:.1} us of CPU time a renewal",
        elections.len(),
        100.0 * busy / window.as_secs_f64(),
        1e6 * busy / renewals,
    );
}

/// Restarts the server in the middle of `span`, and counts the terms that end.
async fn restart_server(server: &Server, elections: &[Election], span: Duration) {
    let tokens: Vec<_> = elections.iter().map(Election::token).collect();
    tokio::time::sleep(span / 2).await;
    let begin = Instant::now();
    server.restart().await;
    let away = begin.elapsed();
    let least = least_left(elections, (span / 2).saturating_sub(away)).await;
    let ended = elections.iter().zip(tokens).filter(|(now, before)| now.token() != *before);
    println!(
        "{} terms of {} ended in {span:?} with a restart of the server, which took {away:.1?}; least time to a deadline {least:.1?}; {} KiB resident",
        ended.count(),
        elections.len(),
        resident_kib(),
    );
}

/// Counts the renewals in each window of two leases, by the server's clock.
async fn measure_spread(client: Client, ttl: Duration) {
    let mut stored = client.subscribe("incumbent.BENCH.>").await.expect("a subscription");
    let mut times = Vec::new();
    let listen = async {
        while let Some(message) = stored.next().await {
            let headers = message.headers.expect("headers of a republished message");
            times.push(time_of_day(headers.get("Nats-Time-Stamp").expect("a time").as_str()));
        }
    };
    let _ = tokio::time::timeout(2 * ttl, listen).await;
    times.sort_unstable();
    let in_window = |begin: usize| {
        let end = times[begin] + WINDOW;
        times[begin..].iter().take_while(|time| **time < end).count()
    };
    let most = (0..times.len()).map(in_window).max().expect("renewals");
    let span = *times.last().expect("renewals") - times[0];
    let mean = times.len() as f64 * WINDOW.as_secs_f64() / span.as_secs_f64();
    println!(
        "{} renewals in {span:?}: {most} in the busiest {WINDOW:?}, {:.2} times the mean of {mean:.1}",
        times.len(),
        most as f64 / mean,
    );
}

/// Since midnight, of a time as `2026-01-31T12:34:56.789Z`.
fn time_of_day(text: &str) -> Duration {
    let (_, time) = text.trim_end_matches('Z').split_once('T').expect("a time");
    let part = |part: &str| part.parse::<f64>().expect("a number");
    let mut parts = time.split(':').map(part);
    let mut next = || parts.next().expect("hours, minutes and seconds");
    Duration::from_secs_f64(next() * 3600.0 + next() * 60.0 + next())
}

async fn start(
    lock: &NatsLock,
    identity: &str,
    count: usize,
    elections: &mut Vec<Election>,
    ready: impl Fn(&Election) -> bool,
    ttl: Duration,
) {
    let begin = elections.len();
    for number in begin..begin + count {
        let election = new_election(format!("election-{number}"), lock.clone()).identity(identity);
        elections.push(election.start().expect("a start"));
        if number % 200 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    while !elections.iter().all(&ready) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(ttl).await; // so that each has renewed, or heard of a renewal
}

/// `before`: with the first thousand.
fn report(kind: &str, before: usize, more: usize) {
    let after = resident_kib();
    let each = (after - before) as f64 / more as f64;
    println!("{FIRST} {kind}: {before} KiB resident; {more} more: {after} KiB");
    println!("a {kind} election at the margin: {each:.2} KiB");
}
