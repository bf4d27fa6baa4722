//! Plays random operations on a model and on a real lock, and prints what differs.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use incumbent_differential::{Options, Store, run, stores};
use incumbent_test_support::Version;

/// Plays random operations on the model of a lock and on the real one, and prints what differs.
#[derive(Debug, Parser)]
struct Args {
    /// Which lock: nats-2.10.26 and the like, with -r3 for three replicas; postgres, sqlite; gcs,
    /// s3, azure; kubernetes; etcd.
    #[arg(long)]
    store: String,
    /// How many operations at least.
    #[arg(long, default_value_t = 10_000)]
    operations: u64,
    /// What they are drawn from.
    #[arg(long)]
    seed: Option<u64>,
    /// How many elections there are side by side.
    #[arg(long, default_value_t = 100)]
    elections: u64,
    /// How many operations each of them sees between two upheavals.
    #[arg(long, default_value_t = 25)]
    steps: u64,
    /// How many differences are printed.
    #[arg(long, default_value_t = 3)]
    show: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let Some(store) = start(&args.store).await else {
        eprintln!("no store {:?}: see --help", args.store);
        return ExitCode::FAILURE;
    };
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let (operations, elections, steps) = (args.operations, args.elections, args.steps);
    let report = run(store, Options { operations, seed, elections, steps }).await;
    for difference in report.differences.iter().take(args.show) {
        println!("{difference}\n");
    }
    println!(
        "{} seed {seed}: {} operations, {} upheavals, {} elections that differ; an entry was seen {:?} after its life",
        args.store,
        report.operations,
        report.upheavals,
        report.differences.len(),
        report.latest,
    );
    if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn start(store: &str) -> Option<Arc<dyn Store>> {
    match store {
        "postgres" => return Some(Arc::new(stores::Postgres::start().await)),
        "etcd" => return Some(Arc::new(stores::Etcd::start().await)),
        "kubernetes" => return Some(Arc::new(stores::Kubernetes::start().await)),
        "sqlite" => return Some(Arc::new(stores::Sqlite::start().await)),
        _ => {}
    }
    if let Some(objects) = stores::objects::start(store).await {
        return Some(objects);
    }
    let version = store.strip_prefix("nats-")?;
    let (number, replicated) = match version.strip_suffix("-r3") {
        Some(number) => (number, true),
        None => (version, false),
    };
    let version = Version::ALL.into_iter().find(|version| version.number() == number)?;
    Some(Arc::new(stores::Nats::start(version, replicated).await))
}
