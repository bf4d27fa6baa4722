//! The figures of docs/benchmarks.md on clusters, leaf nodes and gateways.

use std::time::Instant;

use incumbent_test_support::{Cluster, Gateways, LeafNode};

use super::*;

/// How many candidates each server has.
const EACH: usize = 12;
const ROUNDS: usize = 10;
const CRASHES: usize = 5;
const CUTS: usize = 3;
const WINDOW: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(5);

/// A server, its name in the output, and how its clients reach the bucket.
type Place<'a> = (&'a str, &'a Server, BucketConfig);

fn short() -> BucketConfig {
    config().ttl(LEASE)
}

/// Candidates on each server, of which one leads.
struct Fleet<'a> {
    places: Vec<Place<'a>>,
    candidates: Vec<Candidate>,
}

impl<'a> Fleet<'a> {
    async fn start(places: Vec<Place<'a>>) -> Self {
        let mut candidates = Vec::new();
        for number in 0..EACH * places.len() {
            let (_, server, config) = &places[number % places.len()];
            candidates.push(Candidate::start(server, config, &format!("c{number}")).await);
        }
        let fleet = Self { places, candidates };
        fleet.leader(None).await;
        tokio::time::sleep(3 * LEASE).await; // until all have received a few renewals
        fleet
    }

    /// Which one leads; after a loss, which other one.
    async fn leader(&self, former: Option<usize>) -> usize {
        loop {
            let others = self.candidates.iter().enumerate();
            let mut others = others.filter(|(number, _)| Some(*number) != former);
            if let Some((number, _)) = others.find(|(_, it)| it.election.is_leader()) {
                return number;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Messages per second into and out of each server.
    async fn messages(&self) {
        let mut before = Vec::new();
        for (_, server, _) in &self.places {
            before.push(counts(server).await);
        }
        tokio::time::sleep(WINDOW).await;
        for ((name, server, _), before) in self.places.iter().zip(before) {
            let after = counts(server).await;
            let rate = |index: usize| (after[index] - before[index]) / WINDOW.as_secs_f64();
            println!("  {name}: {:.1} in, {:.1} out", rate(0), rate(1));
        }
    }

    /// Times from a release to the next leader's right to lead.
    async fn releases(&self) {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let leader = self.leader(None).await;
            let begin = Instant::now();
            self.candidates[leader].election.resign();
            self.leader(Some(leader)).await;
            times.push(begin.elapsed());
            tokio::time::sleep(LEASE / 2).await;
        }
        report("after a release", times);
    }

    async fn crashes(&mut self) {
        let mut times = Vec::new();
        for _ in 0..CRASHES {
            let leader = self.leader(None).await;
            let begin = Instant::now();
            self.candidates[leader].crash();
            self.leader(Some(leader)).await;
            times.push(begin.elapsed());
            self.candidates.remove(leader);
            tokio::time::sleep(LEASE / 2).await;
        }
        report("after a crash", times);
    }

    /// Cuts the link of the last place, with the leader there.
    async fn cuts(&self, link: &Link) {
        let places = self.places.len();
        let far = |number: usize| number % places == places - 1;
        let (mut stopped, mut replaced) = (Vec::new(), Vec::new());
        for _ in 0..CUTS {
            let leader = loop {
                let leader = self.leader(None).await;
                if far(leader) {
                    break leader;
                }
                self.candidates[leader].election.resign();
                self.leader(Some(leader)).await;
                tokio::time::sleep(LEASE / 2).await;
            };
            tokio::time::sleep(LEASE).await;
            let begin = Instant::now();
            link.cut();
            let former = &self.candidates[leader].election;
            while former.is_leader() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            stopped.push(begin.elapsed());
            self.leader(Some(leader)).await;
            replaced.push(begin.elapsed());
            link.restore();
            let begin = Instant::now();
            while former.lock_failure().is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            println!("  it stands by again {:?} after the link's return", begin.elapsed());
        }
        report("the leader beyond a cut link stops", stopped);
        report("another leads", replaced);
    }
}

async fn counts(server: &Server) -> [f64; 2] {
    let varz = server.varz().await;
    ["in_msgs", "out_msgs"].map(|key| varz[key].as_f64().expect("a count"))
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!("  {what}: median {:?}, longest {:?}", times[times.len() / 2], times[times.len() - 1]);
}

async fn measure(name: &str, places: Vec<Place<'_>>, link: Option<&Link>) {
    println!("## {name}: {EACH} candidates on each of {} servers", places.len());
    let mut fleet = Fleet::start(places).await;
    fleet.messages().await;
    fleet.releases().await;
    if let Some(link) = link {
        fleet.cuts(link).await;
    }
    fleet.crashes().await;
}

#[ignore = "prints figures, in minutes"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server() {
    let server = Server::start().await;
    Bucket::create(server.connect().await, short()).await.expect("a bucket");
    measure("one server", vec![("server", &server, short())], None).await;
}

#[ignore = "prints figures, in minutes"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers() {
    let cluster = Cluster::start().await;
    Bucket::create(cluster.connect().await, short()).await.expect("a bucket");
    let places: Vec<_> = cluster.servers().iter().map(|it| ("server", it, short())).collect();
    measure("three servers", places, None).await;
}

#[ignore = "prints figures, in minutes"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_and_leaf_node() {
    let servers = LeafNode::start(Server::builder().without_jetstream()).await;
    Bucket::create(servers.hub().connect().await, short()).await.expect("a bucket");
    let leaf = ("leaf", servers.leaf(), short().domain("hub"));
    let places = vec![("hub", servers.hub(), short()), leaf];
    measure("a hub and a leaf node", places, Some(servers.link())).await;
}

#[ignore = "prints figures, in minutes"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters() {
    let clusters = Gateways::start(1).await;
    Bucket::create(clusters.east().connect().await, short()).await.expect("a bucket");
    let mut places: Vec<_> =
        clusters.east().servers().iter().map(|it| ("east", it, short())).collect();
    places.push(("west", &clusters.west()[0], short()));
    measure("two clusters", places, Some(clusters.link())).await;
}

/// How long writes fail after the death of the stream's leader.
#[ignore = "prints figures, in minutes"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_of_a_stream() {
    let cluster = Cluster::start().await;
    Bucket::create(cluster.connect().await, short()).await.expect("a bucket");
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let leading = cluster.await_stream_leader("KV_CHORIA_LEADER_ELECTION").await;
        let client = connect(cluster.server((leading + 1) % 3).url()).await;
        let begin = Instant::now();
        cluster.server(leading).kill();
        loop {
            let write = client.request(format!("$KV.{BUCKET}.my_app"), "other".into());
            let wait = Duration::from_millis(250);
            if let Ok(Ok(answer)) = tokio::time::timeout(wait, write).await
                && String::from_utf8_lossy(&answer.payload).contains("\"seq\"")
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        times.push(begin.elapsed());
        cluster.start_again().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    println!("## the death of the leader of a stream with three replicas");
    report("no write is stored", times);
}
