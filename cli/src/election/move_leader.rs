//! `election move`.

use std::time::Duration;

use clap::Args;
use incumbent::lock::Successor;
use serde_json::json;
use tokio::time::Instant;

use super::successor::{DEFAULT_WAIT, next_holder};
use crate::console::model::Feed;
use crate::error::{CliError, Code};
use crate::lock::LockArgs;
use crate::lock::elections::{Elections, Handover, Holder, shown, with_token};
use crate::output::text::printable;
use crate::output::{self, time_format};
use crate::output::{Format, Printing};

/// Move the leadership to another candidate, and report how long it took.
///
/// The leader hands over to a candidate that is ready, with the highest priority among several: its
/// work drains, if it has a drain, and stops; then the successor leads within milliseconds, and all
/// others wait for it. The leader refuses if no candidate is ready, and continues to lead: exit
/// code 1. A leader of another program, or of an older version, does not answer: evict it.
#[derive(Args)]
pub struct Move {
    /// The election.
    name: String,
    /// Move it to the candidate with this identity, also if it stands aside.
    #[arg(long, value_name = "IDENTITY", conflicts_with = "to_site")]
    to: Option<String>,
    /// Move it to a candidate at this site.
    #[arg(long, value_name = "SITE")]
    to_site: Option<String>,
    /// How long to wait until the successor leads; 0s: do not wait, and do not fail [default: until
    /// the work has drained, and then for twice the lease].
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    printing: Printing,
}

impl Move {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let name = self.name.as_str();
        let elections = Elections::open(lock, Some(name)).await?;
        let (_, holder) = elections.read_led(name).await?;
        let mut feed = Feed::open(&elections, std::slice::from_ref(&self.name)).await?;
        let successor = match (&self.to, &self.to_site) {
            (Some(identity), _) => Successor::Identity(identity.as_str().into()),
            (None, Some(site)) => Successor::Site(site.as_str().into()),
            (None, None) => Successor::Any,
        };
        let begun = Instant::now();
        let handover = elections.hand_over(name, &holder, successor).await?;
        if self.printing.output == Format::Text {
            output::line(format!("handing over to {}", output::bold(printable(&handover.to))))?;
        }
        let after = elections.max_wait(&holder).map(|span| span.saturating_mul(2));
        self.follow(&mut feed, &handover, begun, after.unwrap_or(DEFAULT_WAIT)).await
    }

    /// Waits until the successor leads. `after`: for this long once there is no leader.
    async fn follow(
        &self,
        feed: &mut Feed<'_>,
        handover: &Handover,
        begun: Instant,
        after: Duration,
    ) -> Result<(), CliError> {
        if self.wait == Some(Duration::ZERO) {
            return self.print(None, handover, begun);
        }
        let end = self.wait.map(|wait| time_format::after(begun, wait));
        let is_next = |next: &Holder, _| !handover.is_from(next);
        if let Some(next) = next_holder(feed, end, after, is_next).await? {
            return self.report(&next, handover, begun);
        }
        self.print(None, handover, begun)?;
        let waited = time_format::span(begun.elapsed());
        let why = format!("no successor within {waited}: see `election info` and --wait");
        Err(CliError::new(Code::Failed, self.failure(&why)))
    }

    /// Prints who leads, if the successor leads.
    fn print(
        &self,
        next: Option<&Holder>,
        handover: &Handover,
        begun: Instant,
    ) -> Result<(), CliError> {
        let took = begun.elapsed();
        if self.printing.output == Format::Json {
            return output::json(&json!({
                "election": self.name,
                "from": handover.from.identity,
                "to": handover.to,
                "leader": next.map(|next| &next.identity),
                "token": next.and_then(|next| next.token),
                "took_ms": next.map(|_| time_format::millis(took)),
            }));
        }
        let Some(next) = next else { return Ok(()) };
        let (took, token) = (time_format::span(took), with_token(next.token));
        output::line(format!("{} leads after {took}{token}", shown(next)))
    }

    fn report(&self, next: &Holder, handover: &Handover, begun: Instant) -> Result<(), CliError> {
        self.print(Some(next), handover, begun)?;
        let is_wanted = next.identity == handover.to;
        match is_wanted || self.to.is_none() && self.to_site.is_none() {
            true => Ok(()),
            false => {
                let why = format!("{} was faster than {}", next.identity, handover.to);
                Err(CliError::new(Code::Failed, self.failure(&why)))
            }
        }
    }

    fn failure(&self, why: &str) -> String {
        format!("move of {}: {why}", self.name)
    }
}
