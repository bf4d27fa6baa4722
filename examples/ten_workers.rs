//! Ten workers, one of which leads: it logs a line each second. When it goes, another takes over.
//!
//! ```text
//! cargo run --example ten_workers                               # in process
//! cargo run --example ten_workers -- --url nats://127.0.0.1     # on a NATS server with JetStream
//! cargo run --example ten_workers --features sqlite -- --file elections.db
//! ```
//! With `--workers 1 --first 4` a process is the fourth worker alone, so that ten processes make
//! the ten.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Parser;
use incumbent::lock::Lock;
use incumbent::memory::MemoryLock;
use incumbent::{Leadership, nats, new_election};

#[derive(Parser)]
struct Args {
    /// The NATS server; without it the workers share a lock in process.
    #[arg(long)]
    url: Option<String>,
    /// A SQLite file that the workers share, made if it is not there.
    #[cfg(feature = "sqlite")]
    #[arg(long, conflicts_with = "url")]
    file: Option<std::path::PathBuf>,
    /// The bucket, made if it is not there.
    #[arg(long, default_value = "CHORIA_LEADER_ELECTION")]
    bucket: String,
    /// The TTL of a bucket that is made, and the lease, in seconds.
    #[arg(long, default_value_t = 5)]
    ttl: u64,
    /// How many workers this process is.
    #[arg(long, default_value_t = 10)]
    workers: u32,
    /// The number of the first of them.
    #[arg(long, default_value_t = 1)]
    first: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let ttl = Duration::from_secs(args.ttl);
    #[cfg(feature = "sqlite")]
    let file = match &args.file {
        Some(file) => {
            let tables = incumbent::sql::TableSetup::create().max_lease(ttl);
            Some(Arc::new(incumbent::sql::Sqlite::open_with(file, tables).await?.lock()))
        }
        None => None,
    };
    #[cfg(not(feature = "sqlite"))]
    let file: Option<Arc<MemoryLock>> = None;
    let lock: Arc<dyn Lock> = match (&args.url, file) {
        (_, Some(file)) => file,
        (Some(url), None) => {
            let client = nats::connect(url, nats::connect_options()).await?;
            let config = nats::BucketConfig::new(&args.bucket).ttl(ttl);
            Arc::new(nats::Bucket::create_or_open(client, config).await?.lock())
        }
        (None, None) => Arc::new(MemoryLock::with_ttl(ttl)),
    };

    let mut workers = Vec::new();
    for number in args.first..args.first + args.workers {
        let identity = format!("worker-{number}");
        let (won, lost) = (identity.clone(), identity.clone());
        let election = new_election("ten_workers", Arc::clone(&lock))
            .identity(identity)
            .on_won(move |leadership| work(won.clone(), leadership))
            .on_lost(move |loss| {
                log(&lost, &format!("leads no more: {}", loss.cause));
                async {}
            })
            .start()?;
        workers.push(election);
    }

    shutdown().await?;
    for worker in &workers {
        worker.stop().await;
    }
    Ok(())
}

/// The work of the leader: one line per second, until it is stopped.
async fn work(identity: String, leadership: Leadership) {
    log(&identity, &format!("leads, with token {}", leadership.token()));
    let _ = leadership
        .run(async {
            let mut second = tokio::time::interval(Duration::from_secs(1));
            second.tick().await;
            loop {
                second.tick().await;
                log(&identity, "is at work");
            }
        })
        .await;
    log(&identity, "stops its work");
}

fn log(identity: &str, what: &str) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (now.as_secs() % 86_400, now.subsec_millis());
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    println!("{hour:02}:{minute:02}:{second:02}.{millis:03} {identity} {what}");
}

/// Waits for Ctrl-C or SIGTERM.
async fn shutdown() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
