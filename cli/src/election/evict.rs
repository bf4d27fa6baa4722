//! `election evict`.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::Instant;

use super::successor::{DEFAULT_WAIT, next_holder};
use crate::console::model::Feed;
use crate::error::{CliError, Code};
use crate::lock::LockArgs;
use crate::lock::elections::{Elections, Holder, shown, with_token};
use crate::output::text;
use crate::output::{self, confirm, time_format};
use crate::output::{Format, Printing};

/// Evict the leader, and report the next holder and when it acquired the entry.
///
/// Fails with exit code 1 if no other candidate takes over in time; the leader is evicted
/// nevertheless.
///
/// Only the leader that was read first is evicted, not a later one. Its entry is released in its
/// place: the successor waits for its lease before it acts, or until the leader says that its work
/// has stopped. With --kind for-life the lock is deleted: the successor does not wait until the pod
/// has stopped, and may be the same pod, so delete the pod instead where you can.
#[derive(Args)]
pub struct Evict {
    /// The election; with Kubernetes its object.
    name: String,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    force: bool,
    /// How long to wait for a successor; 0s: do not wait, and do not fail [default: twice the
    /// bucket's TTL, or twice the holder's lease].
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    printing: Printing,
}

impl Evict {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let name = self.name.as_str();
        let elections = Elections::open(lock, Some(name)).await?;
        let (status, holder) = elections.read_led(name).await?;
        let question = match &holder.pod {
            None => format!("Evict {}, who leads {name}", shown(&holder)),
            Some(_) => format!(
                "Delete the lock of {}, who leads {name}, and may still work when the successor starts",
                shown(&holder)
            ),
        };
        confirm(&question, self.force)?;
        let mut feed = Feed::open(&elections, std::slice::from_ref(&self.name)).await?;
        let evicted = elections.evict_term(status, &holder).await?;
        let is_json = self.printing.output == Format::Json;
        if !is_json {
            output::line(format!("evicted {} from {}", shown(&holder), text::printable(name)))?;
        }
        let print_json = |next: Option<(&Holder, Duration)>| {
            output::json(&json!({
                "election": name,
                "evicted": holder.identity,
                "evicted_token": holder.token,
                "holder": next.map(|(next, _)| &next.identity),
                "token": next.and_then(|(next, _)| next.token),
                "took_ms": next.map(|(_, took)| time_format::millis(took)),
            }))
        };
        let max_wait = elections.max_wait(&holder).map(|span| span.saturating_mul(2));
        let wait = self.wait.or(max_wait).unwrap_or(DEFAULT_WAIT);
        if wait.is_zero() {
            return if is_json { print_json(None) } else { Ok(()) };
        }
        let start = Instant::now();
        let end = time_format::after(start, wait);
        let is_next = |_: &Holder, revision| revision > evicted;
        if let Some(next) = next_holder(&mut feed, Some(end), wait, is_next).await? {
            if is_json {
                return print_json(Some((&next, start.elapsed())));
            }
            let (took, token) = (start.elapsed(), with_token(next.token));
            let took = time_format::span(took);
            return output::line(format!("{} holds the entry after {took}{token}", shown(&next)));
        }
        if is_json {
            print_json(None)?;
        }
        let message = format!(
            "eviction from {name}: no successor within {}, the election has no leader: see `election info {}` and --wait",
            time_format::span(wait),
            text::printable(name)
        );
        Err(CliError::new(Code::Failed, message))
    }
}
