//! The candidate that runs the jobs while it leads.

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use incumbent::schedule::{JobRun, Jobs, RunEnd};
use incumbent::{Election, Leadership, Loss};
use rustix::process::Signal;
use tokio::sync::{broadcast, mpsc};

use super::Cron;
use super::crontab::JobCommand;
use crate::candidate::{Refusals, RunningCandidate, describe};
use crate::error::{CliError, Code};
use crate::output;
use crate::process::lookup;
use crate::run::{
    CommandEnd, CommandFailure, Ending, Grace, GuardedCommand, Order, SignalAction, Signals, Terms,
    Watchdog, channel_of_terms, check_uptime, exit_code, new_orders, prepare_children,
    suspend_self, unstopped,
};

/// What the runs of all jobs share.
struct Commands {
    election: Election,
    /// By job.
    commands: HashMap<String, Vec<OsString>>,
    signal: Signal,
    grace: Grace,
    withheld: Vec<String>,
    /// What a guard releases if this process dies: of a single job, whose runs do not overlap.
    terms: Option<Terms>,
    orders: broadcast::Sender<Order>,
    failures: mpsc::UnboundedSender<CommandFailure>,
}

impl Commands {
    /// Does one run.
    async fn execute(&self, leadership: &Leadership, run: JobRun) -> RunEnd {
        let JobRun { job, slot, late, .. } = &run;
        tracing::info!(%job, %slot, late, "run begins");
        let Some(command) = self.commands.get(&**job) else { return RunEnd::NotBegun };
        let command = GuardedCommand {
            command: command.clone(),
            environment: vec![
                ("INCUMBENT_JOB", OsString::from(&**job)),
                ("INCUMBENT_SLOT", slot.to_string().into()),
            ],
            signal: self.signal,
            grace: self.grace,
            withheld: self.withheld.clone(),
            terms: self.terms.clone(),
            is_alone: false,
            shares_term: true,
        };
        let watchdog = Watchdog::start(self.election.clone(), true);
        match command.run((leadership, &self.election), &watchdog, &self.orders).await {
            // It may end its work while the term drains.
            Ok(Some(CommandEnd::ByItself { code: 0, .. } | CommandEnd::Drained { code: 0 })) => {
                RunEnd::Ended(0)
            }
            Ok(Some(CommandEnd::ByItself { code, .. })) => {
                output::note(format!("incumbent: {job}: slot {slot}: exited with code {code}"));
                RunEnd::Ended(code)
            }
            Ok(Some(_)) => {
                output::note(format!("incumbent: {job}: slot {slot}: stopped, as the term ended"));
                RunEnd::CutShort
            }
            Ok(None) => RunEnd::NotBegun,
            Err(failure) => {
                let left = matches!(failure, CommandFailure::Left(_));
                let _ = self.failures.send(failure); // an error: the process ends
                if left {
                    std::future::pending::<()>().await; // nothing may be released
                }
                RunEnd::CutShort
            }
        }
    }
}

/// A candidate that takes part.
struct Runner {
    candidate: RunningCandidate,
    signals: Signals,
    jobs: Jobs,
    commands: Arc<Commands>,
    failures: mpsc::UnboundedReceiver<CommandFailure>,
    ending: Ending,
}

/// How a term of the leader ended.
enum TermEnd {
    Lost(Loss),
    /// It was given up in order.
    GivenUp,
    /// There are no more terms: the candidate has stopped.
    Stopped,
}

impl Cron {
    /// Takes part until a signal or a failure ends it.
    pub(super) async fn lead(
        mut self,
        jobs: Jobs,
        commands: Vec<JobCommand>,
    ) -> Result<ExitCode, CliError> {
        let mut programs = commands.iter().filter_map(|command| command.command.first());
        if let Some(code) = programs.find_map(|program| lookup::refuse(program)) {
            return Ok(code);
        }
        let mut signals = Signals::listen()?;
        prepare_children("COMMAND")?;
        check_uptime();
        // The guard of one command cannot tell whether those of other jobs have stopped.
        let releases = !self.stop.no_sentinel && commands.len() == 1;
        let (sentinel, terms) = channel_of_terms(releases);
        self.candidate.sentinel = Some(sentinel);
        let asked = self.stop.grace;
        let prepare = async |lease| Ok(Some(Grace::new(lease, asked)?.total()));
        let candidate = match self.candidate.start(&self.lock, signals.end(), prepare).await? {
            Ok((candidate, _)) => candidate,
            Err(signal) => return Ok(ExitCode::from(exit_code(signal))),
        };
        let (sender, failures) = mpsc::unbounded_channel();
        let by_job = |command: JobCommand| (command.job.name().to_owned(), command.command);
        let commands = Arc::new(Commands {
            election: candidate.election.clone(),
            commands: commands.into_iter().map(by_job).collect(),
            signal: self.signal,
            grace: Grace::new(candidate.lease, asked)?,
            withheld: self.lock.secrets(&self.stop.pass_env),
            terms,
            orders: new_orders(),
            failures: sender,
        });
        let ending = Ending::new(self.stop.drain, candidate.lease);
        let mut runner = Runner { candidate, signals, jobs, commands, failures, ending };
        runner.run().await;
        runner.candidate.abandon();
        runner.ending.outcome().map(ExitCode::from)
    }
}

impl Runner {
    /// Leads from term to term, until the candidate has stopped and no run is left.
    async fn run(&mut self) {
        let election = self.candidate.election.clone();
        let mut refusals = Refusals::of(std::iter::once(&election));
        let (jobs, commands) = (self.jobs.clone(), Arc::clone(&self.commands));
        let watchdog = Watchdog::start(election.clone(), true);
        let leads = lead(&election, &jobs, &commands, &watchdog);
        tokio::pin!(leads);
        let stop = election.stop();
        tokio::pin!(stop);
        let mut has_stopped = false;
        loop {
            tokio::select! {
                biased;
                () = &mut stop, if self.ending.has_begun() && !has_stopped => has_stopped = true,
                action = self.signals.next() => match action {
                    SignalAction::End(signal) => {
                        self.candidate.status.clear();
                        if self.ending.on_signal(signal) {
                            election.end_drain();
                        }
                    }
                    SignalAction::Suspend => suspend_self(),
                    // An error: no command runs.
                    SignalAction::PassOn(signal) => drop(self.commands.orders.send(Order::PassOn(signal))),
                },
                Some(failure) = self.failures.recv() => match failure {
                    CommandFailure::Left(left) => self.exit_without_release(&left),
                    CommandFailure::Failed(failure) => self.fail(failure),
                },
                // The last one may end later than the candidate: it waits for its runs.
                term = &mut leads => {
                    match term {
                        Ok(TermEnd::Stopped) => break,
                        Ok(TermEnd::Lost(loss)) if !self.ending.has_begun() => {
                            let line = format!("lost {}: {}; campaigning again", loss.election, loss.cause);
                            self.candidate.status.note(&line);
                        }
                        Ok(TermEnd::Lost(_) | TermEnd::GivenUp) => {}
                        Err(failure) => self.fail(failure),
                    }
                    leads.set(lead(&election, &jobs, &commands, &watchdog));
                }
                refused = refusals.next() => self.candidate.status.show_or_note(&refused),
                () = self.candidate.status.next_update(), if !election.is_leader() => {
                    self.candidate.status.show(&describe(&election));
                }
            }
        }
        self.candidate.status.clear();
    }

    fn fail(&mut self, failure: CliError) {
        self.candidate.status.clear();
        self.ending.begin(Err(failure));
    }

    /// Exits without a release: the lease must end before another host runs a job.
    fn exit_without_release(&mut self, left: &str) -> ! {
        unstopped(left).report();
        self.candidate.abandon();
        std::process::exit(Code::Failed as i32)
    }
}

/// Runs the jobs for one term.
async fn lead(
    election: &Election,
    jobs: &Jobs,
    commands: &Arc<Commands>,
    watchdog: &Watchdog,
) -> Result<TermEnd, CliError> {
    watchdog.await_term();
    let Ok(leadership) = election.won().await else { return Ok(TermEnd::Stopped) };
    output::note(format!(
        "incumbent: leading {} with token {}",
        election.name(),
        leadership.token()
    ));
    watchdog.pause();
    let leadership = Arc::new(leadership);
    let ended = jobs
        .run(&leadership, |run| {
            let (leadership, commands) = (Arc::clone(&leadership), Arc::clone(commands));
            async move { commands.execute(&leadership, run).await }
        })
        .await;
    Ok(ended?.map_or(TermEnd::GivenUp, TermEnd::Lost))
}
