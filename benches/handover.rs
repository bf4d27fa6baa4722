//! Handovers among five candidates, one after the other, while a thread keeps a core busy: how long
//! nobody works, and whether two ever work at once. Lease 5 s, on NATS, PostgreSQL and a Lease.
//!
//! Each candidate has connections of its own. `HANDOVERS=1000 cargo bench --bench handover` changes
//! their number.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use incumbent::kubernetes::{Cluster, LeaseTiming};
use incumbent::lock::Lock;
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::sql::{Postgres, TableSetup};
use incumbent::{Election, new_election};
use incumbent_test_support::{KubeServer, PostgresServer, Server};
use tokio::sync::mpsc;

const LEASE: Duration = Duration::from_secs(5);
const CANDIDATES: usize = 5;
const BUCKET: &str = "BENCH";
const DATABASE: &str = "elections";

#[tokio::main]
async fn main() {
    let handovers = std::env::var("HANDOVERS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let busy = Busy::begin();

    let server = Server::start().await;
    let config = BucketConfig::new(BUCKET).ttl(LEASE);
    Bucket::create(server.connect().await, config).await.expect("a bucket");
    let lock = async || {
        let bucket = Bucket::open(server.connect().await, BUCKET).await.expect("the bucket");
        Arc::new(bucket.lock()) as Arc<dyn Lock>
    };
    measure("NATS", handovers, lock).await;

    let server = PostgresServer::start(&[]).await;
    server.sql("postgres", &["CREATE DATABASE elections"]);
    let lock = async || {
        let tables = TableSetup::create().max_lease(LEASE);
        let database = Postgres::connect_with(&server.url(DATABASE), tables).await;
        Arc::new(database.expect("a database").lock()) as Arc<dyn Lock>
    };
    measure("PostgreSQL", handovers, lock).await;

    let server = KubeServer::start(&[]).await;
    let timing = LeaseTiming::new(LEASE, LEASE * 4 / 5, LEASE / 5).expect("client-go's checks");
    let lock = async || {
        let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await.expect("a cluster");
        Arc::new(cluster.lease_lock().timing(timing)) as Arc<dyn Lock>
    };
    measure("Lease", handovers, lock).await;
    busy.end();
}

/// What the work of all candidates notes.
#[derive(Default)]
struct Work {
    running: AtomicUsize,
    overlaps: AtomicUsize,
    stopped: Mutex<Option<Instant>>,
}

impl Work {
    /// Returns how long nobody worked.
    fn begins(&self) -> Option<Duration> {
        if self.running.fetch_add(1, Ordering::SeqCst) > 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        Some(self.stopped.lock().expect("no panic").take()?.elapsed())
    }

    fn ends(&self) {
        *self.stopped.lock().expect("no panic") = Some(Instant::now());
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn measure(place: &str, handovers: usize, lock: impl AsyncFn() -> Arc<dyn Lock>) {
    let work = Arc::new(Work::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let mut candidates = Vec::new();
    for number in 0..CANDIDATES {
        candidates.push(candidate(lock().await, number, &work, won.clone()));
    }
    let (mut leader, _) = wins.recv().await.expect("a leader");
    while candidates[leader].roll_call(LEASE / 5).await.expect("a roll call").len() < CANDIDATES {}

    let (mut gaps, mut elsewhere, mut refused) = (Vec::new(), 0, 0);
    while gaps.len() < handovers {
        let to = (leader + 1) % CANDIDATES;
        if let Err(error) = candidates[leader].hand_over(format!("c{to}").as_str()).await {
            eprintln!("{place}: {error}");
            refused += 1;
            continue;
        }
        let (next, gap) = wins.recv().await.expect("a leader");
        gaps.push(gap.expect("somebody worked before"));
        elsewhere += usize::from(next != to);
        leader = next;
    }
    gaps.sort_unstable();
    let [min, median, most, max] =
        [0, gaps.len() / 2, gaps.len() * 99 / 100, gaps.len() - 1].map(|i| gaps[i]);
    println!(
        "{place}: {handovers} handovers, {} overlaps, {elsewhere} to another candidate, {refused} refused; \
         nobody worked for {min:.1?} / {median:.1?} / {most:.1?} / {max:.1?} (min, median, 99 %, max)",
        work.overlaps.load(Ordering::SeqCst)
    );
    for candidate in candidates {
        candidate.stop().await;
    }
}

fn candidate(
    lock: Arc<dyn Lock>,
    number: usize,
    work: &Arc<Work>,
    won: mpsc::UnboundedSender<(usize, Option<Duration>)>,
) -> Election {
    let work = Arc::clone(work);
    let builder = new_election("handover", lock).identity(format!("c{number}")).lease(LEASE);
    let builder = builder.on_won(move |leadership| {
        let (work, won) = (Arc::clone(&work), won.clone());
        async move {
            let gap = work.begins();
            let _ = won.send((number, gap));
            leadership.ended().await;
            work.ends();
        }
    });
    builder.start().expect("a start")
}

/// A thread that keeps a core busy.
struct Busy(Arc<AtomicBool>, thread::JoinHandle<()>);

impl Busy {
    fn begin() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let spin = move || {
            while !until.load(Ordering::Relaxed) {
                black_box((0..1_000_u64).sum::<u64>());
            }
        };
        Self(ends, thread::spawn(spin))
    }

    fn end(self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.join().expect("no panic");
    }
}
