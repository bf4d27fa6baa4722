//! One process: a member of the set, which writes down what it works on.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Lock;
use incumbent::sql::{Postgres, TableSetup};
use incumbent::{Leadership, nats, new_set};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::ticks::{TICK, TickLog};

/// How long the work on a shard may take to come to its end.
const DRAIN: Duration = Duration::from_millis(500);

/// What a member is to do.
#[derive(Debug, Clone, clap::Args)]
pub struct Member {
    /// The servers.
    #[arg(long, value_delimiter = ',', required = true)]
    pub urls: Vec<String>,
    #[arg(long)]
    pub identity: String,
    #[arg(long)]
    pub shards: u32,
    /// The lease, in seconds.
    #[arg(long)]
    pub lease: u64,
    /// The file for what it works on.
    #[arg(long)]
    pub ticks: PathBuf,
}

/// Takes part until SIGTERM.
///
/// # Errors
/// Where the lock cannot be opened, or the set cannot begin.
pub async fn be_member(member: Member) -> Result<(), Box<dyn Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let lease = Duration::from_secs(member.lease);
    let ticks = Arc::new(TickLog::open(&member.ticks, &member.identity)?);
    let lost = Arc::clone(&ticks);
    let set = new_set("soak", open(&member.urls, lease).await?)
        .shards(member.shards)
        .identity(member.identity)
        .drain(DRAIN)
        .each(move |_, election| election.lease(lease))
        .on_won(move |shard, leadership| work(Arc::clone(&ticks), shard, leadership))
        .on_lost(move |shard, loss| {
            lost.lost(shard, loss.cause.as_str());
            async {}
        })
        .start()?;
    terminate.recv().await;
    set.stop().await;
    Ok(())
}

async fn work(ticks: Arc<TickLog>, shard: u32, leadership: Leadership) {
    let token = leadership.token().0;
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let work = async {
        while !leadership.is_draining() {
            interval.tick().await;
            ticks.tick(shard, token, || leadership.is_valid());
        }
    };
    let _ = leadership.run(work).await;
}

/// The lock of the set.
async fn open(urls: &[String], lease: Duration) -> Result<Arc<dyn Lock>, Box<dyn Error>> {
    if let Some(url) = urls.first().filter(|url| url.starts_with("postgres:")) {
        let tables = TableSetup::create().max_lease(lease);
        return Ok(Arc::new(Postgres::connect_with(url, tables).await?.lock()));
    }
    // Those that the servers name are not behind this member's proxies.
    let options = nats::connect_options().ignore_discovered_servers();
    let connection = nats::connect(urls, options).await?;
    let config = nats::BucketConfig::new("SETS").ttl(lease);
    Ok(Arc::new(nats::Bucket::create_or_open(connection, config).await?.lock()))
}
