//! `election evict`.

use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, timeout_at};

use crate::elections::Elections;
use crate::elections::Feed;
use crate::elections::{ElectionStatus, Holder, LeaderStatus, shown};
use crate::error::{CliError, Code};
use crate::lock_args::LockArgs;
use crate::text;
use crate::{output, prompt, time_format};

/// How often a leader may renew between our look and the eviction.
const ATTEMPTS: usize = 50;

/// How long to wait for a successor where nothing tells how long a lease is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Take the status from whoever leads, and tell who took over and how long it took.
///
/// Fails, with exit code 1, where no other candidate took over in time; the leader is evicted all the same.
///
/// Only the leader that was asked about is evicted: not one that has taken over meanwhile. With NATS its entry is deleted.
/// With Kubernetes its holder is emptied, and whoever takes over waits out a lease before it acts; a leader of client-go
/// takes the status back. With --kind for-life the lock is deleted: whoever takes over does not wait until the pod has stopped, and
/// the pod may be the next one, so delete the pod instead where you can.
#[derive(Args)]
pub struct Evict {
    /// The election; with Kubernetes its object.
    name: String,
    /// Do not ask.
    #[arg(short, long)]
    force: bool,
    /// How long to wait for a successor; 0s: not at all, which is no failure then [default: twice the bucket's TTL, or twice the holder's lease].
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
}

impl Evict {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let name = self.name.as_str();
        let elections = Elections::open(lock, Some(name)).await?;
        let nobody = || CliError::new(Code::NotFound, format!("election {name}: no leader"));
        let status = elections.read(name).await?.ok_or_else(nobody)?;
        let holder = status.holder().cloned().ok_or_else(nobody)?;
        let question = match &holder.pod {
            None => format!("Evict {}, who leads {name}", shown(&holder)),
            Some(_) => format!(
                "Delete the lock of {}, who leads {name}, and may still be at work when the next one begins",
                shown(&holder)
            ),
        };
        prompt::confirm(&question, self.force)?;
        let mut feed = Feed::open(&elections, Some(name)).await?;
        let doing = format!("eviction from {name}");
        let evicted = evict(&elections, status, &holder, &doing).await?;
        output::line(format!("evicted {} from {}", shown(&holder), text::printable(name)))?;

        let longest = elections.longest_wait(&holder).map(|span| span.saturating_mul(2));
        let wait = self.wait.or(longest).unwrap_or(PATIENCE);
        if wait.is_zero() {
            return Ok(());
        }
        let start = Instant::now();
        while let Ok(event) = timeout_at(time_format::after(start, wait), feed.next()).await {
            let event = event?;
            if let LeaderStatus::Held(next) = &event.now
                && event.revision > evicted
            {
                let took = time_format::span(start.elapsed());
                let token = next.token.map(|token| format!(" with token {token}"));
                let token = token.unwrap_or_default();
                return output::line(format!("{} leads after {took}{token}", shown(next)));
            }
        }
        let message = format!(
            "{doing}: no other candidate took over within {}; the election has no leader: see `election info {}`, and --wait",
            time_format::span(wait),
            text::printable(name)
        );
        Err(CliError::new(Code::Failed, message))
    }
}

/// Evicts this holder, however often it renews meanwhile, and answers a revision before those of its successors.
async fn evict(
    elections: &Elections<'_>,
    mut status: ElectionStatus,
    holder: &Holder,
    doing: &str,
) -> Result<u64, CliError> {
    for _ in 0..ATTEMPTS {
        if let Some(revision) = elections.evict(&status, doing).await? {
            return Ok(revision);
        }
        status = match elections.read(&status.election).await? {
            Some(now) if now.holder().is_some_and(|now| now.is_same_term(holder)) => now,
            Some(ElectionStatus { state: LeaderStatus::Held(now), .. }) => {
                let message = format!("{doing}: {} has taken over meanwhile", now.leader);
                return Err(CliError::new(Code::Failed, message));
            }
            _ => {
                let message = format!("{doing}: {} has left by itself", holder.leader);
                return Err(CliError::new(Code::NotFound, message));
            }
        };
    }
    Err(CliError::new(Code::Failed, format!("{doing}: the status changes all the time; try again")))
}
