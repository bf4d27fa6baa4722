//! `election watch`.

use clap::Args;

use crate::elections::{Elections, Holder, LeaderStatus, shown};
use crate::error::{CliError, Code};
use crate::lock_args::LockArgs;
use crate::output::{self, Format, Printing};
use crate::text;
use crate::time_format;
use crate::view::{Feed, Transition, lost};

/// Print each change of leadership with its cause, as it happens, until interrupted.
///
/// Needs the rights of an observer only, and creates no consumer. With Kubernetes, a leader whose
/// record has not changed for its lease, on this host's clock, has expired; without the right to
/// `watch`, it polls every second.
#[derive(Args)]
pub struct Watch {
    /// The election; with Kubernetes its object [default: all].
    name: Option<String>,
    #[command(flatten)]
    printing: Printing,
}

impl Watch {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let elections = Elections::open(lock, self.name.as_deref()).await?;
        let mut feed = Feed::open(&elections, self.name.as_slice()).await?;
        let mut failing = false;
        loop {
            match feed.next().await {
                Ok(transition) => {
                    if std::mem::take(&mut failing) {
                        output::note("lock recovered");
                    }
                    match self.printing.output {
                        Format::Json => output::json_line(&transition.json())?,
                        Format::Table => output::line(text(&transition))?,
                    }
                }
                // An unreachable server may come back; a missing bucket or right does not.
                Err(failure @ CliError::Message { code: Code::Unreachable, .. }) => {
                    if !std::mem::replace(&mut failing, true) {
                        output::note(format!("lock failing: {failure}"));
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

fn text(event: &Transition) -> String {
    let time = time_format::rfc3339(event.time);
    let what = match (&event.now, &event.before) {
        (LeaderStatus::Held(now), _) if event.found => {
            let since = now.since.map(|since| format!(" since {}", time_format::rfc3339(since)));
            format!("{} leads{}{}", shown(now), since.unwrap_or_default(), token(now))
        }
        (LeaderStatus::Held(now), Some(before)) if before.leader != now.leader => {
            format!("{} leads{}, succeeding {}", shown(now), token(now), shown(before))
        }
        (LeaderStatus::Held(now), _) => format!("{} leads{}", shown(now), token(now)),
        (LeaderStatus::Vacant(cause), Some(before)) => {
            format!("no leader: {} {}", shown(before), lost(cause))
        }
        (LeaderStatus::Vacant(cause), None) => format!("no leader: {cause}"),
    };
    format!("[{time}] {}: {what}", text::printable(&event.election))
}

fn token(holder: &Holder) -> String {
    holder.token.map(|token| format!(" with token {token}")).unwrap_or_default()
}
