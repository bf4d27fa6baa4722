//! The terms of `incumbent campaign`, which runs no command: hooks, and what directs requests here.

use std::time::Duration;

use clap::Args;
use incumbent::clock::{BootClock, Clock};
use incumbent::sentinel::Sentinel;
use incumbent::{Election, Leadership};

use super::deadline::{DeadlineFile, sleep_until};
use super::grace::Grace;
use super::hooks::prepare_hooks;
use super::term::{Begun, TermActions, TermArgs};
use crate::background::BackgroundTask;
use crate::candidate::{CandidateArgs, RunningCandidate};
use crate::error::CliError;
use crate::lock_args::LockArgs;
use crate::output;
use crate::traffic::TrafficHandle;

/// The flags of what goes with a term of `incumbent campaign`.
#[derive(Args)]
pub struct CampaignTerms {
    #[command(flatten)]
    pub term: TermArgs,
    /// How long --on-lost may take before it is killed [default: an eighth of the lease].
    #[arg(long, value_parser = humantime::parse_duration, help_heading = "Terms")]
    grace: Option<Duration>,
    #[arg(skip)]
    prepared: Option<(Grace, DeadlineFile, Option<TrafficHandle>)>,
}

impl CampaignTerms {
    /// Prepares a candidate, before the lock is opened.
    pub fn apply(&self, candidate: &mut CandidateArgs) -> Result<(), CliError> {
        if self.term.is_empty() {
            return Ok(());
        }
        prepare_hooks()?;
        // A sentinel that releases a killed candidate does not know what goes with its term.
        candidate.sentinel = Some(Sentinel::none());
        Ok(())
    }

    /// Checks all before the campaign. Returns the grace of the election.
    pub async fn prepare(&mut self, lease: Duration) -> Result<Option<Duration>, CliError> {
        if self.term.is_empty() {
            return Ok(None);
        }
        let grace = Grace::new(lease, self.grace)?;
        let file = DeadlineFile::create()?;
        let traffic = self.term.start(lease, &file, &[]).await?;
        self.prepared = Some((grace, file, traffic));
        Ok(Some(grace.total()))
    }

    /// Performs what goes with each term, until the campaign is stopped and this is dropped.
    pub fn follow(
        &mut self,
        candidate: &RunningCandidate,
        lock: &LockArgs,
    ) -> Option<BackgroundTask> {
        let (grace, file, traffic) = self.prepared.take()?;
        let withheld = lock.secrets(&[]);
        let actions = TermActions::new(&self.term, traffic, candidate, grace, &file, withheld);
        let terms = Terms { election: candidate.election.clone(), grace, file, actions };
        Some(BackgroundTask(tokio::spawn(terms.run())))
    }
}

struct Terms {
    election: Election,
    grace: Grace,
    file: DeadlineFile,
    actions: TermActions,
}

impl Terms {
    async fn run(mut self) {
        while let Ok(leadership) = self.election.won().await {
            let began = BootClock.now();
            self.file.renew(leadership.deadline(), leadership.token());
            let refused = match self.begin(&leadership).await {
                Begun::Yes => {
                    self.hold(&leadership).await;
                    None
                }
                Begun::Refused(why) => Some(self.actions.refuse(&leadership, began, &why)),
                Begun::Lost(_) | Begun::Interrupted(()) => None,
            };
            self.actions.finish(&leadership).await;
            drop(leadership);
            if let Some(until) = refused {
                sleep_until(until).await;
                self.actions.stand_ready();
            }
        }
    }

    async fn begin(&mut self, leadership: &Leadership) -> Begun<()> {
        let deadline = leadership.deadline();
        let failure = tokio::select! {
            biased;
            loss = leadership.ended() => return Begun::Lost(loss),
            written = self.file.written() => written.err().map(|why| self.file.failure(Some(&why))),
            () = sleep_until(deadline - self.grace.total()) => Some(self.file.failure(None)),
        };
        if let Some(failure) = failure {
            return Begun::Refused(failure.to_string());
        }
        let (file, token) = (&mut self.file, leadership.token());
        let renew = |deadline| file.renew(deadline, token);
        self.actions.begin(leadership, std::future::pending(), renew).await
    }

    /// Waits for the end of the term.
    async fn hold(&mut self, leadership: &Leadership) {
        let mut deadline = leadership.deadline();
        self.file.renew(deadline, leadership.token());
        loop {
            tokio::select! {
                biased;
                _ = leadership.ended() => return,
                Ok(later) = leadership.renewed(deadline) => {
                    deadline = later;
                    self.file.renew(deadline, leadership.token());
                    self.actions.extend(deadline);
                }
                why = self.actions.failed() => {
                    output::note(format!("incumbent: {why}: the term is given up"));
                    leadership.resign();
                }
                failure = self.file.fell_behind(self.grace.total()) => {
                    output::note(format!("incumbent: {failure}"));
                    leadership.resign();
                    leadership.ended().await;
                    return;
                }
            }
        }
    }
}
