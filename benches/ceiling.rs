//! How many renewals per second a server stores in one bucket until they are late, and whether
//! several buckets hold more.
//!
//! One process leads more and more elections, on eight connections, and reports the least time
//! that any of them had to its deadline: two thirds of the lease where no renewal is late. It
//! stops once that is less than a third. `REPLICAS=3` uses a cluster of three servers, `BUCKETS=4`
//! spreads the elections over as many buckets, `LEASE=6` (seconds) and `FIRST=2000` (elections,
//! doubled at each step) change the steps. Servers and candidates share the machine.

use std::time::{Duration, Instant};

use async_nats::Client;
use incumbent::clock::{BootClock, Clock};
use incumbent::nats::{Bucket, BucketConfig, NatsLock};
use incumbent::{Election, new_election};
use incumbent_test_support::{Cluster, Server};

const MOST: usize = 200_000;
const WINDOW: Duration = Duration::from_secs(20);

enum Servers {
    One(Server),
    Three(Box<Cluster>),
}

impl Servers {
    async fn connect(&self) -> Client {
        match self {
            Self::One(server) => server.connect().await,
            Self::Three(cluster) => cluster.connect().await,
        }
    }

    fn all(&self) -> &[Server] {
        match self {
            Self::One(server) => std::slice::from_ref(server),
            Self::Three(cluster) => cluster.servers(),
        }
    }

    /// Percent of a core.
    async fn cpu(&self) -> f64 {
        let mut sum = 0.0;
        for server in self.all() {
            sum += server.varz().await["cpu"].as_f64().expect("a share of a core");
        }
        sum
    }
}

#[tokio::main]
async fn main() {
    let number = |name, default| {
        std::env::var(name).map_or(default, |text| text.parse::<usize>().expect("a number"))
    };
    let (replicas, buckets) = (number("REPLICAS", 1), number("BUCKETS", 1));
    let lease = Duration::from_secs(number("LEASE", 6) as u64);
    let servers = match replicas {
        1 => Servers::One(Server::start().await),
        _ => Servers::Three(Box::new(Cluster::start().await)),
    };
    let mut locks = Vec::new();
    for connection in 0..number("CONNECTIONS", 1).max(buckets) {
        let name = format!("BENCH-{}", connection % buckets);
        let config = BucketConfig::new(name).ttl(lease).replicas(replicas);
        let bucket = Bucket::create_or_open(servers.connect().await, config).await;
        locks.push(bucket.expect("a bucket").lock());
    }

    println!(
        "{replicas} replicas, {buckets} buckets, a lease of {lease:?}, {WINDOW:?} for each step"
    );
    let mut elections = Vec::new();
    let mut count = number("FIRST", 2_000);
    while count <= MOST {
        start(&locks, &mut elections, count, lease).await;
        let least = measure(&servers, &elections, lease).await;
        if least < 1.0 / 3.0 {
            break;
        }
        count *= 2;
    }
}

/// Starts elections a few at a time, until there are `count` that have renewed.
async fn start(locks: &[NatsLock], elections: &mut Vec<Election>, count: usize, lease: Duration) {
    for number in elections.len()..count {
        let lock = locks[number % locks.len()].clone();
        let election = new_election(format!("election-{number}"), lock).identity("bench");
        elections.push(election.start().expect("a start"));
        if number % 200 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    while !elections.iter().all(Election::is_leader) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(lease).await;
}

/// Returns the least time to a deadline, of the lease.
async fn measure(servers: &Servers, elections: &[Election], lease: Duration) -> f64 {
    let tokens: Vec<_> = elections.iter().map(Election::token).collect();
    let (begin, cpu) = (Instant::now(), cpu_ticks());
    let mut least = lease;
    while begin.elapsed() < WINDOW {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = BootClock.now();
        let left = |election: &Election| {
            election.deadline().map_or(Duration::ZERO, |at| at.saturating_since(now))
        };
        least = elections.iter().map(left).min().unwrap_or_default().min(least);
    }
    let busy = (cpu_ticks() - cpu) as f64 / begin.elapsed().as_secs_f64();
    let lost = elections.iter().zip(tokens).filter(|(now, before)| now.token() != *before).count();
    let least = least.as_secs_f64() / lease.as_secs_f64();
    println!(
        "{} elections, {:.0} renewals per second: least time to a deadline {:.0} % of the lease, {lost} terms lost; CPU of candidates {busy:.0} %, of servers {:.0} %",
        elections.len(),
        elections.len() as f64 * 3.0 / lease.as_secs_f64(),
        100.0 * least,
        servers.cpu().await,
    );
    least
}

/// User and system time of this process, in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<_> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}
