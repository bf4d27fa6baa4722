//! `incumbent campaign`: take part in an election and print each transition.

#[cfg(not(target_os = "linux"))]
pub mod linux_only;

use std::time::Duration;

use clap::Args;
use incumbent::{Change, Election, Readiness, Stopped, WaitReason};
use serde_json::json;

#[cfg(not(target_os = "linux"))]
use crate::campaign::linux_only::CampaignTerms;
use crate::candidate::{CandidateArgs, MoveArgs, cool_down, cooling_down, describe, readiness};
use crate::error::{CliError, Code, EXIT_CODES};
use crate::lock::LockArgs;
use crate::output::text::printable;
use crate::output::time_format::millis;
use crate::output::{self, Format, Printing};
use crate::process::signals::StopSignals;
#[cfg(target_os = "linux")]
use crate::run::CampaignTerms;
#[cfg(target_os = "linux")]
use crate::run::traffic::TrafficArgs;

/// Campaign in the election NAME, and print each transition until interrupted.
///
/// Writes one line per transition to standard output: the leader, how long it cools down once it
/// holds the lock, won, lost with its cause, failures of the lock, and whether it is ready. SIGINT
/// and SIGTERM release the lock before the program ends. While the server is unreachable it
/// retries, unless `--timeout` is given. A systemd service of Type=notify is ready once it
/// campaigns, and its status shows the leader.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Campaign {
    #[command(flatten)]
    printing: Printing,
    #[command(flatten)]
    candidate: CandidateArgs,
    #[command(flatten)]
    terms: CampaignTerms,
    #[command(flatten)]
    moves: MoveArgs,
    #[command(flatten)]
    lock: LockArgs,
}

impl Campaign {
    /// What directs requests to the leader, and the lock.
    #[cfg(target_os = "linux")]
    pub fn into_traffic(self) -> (TrafficArgs, LockArgs) {
        (self.terms.term.traffic, self.lock)
    }

    pub async fn run(mut self) -> Result<(), CliError> {
        self.candidate.moves = std::mem::take(&mut self.moves);
        let mut signals = StopSignals::listen()?;
        self.terms.apply(&mut self.candidate)?;
        let prepare = async |lease| self.terms.prepare(lease).await;
        let started = self.candidate.start(&self.lock, signals.next(), prepare).await?;
        let (mut candidate, mut changes) = started.map_err(CliError::Signal)?;
        let terms = self.terms.follow(&candidate, &self.lock);
        let (mut statuses, mut was_cooling) = (candidate.election.watch(), false);
        let end = loop {
            tokio::select! {
                biased;
                signal = signals.next() => break CliError::Signal(signal),
                change = changes.next() => {
                    candidate.status.clear();
                    match change {
                        Some(change) => if let Err(error) = self.print(&change, &candidate.election) { break error },
                        None => return Err(CliError::new(Code::Failed, Stopped.to_string())),
                    }
                }
                Some(status) = statuses.next() => {
                    let is_cooling = status.cool_down.is_some();
                    if !std::mem::replace(&mut was_cooling, is_cooling)
                        && let Some(wait) = cool_down(&candidate.election)
                    {
                        candidate.status.clear();
                        if let Err(error) = self.print_cool_down(wait) { break error }
                    }
                }
                () = candidate.status.next_update(), if !candidate.election.is_leader() => {
                    candidate.status.show(&describe(&candidate.election));
                }
            }
        };
        // The lock is released first, whatever the reason to stop is. What ends with the term may
        // wait for its deadline: a second signal ends that.
        tokio::select! {
            () = candidate.stop() => terms.ended().await,
            signal = signals.next() => {
                // A return would end the term, and so release the lock beside what has not ended.
                candidate.abandon();
                let _ = CliError::Signal(signal).report();
                std::process::exit(128 + signal) // where a program cannot end by a signal
            }
        }
        while let Some(change) = changes.next().await {
            if self.print(&change, &candidate.election).is_err() {
                break;
            }
        }
        Err(end)
    }

    fn print_cool_down(&self, (left, reason): (Duration, WaitReason)) -> Result<(), CliError> {
        match self.printing.output {
            Format::Json => output::json_line(&json!({
                "event": "cooling_down",
                "cool_down": {"left_ms": millis(left), "reason": reason.to_string()},
            })),
            Format::Text => output::line(cooling_down(left, reason)),
        }
    }

    fn print(&self, change: &Change, election: &Election) -> Result<(), CliError> {
        match self.printing.output {
            Format::Json => {
                json_line(change, election).map_or(Ok(()), |line| output::json_line(&line))
            }
            Format::Text => {
                text_line(change, election).map_or(Ok(()), |line| output::line(printable(&line)))
            }
        }
    }
}

fn text_line(change: &Change, election: &Election) -> Option<String> {
    Some(match change {
        Change::Won { token } => format!("won: leading with token {token}"),
        Change::Lost { cause, .. } => format!("lost: {cause}"),
        Change::Leader(Some(leader)) if leader.is_me => return None,
        Change::Leader(Some(leader)) => format!("leader: {}", leader.identity),
        Change::Leader(None) => "leader: none".to_owned(),
        Change::LockFailing(failure) => format!("lock failing: {}", failure.message),
        Change::LockRecovered => "lock recovered".to_owned(),
        Change::Readiness(Readiness::Ready) => "ready".to_owned(),
        Change::Readiness(_) => readiness(&election.watch().current())?,
        Change::Missed(missed) => format!("missed: {missed} transitions"),
        _ => return None,
    })
}

fn json_line(change: &Change, election: &Election) -> Option<serde_json::Value> {
    Some(match change {
        Change::Won { token } => json!({"event": "won", "token": token.0}),
        Change::Lost { token, cause } => {
            json!({"event": "lost", "token": token.0, "cause": cause.as_str(), "message": cause.to_string()})
        }
        Change::Leader(leader) => json!({
            "event": "leader",
            "leader": leader.as_ref().map(|l| &*l.identity),
            "token": leader.as_ref().and_then(|l| l.token).map(|t| t.0),
            "mine": leader.as_ref().is_some_and(|l| l.is_me),
        }),
        Change::LockFailing(failure) => {
            json!({"event": "lock_failing", "message": &*failure.message})
        }
        Change::LockRecovered => json!({"event": "lock_recovered"}),
        Change::Readiness(readiness) => {
            let failure = election.watch().current().check_failure;
            json!({"event": "standing", "standing": readiness.as_str(), "message": failure})
        }
        Change::Missed(missed) => json!({"event": "missed", "count": missed}),
        _ => return None,
    })
}
