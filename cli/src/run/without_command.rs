//! The terms of `incumbent campaign`, which runs no command: hooks, and what directs requests here.

use std::time::Duration;

use clap::Args;
use incumbent::clock::{BootClock, Clock};
use incumbent::sentinel::Sentinel;
use incumbent::{Election, Leadership};

use super::deadline::{Announced, DeadlineFile};
use super::grace::Grace;
use super::hooks::HOOK;
use super::hooks::prepare_children;
use super::term::{Begun, TermActions, TermArgs, give_up, resign};
use crate::candidate::{CandidateArgs, RunningCandidate};
use crate::error::CliError;
use crate::lock::LockArgs;
use crate::output;
use crate::process::{BackgroundTask, sleep_until};
use crate::run::traffic::TrafficHandle;

/// How long the files of a candidate that has stopped may take to be removed.
const END: Duration = Duration::from_secs(2);

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
        prepare_children(HOOK)?;
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
        let file = DeadlineFile::create_for_long()?;
        let traffic = self.term.start((lease, grace), &file, &[]).await?;
        self.prepared = Some((grace, file, traffic));
        Ok(Some(grace.total()))
    }

    /// Performs what goes with each term, until the campaign is stopped.
    pub fn follow(&mut self, candidate: &RunningCandidate, lock: &LockArgs) -> FollowedTerms {
        let Some((grace, file, traffic)) = self.prepared.take() else {
            return FollowedTerms(None);
        };
        let withheld = lock.secrets(&[]);
        let actions = TermActions::new(&self.term, traffic, candidate, grace, &file, withheld);
        let terms = Terms { election: candidate.election.clone(), grace, file, actions };
        FollowedTerms(Some(BackgroundTask(tokio::spawn(terms.run()))))
    }
}

/// What goes with the terms of a candidate.
pub struct FollowedTerms(Option<BackgroundTask>);

impl FollowedTerms {
    /// Waits until nothing is left of it. The candidate must have stopped.
    pub async fn ended(mut self) {
        if let Some(task) = &mut self.0 {
            let _ = tokio::time::timeout(END, &mut task.0).await; // it is aborted then
        }
    }
}

/// Waits until the candidate has stopped.
async fn stopped(election: &Election) {
    let mut status = election.watch();
    while status.next().await.is_some() {}
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
            let refused = match self.begin(&leadership).await {
                Begun::Yes => {
                    self.hold(&leadership).await;
                    None
                }
                Begun::Refused(why) => Some(self.actions.refuse(&leadership, began, &why)),
                Begun::Lost(_) | Begun::Interrupted(()) => None,
            };
            self.actions.finish(&leadership, true).await;
            self.file.clear(true).await;
            drop(leadership);
            if let Some(until) = refused {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = stopped(&self.election) => return,
                }
                self.actions.stand_ready();
            }
        }
    }

    async fn begin(&mut self, leadership: &Leadership) -> Begun<()> {
        match self.file.announce(leadership, &self.grace).await {
            Ok(Announced::Yes) => {}
            Ok(Announced::Ends | Announced::Late) => {
                return Begun::Lost(give_up(leadership, &self.election).await);
            }
            Err(failure) => return Begun::Refused(failure.to_string()),
        }
        let (file, token) = (&mut self.file, leadership.token());
        let renew = |deadline| file.renew(deadline, token);
        self.actions.begin(leadership, std::future::pending(), renew).await
    }

    /// Waits for the end of the term.
    async fn hold(&mut self, leadership: &Leadership) {
        let mut deadline = leadership.deadline();
        self.file.renew(deadline, leadership.token());
        self.actions.extend(deadline);
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
                    resign(leadership, Some(&self.election));
                    output::note(format!("incumbent: {why}: the term is given up"));
                }
                failure = self.file.fell_behind(self.grace.total()) => {
                    failure.report();
                    give_up(leadership, &self.election).await;
                    return;
                }
            }
        }
    }
}
