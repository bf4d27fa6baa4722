//! What a process that leads more and more elections costs, and its server: memory, CPU time and
//! messages, until renewals are late.
//!
//! Reports the least time that any election had to its deadline: two thirds of the lease where no
//! renewal is late. It stops once that is less than a third. `ELECTIONS=1000,10000` and `LEASE=60`
//! (seconds) set the steps, `REPLICAS=3` uses a cluster of three servers, `BUCKETS=4` spreads the
//! elections over as many buckets, each on a connection of its own. With `CSV=FILE` it appends a
//! row for each step. Servers and candidates share the machine.

#[path = "support/load.rs"]
mod load;

use std::time::Duration;

use async_nats::Client;
use incumbent::nats::{Bucket, BucketConfig, NatsLock};
use incumbent::{Election, new_election};
use incumbent_test_support::{Cluster, Server};
use load::{append_row, cpu_ticks, least_left, number, resident_kib};

/// Elections at each step.
const STEPS: &str = "2000,4000,8000,16000,32000,64000";
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

    /// The messages into all of them and out, and their CPU time now, in percent of a core.
    async fn load(&self) -> [f64; 3] {
        let mut sums = [0.0; 3];
        for server in self.all() {
            let varz = server.varz().await;
            for (sum, key) in sums.iter_mut().zip(["in_msgs", "out_msgs", "cpu"]) {
                *sum += varz[key].as_f64().expect("a number");
            }
        }
        sums
    }
}

#[tokio::main]
async fn main() {
    let (replicas, buckets) = (number("REPLICAS").unwrap_or(1), number("BUCKETS").unwrap_or(1));
    let lease = Duration::from_secs(number("LEASE").unwrap_or(6) as u64);
    let steps = std::env::var("ELECTIONS").unwrap_or_else(|_| STEPS.to_owned());
    let servers = match replicas {
        1 => Servers::One(Server::start().await),
        _ => Servers::Three(Box::new(Cluster::start().await)),
    };
    let mut locks = Vec::new();
    for bucket in 0..buckets {
        let config = BucketConfig::new(format!("BENCH-{bucket}")).ttl(lease).replicas(replicas);
        let bucket = Bucket::create(servers.connect().await, config).await;
        locks.push(bucket.expect("a bucket").lock());
    }
    println!("{replicas} replicas, {buckets} buckets, lease {lease:?}, {WINDOW:?} for each step");
    let mut elections = Vec::new();
    for count in steps.split(',').map(|text| text.parse().expect("a number of elections")) {
        let started = start(&locks, &mut elections, count, lease);
        if tokio::time::timeout(10 * lease, started).await.is_err() {
            let leading = elections.iter().filter(|election| election.is_leader()).count();
            println!("{count} elections: {leading} lead after {:?}", 10 * lease);
            break;
        }
        let load = measure(&servers, &elections, lease).await;
        println!("{load}");
        append_row(
            &[
                &[replicas, buckets, lease.as_secs() as usize].map(|n| n.to_string())[..],
                &load.cells(),
            ]
            .concat(),
        );
        if load.least < 1.0 / 3.0 {
            break;
        }
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

/// What the elections cost.
struct Load {
    elections: usize,
    resident_kib: usize,
    /// Of a core, in percent.
    candidate_cpu: f64,
    server_cpu: f64,
    /// Per second.
    into_servers: f64,
    out_of_servers: f64,
    /// The least time to a deadline, as a part of the lease.
    least: f64,
    lost: usize,
    renewals: f64,
}

impl Load {
    fn cells(&self) -> Vec<String> {
        let per_renewal = 1e4 * self.candidate_cpu / self.renewals;
        vec![
            self.elections.to_string(),
            format!("{:.0}", self.renewals),
            format!("{:.1}", self.resident_kib as f64 / 1024.0),
            format!("{:.1}", self.candidate_cpu),
            format!("{per_renewal:.1}"),
            format!("{:.1}", self.server_cpu),
            format!("{:.0}", self.into_servers),
            format!("{:.0}", self.out_of_servers),
            format!("{:.0}", 100.0 * self.least),
            self.lost.to_string(),
        ]
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cells = self.cells();
        let [elections, renewals, mib, cpu, us, server, into, out, least, lost] = &cells[..] else {
            unreachable!("ten cells");
        };
        write!(
            f,
            "{elections} elections, {renewals} renewals/s: {mib} MiB, {cpu} % of a core, {us} us a renewal; servers: {server} % of a core, {into} messages/s in, {out} out; least time to a deadline {least} % of the lease, {lost} terms lost"
        )
    }
}

async fn measure(servers: &Servers, elections: &[Election], lease: Duration) -> Load {
    let tokens: Vec<_> = elections.iter().map(Election::token).collect();
    let ([into, out, _], cpu) = (servers.load().await, cpu_ticks());
    tokio::time::sleep(WINDOW).await;
    let [into_after, out_after, server_cpu] = servers.load().await;
    let cpu = cpu_ticks() - cpu;
    let least = least_left(elections, WINDOW).await; // looking at each of them takes CPU time, too
    let lost = elections.iter().zip(tokens).filter(|(now, before)| now.token() != *before).count();
    let seconds = WINDOW.as_secs_f64();
    Load {
        elections: elections.len(),
        resident_kib: resident_kib(),
        candidate_cpu: cpu as f64 / seconds,
        server_cpu,
        into_servers: (into_after - into) / seconds,
        out_of_servers: (out_after - out) / seconds,
        least: least.as_secs_f64() / lease.as_secs_f64(),
        lost,
        renewals: elections.len() as f64 * 3.0 / lease.as_secs_f64(),
    }
}
