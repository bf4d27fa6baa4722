//! A candidate that prints its events as JSON lines, for programs that measure or attack elections:
//! `{"t": CLOCK_BOOTTIME in ns, "identity", "election", "event": started|won|lost|work|stopped}`.
//!
//! `--count` candidates of an election have a connection each; `--elections` elections share one.
//! SIGTERM and Ctrl-C stop them in order.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use incumbent::clock::{BootClock, Clock};
use incumbent::lock::Lock;
use incumbent::{Backoff, Election, Leadership, nats, new_election};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct Args {
    #[arg(long, default_value = "nats://127.0.0.1:4222")]
    url: String,
    #[arg(long, default_value = "CHORIA_LEADER_ELECTION")]
    bucket: String,
    /// The TTL of a bucket that is made, and the lease, in seconds.
    #[arg(long, default_value_t = 5)]
    ttl: u64,
    #[arg(long, default_value = "my_app")]
    election: String,
    #[arg(long, default_value = "rust")]
    identity: String,
    /// Candidates in each election, each on its own connection.
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Elections, on a shared connection if there are several.
    #[arg(long, default_value_t = 1)]
    elections: u32,
    #[arg(long, value_enum, default_value_t = Policy::None)]
    backoff: Policy,
    /// Milliseconds between work events while leading; 0 for none.
    #[arg(long, default_value_t = 0)]
    tick: u64,
    /// 1 to make the bucket if it is not there.
    #[arg(long, default_value_t = 0)]
    create: u8,
}

#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// The default.
    None,
    Five,
    Twenty,
}

/// Whose events they are.
#[derive(Clone)]
struct Teller {
    identity: Arc<str>,
    election: Arc<str>,
}

impl Teller {
    fn print(&self, event: &str, cause: Option<String>) {
        let mut line = serde_json::json!({
            "t": u64::try_from(BootClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX),
            "identity": &*self.identity,
            "election": &*self.election,
            "event": event,
        });
        if let Some(cause) = cause {
            line["cause"] = cause.into();
        }
        println!("{line}");
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let args = Args::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    let shared = if args.elections > 1 { Some(open(&args).await?) } else { None };
    let mut running: Vec<(Teller, Election)> = Vec::new();
    for number in 0..args.elections {
        for candidate in 0..args.count {
            let several = |name: &str, n: u32, of: u32| {
                if of > 1 { format!("{name}-{n}").into() } else { name.into() }
            };
            let teller = Teller {
                identity: several(&args.identity, candidate, args.count),
                election: several(&args.election, number, args.elections),
            };
            let lock = match &shared {
                Some(lock) => Arc::clone(lock),
                None => open(&args).await?,
            };
            let election = start(&args, lock, teller.clone())?;
            teller.print("started", None);
            running.push((teller, election));
        }
    }
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    let stops = running.into_iter().map(|(teller, election)| async move {
        election.stop().await;
        teller.print("stopped", None);
    });
    futures_util::future::join_all(stops).await;
    Ok(())
}

async fn open(args: &Args) -> Result<Arc<dyn Lock>, Box<dyn Error>> {
    let options =
        async_nats::ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(100));
    let client = options.connect(&args.url).await?;
    let config = nats::BucketConfig::new(&args.bucket).ttl(Duration::from_secs(args.ttl));
    let bucket = if args.create == 1 {
        nats::Bucket::create_or_open(client, config).await?
    } else {
        nats::Bucket::open_with(client, config).await?
    };
    Ok(Arc::new(bucket.lock()))
}

fn start(args: &Args, lock: Arc<dyn Lock>, teller: Teller) -> Result<Election, Box<dyn Error>> {
    let (won, lost) = (teller.clone(), teller.clone());
    let tick = Duration::from_millis(args.tick);
    let builder = new_election(&*teller.election, lock)
        .identity(&*teller.identity)
        .lease(Duration::from_secs(args.ttl))
        .on_won(move |leadership| work(won.clone(), leadership, tick))
        .on_lost(move |loss| {
            lost.print("lost", Some(loss.cause.as_str().to_owned()));
            async {}
        });
    let builder = match args.backoff {
        Policy::None => builder,
        Policy::Five => builder.backoff(Backoff::FIVE_SEC),
        Policy::Twenty => builder.backoff(Backoff::TWENTY_SEC),
    };
    Ok(builder.start()?)
}

/// Prints that it works, at the given interval, while it leads.
async fn work(teller: Teller, leadership: Leadership, tick: Duration) {
    teller.print("won", None);
    if tick.is_zero() {
        leadership.ended().await;
        return;
    }
    let _ = leadership
        .run(async {
            let mut tick = tokio::time::interval(tick);
            while leadership.is_valid() {
                teller.print("work", None);
                tick.tick().await;
            }
        })
        .await;
}
