//! Processes that take part in many elections on one connection: a worker, whose only work is to
//! lead them, and a member of a set, which works on its shards.

use std::alloc::System;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cap::Cap;
use incumbent::clock::{BootClock, Clock};
use incumbent::lock::Lock;
use incumbent::sql::{Postgres, SqlError, SqlErrorKind, TableSetup};
use incumbent::{Leadership, nats, new_election, new_set};
use incumbent_test_support::{CONNECT_TIMEOUT, repeated};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::record::journal::{Cost, Event, Writer, nanos, now};

/// Counts what is in use: unlike the resident memory, it does not grow with fragmentation.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// How often a worker reports what it takes up.
const REPORT: Duration = Duration::from_secs(2);
/// How often a member works on a shard that it leads.
const TICK: Duration = Duration::from_millis(20);
/// How long the work on a shard may take to come to its end.
const DRAIN: Duration = Duration::from_millis(500);

/// The command line of such a process.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The servers.
    #[arg(long, value_delimiter = ',', required = true)]
    urls: Vec<String>,
    #[arg(long)]
    identity: String,
    /// How many, or how many shards.
    #[arg(long)]
    elections: u32,
    /// The lease and the TTL of the bucket, in seconds.
    #[arg(long)]
    lease: u64,
    #[arg(long)]
    journal: PathBuf,
}

/// Campaigns in each election until SIGTERM.
pub async fn work(options: Options) -> Result<(), Box<dyn Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let journal = Writer::open(&options.journal, &options.identity, 1)?;
    {
        let client = || async_nats::ConnectOptions::new().connection_timeout(CONNECT_TIMEOUT);
        let config = nats::BucketConfig::new("SOAK").ttl(Duration::from_secs(options.lease));
        let bucket = open_bucket(&options.urls, client, config).await?;
        let mut elections = Vec::new();
        for number in 0..options.elections {
            let name = format!("election-{number}");
            let journal = journal.of_election(&name);
            journal.write(Event::Started { ours: true });
            let election = new_election(name, Arc::new(bucket.lock()) as Arc<dyn Lock>)
                .identity(options.identity.as_str())
                .on_won(move |leadership| lead(journal.clone(), leadership));
            elections.push(election.start()?);
        }
        drop(bucket);
        let mut report = tokio::time::interval(REPORT);
        loop {
            tokio::select! {
                _ = report.tick() => journal.write(Event::Cost(cost())),
                _ = terminate.recv() => break,
            }
        }
        let mut stops = tokio::task::JoinSet::new();
        for election in elections {
            stops.spawn(async move { election.stop().await });
        }
        stops.join_all().await;
    }
    // What a dropped connection leaves behind ends soon, or has leaked.
    for _ in 0..1200 {
        if cost().tasks == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    journal.write(Event::Cost(cost()));
    journal.write(Event::Stopped);
    Ok(())
}

async fn lead(journal: Writer, leadership: Leadership) {
    let token = leadership.token().0;
    // A term ends at its deadline, however late the process learns of it.
    let at = || nanos(BootClock.now().min(leadership.deadline()));
    journal.write(Event::Won { token });
    journal.write_at(at(), Event::Work { token });
    let cause = leadership.ended().await.cause;
    journal.write_at(at(), Event::Work { token });
    let (cause, why) = (cause.as_str().to_owned(), cause.to_string());
    journal.write(Event::Lost { token, cause, why });
}

fn cost() -> Cost {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Cost {
        tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64,
        fds: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64,
        heap_kib: HEAP.allocated() as u64 / 1024,
        rss_kib: resident
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or_default(),
    }
}

/// Takes part in the set until SIGTERM.
pub async fn be_member(options: Options) -> Result<(), Box<dyn Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let lease = Duration::from_secs(options.lease);
    let journal = Writer::open(&options.journal, &options.identity, 1)?;
    for shard in 0..options.elections {
        journal.of_election(&shard.to_string()).write(Event::Started { ours: true });
    }
    let lost = journal.clone();
    let work_on = journal.clone();
    let set = new_set("soak", open(&options.urls, lease).await?)
        .shards(options.elections)
        .identity(options.identity)
        .drain(DRAIN)
        .each(move |_, election| election.lease(lease))
        .on_won(move |shard, leadership| {
            let journal = work_on.of_election(&shard.to_string());
            journal.write(Event::Won { token: leadership.token().0 });
            work_until_drained(journal, leadership)
        })
        .on_lost(move |shard, loss| {
            let token = loss.token.0;
            let (cause, why) = (loss.cause.as_str().to_owned(), loss.cause.to_string());
            lost.of_election(&shard.to_string()).write(Event::Lost { token, cause, why });
            async {}
        })
        .start()?;
    terminate.recv().await;
    set.stop().await;
    journal.write(Event::Stopped);
    Ok(())
}

async fn work_until_drained(journal: Writer, leadership: Leadership) {
    let token = leadership.token().0;
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let work = async {
        while !leadership.is_draining() {
            interval.tick().await;
            // Read first: a process that is paused after the check writes the line late.
            let t = now();
            if leadership.is_valid() {
                journal.write_at(t, Event::Work { token });
            }
        }
    };
    let _ = leadership.run(work).await;
}

/// The lock of the set.
async fn open(urls: &[String], lease: Duration) -> Result<Arc<dyn Lock>, Box<dyn Error>> {
    if let Some(url) = urls.first().filter(|url| url.starts_with("postgres:")) {
        let tables = TableSetup::create().max_lease(lease);
        let connect = || Postgres::connect_with(url, tables);
        let is_late = |error: &SqlError| error.kind() == SqlErrorKind::Unavailable;
        return Ok(Arc::new(repeated(connect, is_late).await?.lock()));
    }
    // Those that the servers name are not behind this member's proxies.
    let options =
        || nats::connect_options().ignore_discovered_servers().connection_timeout(CONNECT_TIMEOUT);
    let config = nats::BucketConfig::new("SETS").ttl(lease);
    Ok(Arc::new(open_bucket(urls, options, config).await?.lock()))
}

/// A bucket, once servers that have just been started answer in time.
async fn open_bucket(
    urls: &[String],
    options: impl Fn() -> async_nats::ConnectOptions,
    config: nats::BucketConfig,
) -> Result<nats::Bucket, Box<dyn Error>> {
    let connection = repeated(|| nats::connect(urls, options()), |_| true).await?;
    let open = || nats::Bucket::create_or_open(connection.clone(), config.clone());
    let is_late = |error: &nats::BucketError| error.kind() == nats::BucketErrorKind::Unavailable;
    Ok(repeated(open, is_late).await?)
}
