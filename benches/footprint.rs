//! What one more led election costs a process: memory at the margin, and CPU time a renewal.
//!
//! Leads 1,000 elections, then 5,000 more, on one connection to a real server, each renewed every
//! 1.67 s.

use std::time::Duration;

use incumbent::nats::{Bucket, BucketConfig, NatsLock};
use incumbent::{Election, new_election};
use incumbent_test_support::Server;

const FIRST: usize = 1_000;
const MORE: usize = 5_000;
const TTL: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() {
    let server = Server::start().await;
    let config = BucketConfig::new("BENCH").ttl(TTL);
    let bucket = Bucket::create(server.connect().await, config).await.expect("a bucket");
    let mut elections = Vec::with_capacity(FIRST + MORE);
    lead(&bucket.lock(), FIRST, &mut elections).await;
    let before = resident_kib();
    lead(&bucket.lock(), MORE, &mut elections).await;
    let after = resident_kib();
    let each = (after - before) as f64 / MORE as f64;
    println!("{FIRST} elections: {before} KiB resident; {MORE} more: {after} KiB");
    println!("an election at the margin: {each:.2} KiB");

    let (cpu, window) = (cpu_ticks(), Duration::from_secs(20));
    tokio::time::sleep(window).await;
    let busy = (cpu_ticks() - cpu) as f64 / 100.0;
    let renewals = elections.len() as f64 * window.as_secs_f64() / (TTL.as_secs_f64() / 3.0);
    let leading = elections.iter().filter(|e| e.is_leader()).count();
    println!(
        "{leading} of {} lead after {window:?}; {:.1} % of a core, {:.1} us of CPU time a renewal",
        elections.len(),
        100.0 * busy / window.as_secs_f64(),
        1e6 * busy / renewals,
    );
}

async fn lead(lock: &NatsLock, count: usize, elections: &mut Vec<Election>) {
    let begin = elections.len();
    for number in begin..begin + count {
        let election = new_election(format!("election-{number}"), lock.clone()).identity("bench");
        elections.push(election.start().expect("a start"));
        if number % 200 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    while !elections.iter().all(Election::is_leader) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(TTL).await; // so that each has renewed
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// User and system time of this process, in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<_> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}
