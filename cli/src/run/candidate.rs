//! A candidate that runs a command while it leads.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::schedule::{ScheduleErrorKind, last_of_period_at, once_per};
use incumbent::{Leadership, Loss};
use rustix::process::Signal;
use time::OffsetDateTime;

use super::args::{OnExit, Run};
use super::checkpoint::CheckpointFile;
use super::deadline::{Announced, DeadlineFile, variables};
use super::grace::Grace;
use super::guard::{CommandFailure, GuardConfig, GuardHandle, WatchdogDevice, unstopped};
use super::guarded::{CommandEnd, Order, StartedCommand, Surroundings};
use super::restarts::Restarts;
use super::signals::{SignalAction, Signals, exit_code, suspend_self};
use super::term::{Begun, TermActions, give_up, resign};
use super::terms::Terms;
use super::wait_limit::WaitLimit;
use super::watchdog::Watchdog;
use crate::candidate::{Refusals, RunningCandidate, describe, systemd};
use crate::error::{CliError, Code};
use crate::output;
use crate::process::{Cgroup, StopTimes, on_own_thread, sleep_until};

pub struct CommandCandidate {
    pub candidate: RunningCandidate,
    pub signals: Signals,
    pub file: DeadlineFile,
    pub grace: Grace,
    pub watchdog: Watchdog,
    /// What resets the machine if the guard hangs.
    pub watchdog_device: Option<WatchdogDevice>,
    pub wait_limit: WaitLimit,
    /// What the guard releases if this process dies; `None` without a sentinel.
    pub terms: Option<Terms>,
    /// What goes with a term, beside the command.
    pub term: TermActions,
    /// When to take a term again, after one was refused.
    pub not_before: Option<Instant>,
    /// The checkpoint of the current term.
    pub checkpoint: Option<CheckpointFile>,
    pub options: Run,
    pub restarts: Restarts,
    /// When this process was started.
    pub started: Instant,
    /// When it took the run of a period, or may have taken it: in seconds since 1970.
    pub took_period: Option<RangeInclusive<i64>>,
    /// The signal to end by, once the command has drained.
    pub ending: Option<Signal>,
}

/// The next step after a term.
enum Next {
    CampaignAgain,
    Exit(u8),
    /// Exit without releasing the lock.
    ExitWithoutRelease(u8),
}

impl CommandCandidate {
    /// Campaigns until the command or a signal ends it. Returns the exit code.
    pub async fn campaign(&mut self) -> Result<u8, CliError> {
        loop {
            let leadership = match self.elected().await? {
                Ok(leadership) => leadership,
                Err(code) => return Ok(code),
            };
            if let Some(end) = self.end_of_period(&leadership)? {
                output::note(format!("incumbent: {end}"));
                return Ok(0);
            }
            let next = self.lead(&leadership).await;
            let waits = matches!(next, Ok(Next::CampaignAgain));
            let may_release = self.term.finish(&leadership, waits).await;
            let may_release = self.file.clear(waits).await && may_release;
            match next {
                Ok(Next::CampaignAgain) => {}
                Ok(Next::Exit(code)) if !may_release => self.exit_without_release(code),
                Err(failure) if !may_release => {
                    failure.report();
                    self.exit_without_release(Code::Failed as u8)
                }
                Ok(Next::Exit(code)) => return Ok(code),
                Err(failure) => return Err(failure),
                Ok(Next::ExitWithoutRelease(code)) => self.exit_without_release(code),
            }
        }
    }

    /// What to say if COMMAND has begun in this period: on another host, else it is an error.
    fn end_of_period(&self, leadership: &Leadership) -> Result<Option<String>, CliError> {
        let Some(period) = self.options.once_per else { return Ok(None) };
        // A run that began while this process waited is that of its period, however long it took.
        // The wall clock may have been set since, as after a boot.
        let waited = BootClock.now().saturating_since(self.started);
        let asked = SystemTime::now().checked_sub(waited).unwrap_or(SystemTime::UNIX_EPOCH);
        let last = last_of_period_at(leadership, period, asked)?;
        let Some(last) = last else { return Ok(None) };
        let name = leadership.election();
        let ahead = last.unix_seconds().saturating_sub(OffsetDateTime::now_utc().unix_timestamp());
        let is_ahead = u64::try_from(ahead).is_ok_and(|ahead| ahead > period.as_secs());
        let took = self.took_period.as_ref();
        let is_own = took.is_some_and(|took| took.contains(&last.unix_seconds()));
        let why = match (is_own, is_ahead) {
            (false, false) => return Ok(Some(format!("{name} has run at {last}: nothing to do"))),
            (true, _) => "its run was cut short, and is not repeated in this period",
            (_, true) => "that is in the future: if a clock was wrong, delete its checkpoint",
        };
        Err(CliError::new(Code::Failed, format!("{name} has run at {last}: {why}")))
    }

    /// Takes the run of this period, right before COMMAND starts. Returns why it does not.
    async fn take_period(
        &mut self,
        leadership: &Leadership,
    ) -> Result<Option<CommandEnd>, CliError> {
        let Some(period) = self.options.once_per else { return Ok(None) };
        let unix_seconds = || OffsetDateTime::now_utc().unix_timestamp();
        let began = unix_seconds();
        let taken = tokio::select! {
            taken = once_per(leadership, period) => taken,
            signal = self.signals.end() => return Ok(Some(CommandEnd::Stopped(signal))),
            _ = leadership.draining() => {
                self.took_period = Some(began..=unix_seconds()); // it may be stored
                return Ok(Some(self.ends(leadership).await));
            }
        };
        let tried = Some(began..=unix_seconds());
        match taken {
            Ok(None) => {
                self.took_period = tried;
                Ok(None)
            }
            Ok(Some(_)) => Ok(Some(CommandEnd::ByItself { code: 0, interrupted: false })),
            Err(error) if error.kind() == ScheduleErrorKind::TermOver => {
                self.took_period = tried; // it may be stored: then it is this run that is lost
                output::note(format!("incumbent: {error}"));
                Ok(Some(self.give_up(leadership).await)) // the term may continue
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Leads for one term.
    async fn lead(&mut self, leadership: &Leadership) -> Result<Next, CliError> {
        self.watchdog.pause(); // --on-won may take longer than a lease
        let began = BootClock.now();
        if !self.term.is_empty()
            && let Some(ended) = self.announce(leadership).await?
        {
            return Ok(self.next_after(ended));
        }
        let (file, token) = (&mut self.file, leadership.token());
        let renew = |deadline| file.renew(deadline, token);
        match self.term.begin(leadership, self.signals.end(), renew).await {
            Begun::Yes => self.serve(leadership).await,
            Begun::Refused(why) => {
                self.candidate.status.clear();
                if self.wait_limit.is_limited() {
                    CliError::new(Code::Failed, why).report();
                    return Ok(Next::Exit(Code::Failed as u8));
                }
                self.not_before = Some(self.term.refuse(leadership, began, &why));
                Ok(Next::CampaignAgain)
            }
            Begun::Lost(loss) => Ok(self.lost(&loss)),
            Begun::Interrupted(signal) => Ok(Next::Exit(exit_code(signal))),
        }
    }

    /// Waits for a term. Returns the exit code if a signal, or the end of its waiting time, is
    /// first.
    async fn elected(&mut self) -> Result<Result<Leadership, u8>, CliError> {
        let mut refusals = Refusals::of(std::iter::once(&self.candidate.election));
        match self.not_before {
            None => self.watchdog.await_term(),
            Some(_) => self.watchdog.pause(), // a term that it wins meanwhile waits
        }
        loop {
            tokio::select! {
                () = sleep_until(self.not_before) => {
                    self.not_before = None;
                    self.watchdog.await_term();
                    self.term.stand_ready();
                }
                won = self.candidate.election.won(), if self.not_before.is_none() => {
                    self.candidate.status.clear();
                    return match won {
                        Ok(leadership) => Ok(Ok(leadership)),
                        Err(stopped) => Err(CliError::new(Code::Failed, stopped.to_string())),
                    };
                }
                action = self.signals.next() => {
                    self.candidate.status.clear();
                    match action {
                        SignalAction::End(signal) => return Ok(Err(exit_code(signal))),
                        SignalAction::Suspend => suspend_self(),
                        SignalAction::PassOn(_) => {}
                    }
                }
                why = self.wait_limit.ended(&self.candidate.election) => {
                    self.candidate.status.clear();
                    output::note(format!("incumbent: {}", why?));
                    return Ok(Err(self.wait_limit.conflict_exit_code()));
                }
                refused = refusals.next() => self.candidate.status.show_or_note(&refused),
                () = self.candidate.status.next_update() => {
                    self.candidate.status.show(&describe(&self.candidate.election));
                }
            }
        }
    }

    /// Runs the command for one term.
    async fn serve(&mut self, leadership: &Leadership) -> Result<Next, CliError> {
        if let Some(path) = &self.options.checkpoint {
            self.checkpoint = Some(CheckpointFile::of_term(path, leadership).await?);
        }
        loop {
            let started = BootClock.now();
            let ended = self.work(leadership).await;
            self.watchdog.pause();
            let restarts = self.options.on_exit == OnExit::Restart
                && self.ending.is_none()
                && matches!(ended, Ok(CommandEnd::ByItself { interrupted: false, .. }));
            let (checkpoint, lease, mut saved) = (&self.checkpoint, self.candidate.lease, true);
            let save = async {
                if let Some(checkpoint) = checkpoint {
                    saved = checkpoint.save_last(lease).await;
                }
            };
            match restarts {
                true => save.await,
                // Requests no longer come here while it is saved.
                false => self.term.end(leadership, leadership.deadline(), save).await,
            }
            let ended = ended?;
            if let Some(signal) = self.ending {
                return Ok(Next::Exit(exit_code(signal)));
            }
            let CommandEnd::ByItself { code, .. } = ended else {
                return Ok(self.next_after(ended));
            };
            if !restarts {
                let exit = if saved { code } else { code.max(Code::Failed as u8) };
                return Ok(match self.options.on_exit {
                    OnExit::Stop => Next::ExitWithoutRelease(exit),
                    _ => Next::Exit(exit),
                });
            }
            let pause = self.restarts.pause_after(started);
            self.watchdog.feed(leadership.deadline());
            self.candidate.status.note(&format!(
                "the command exited with code {code}, restarting it in {}",
                humantime::format_duration(pause)
            ));
            if let Some(next) = self.pause(leadership, BootClock.now() + pause).await {
                return Ok(next);
            }
        }
    }

    /// What is next when the command has not ended by itself.
    fn next_after(&mut self, ended: CommandEnd) -> Next {
        match ended {
            CommandEnd::Lost(loss) => self.lost(&loss),
            CommandEnd::Stopped(signal) => Next::Exit(exit_code(signal)),
            CommandEnd::HungUp => Next::Exit(exit_code(Signal::HUP)),
            CommandEnd::GivenUp => Next::CampaignAgain,
            CommandEnd::ByItself { code, .. } | CommandEnd::Drained { code } => Next::Exit(code),
        }
    }

    /// Waits before the restart of the command, unless the term or the process ends first.
    async fn pause(&mut self, leadership: &Leadership, until: Instant) -> Option<Next> {
        let mut deadline = leadership.deadline();
        loop {
            self.watchdog.feed(deadline);
            tokio::select! {
                biased;
                loss = leadership.ended() => {
                    self.watchdog.pause();
                    return Some(self.lost(&loss));
                }
                _ = leadership.draining() => return None, // there is no work to end
                Ok(later) = leadership.renewed(deadline) => {
                    deadline = later;
                    self.term.extend(deadline);
                }
                why = self.term.failed() => fail_term(&mut self.candidate, leadership, &why),
                signal = self.signals.end() => return Some(Next::Exit(exit_code(signal))),
                () = sleep_until(until) => return None,
            }
        }
    }

    /// Runs the command once.
    async fn work(&mut self, leadership: &Leadership) -> Result<CommandEnd, CliError> {
        let cgroup = on_own_thread(Cgroup::create);
        if let Some(ended) = self.announce(leadership).await? {
            return Ok(ended);
        }
        if let Some(ended) = self.watchdog_fits(leadership).await {
            return Ok(ended);
        }
        if let Some(ended) = self.take_period(leadership).await? {
            return Ok(ended);
        }
        // Again: what is taken is to be run.
        if let Some(ended) = self.watchdog_fits(leadership).await {
            return Ok(ended);
        }
        let cgroup = cgroup.await.ok().flatten();
        let deadline = leadership.deadline();
        self.term.extend(deadline);
        let until = self.grace.until(deadline);
        if until.ask_at <= BootClock.now() {
            return Ok(self.give_up(leadership).await); // suspended for too long
        }
        let ended = match self.start(leadership, until, cgroup) {
            Ok(guard) => self.until_ended(leadership, guard, deadline).await,
            Err(failure) => Err(failure),
        };
        match ended {
            Ok(CommandEnd::Drained { .. }) => Ok(self.ends(leadership).await),
            Ok(CommandEnd::GivenUp) => Ok(self.give_up(leadership).await),
            Ok(ended) => Ok(ended),
            Err(CommandFailure::Failed(failure)) => Err(failure),
            Err(CommandFailure::Left(left)) => {
                // The lease must end before another leader starts, and no second command may run
                // beside it.
                unstopped(&left).report();
                self.exit_without_release(Code::Failed as u8)
            }
        }
    }

    async fn until_ended(
        &mut self,
        leadership: &Leadership,
        guard: GuardHandle,
        deadline: Instant,
    ) -> Result<CommandEnd, CommandFailure> {
        let (file, watchdog, grace) = (&mut self.file, &self.watchdog, self.grace);
        let started = StartedCommand { guard, leadership, file, grace, watchdog };
        let mut surroundings = TermOfRun {
            leadership,
            candidate: &mut self.candidate,
            signals: &mut self.signals,
            term: &mut self.term,
            checkpoint: self.checkpoint.as_ref(),
            drains: self.options.stop.drain.is_some(),
            ending: &mut self.ending,
        };
        started.until_ended(deadline, &mut surroundings).await
    }

    /// Gives up a term in which COMMAND does not run, or no longer.
    async fn give_up(&self, leadership: &Leadership) -> CommandEnd {
        CommandEnd::Lost(give_up(leadership, &self.candidate.election).await)
    }

    /// Notes that the term is over, or that it drains and there is no work to end.
    async fn ends(&self, leadership: &Leadership) -> CommandEnd {
        self.candidate.election.end_drain();
        CommandEnd::Lost(leadership.ended().await)
    }

    /// Writes the deadline file before the command starts. Returns the end of the term, if it ended
    /// or began to drain meanwhile.
    async fn announce(&mut self, leadership: &Leadership) -> Result<Option<CommandEnd>, CliError> {
        let announced = tokio::select! {
            biased;
            announced = self.file.announce(leadership, &self.grace) => announced?,
            signal = self.signals.end() => return Ok(Some(CommandEnd::Stopped(signal))),
        };
        Ok(match announced {
            Announced::Yes => None,
            Announced::Ends => Some(self.ends(leadership).await),
            Announced::Late => Some(self.give_up(leadership).await),
        })
    }

    /// Waits for the next renewal if the watchdog, armed now, would fire too late for the last one:
    /// the guard would end the term. Returns the end of the term, if it ended or began to drain
    /// meanwhile.
    async fn watchdog_fits(&mut self, leadership: &Leadership) -> Option<CommandEnd> {
        let device = self.watchdog_device.as_ref()?;
        let deadline = leadership.deadline();
        // A renewal leaves an eighth of the lease: half of it is for the start of the guard.
        if device.fires_before(self.grace.until(deadline).kill_at, self.candidate.lease / 16) {
            return None;
        }
        loop {
            self.watchdog.feed(deadline);
            tokio::select! {
                biased;
                loss = leadership.ended() => return Some(CommandEnd::Lost(loss)),
                _ = leadership.draining() => return Some(self.ends(leadership).await),
                Ok(later) = leadership.renewed(deadline) => {
                    self.watchdog.feed(later);
                    self.file.renew(later, leadership.token());
                    return None;
                }
                why = self.term.failed() => fail_term(&mut self.candidate, leadership, &why),
                signal = self.signals.end() => return Some(CommandEnd::Stopped(signal)),
            }
        }
    }

    fn start(
        &self,
        leadership: &Leadership,
        until: StopTimes,
        cgroup: Option<Cgroup>,
    ) -> Result<GuardHandle, CommandFailure> {
        let election = &self.candidate.election;
        let mut environment = variables(election, leadership.token(), self.file.path()).to_vec();
        environment.extend(self.checkpoint.iter().flat_map(CheckpointFile::variables));
        let (signal, withheld) = (self.options.program.signal, self.options.withheld());
        let config = GuardConfig {
            cgroup,
            directory: Some(self.file.directory().to_owned()),
            until: Some(until),
            drops_network_capabilities: self.options.term.traffic.has_addresses(),
            watchdog: self.watchdog_device.clone(),
            ..GuardConfig::new(signal, self.grace.stop, withheld)
        };
        let terms = self.terms.clone();
        let command = &self.options.program.command;
        GuardHandle::start(command, &environment, terms, config, true)
    }

    fn lost(&mut self, loss: &Loss) -> Next {
        if self.wait_limit.is_limited() {
            let message = format!("lost {}: {}; not campaigning again", loss.election, loss.cause);
            self.candidate.status.clear();
            CliError::new(Code::Failed, message).report();
            return Next::Exit(Code::Failed as u8);
        }
        let line = format!("lost {}: {}; campaigning again", loss.election, loss.cause);
        self.candidate.status.note(&line);
        Next::CampaignAgain
    }

    /// Exits without a release: the entry stays until its lease ends.
    fn exit_without_release(&mut self, code: u8) -> ! {
        self.file.remove();
        self.candidate.abandon();
        std::process::exit(code.into())
    }
}

/// Gives up a term, as requests no longer come here. The work is stopped then.
fn fail_term(candidate: &mut RunningCandidate, leadership: &Leadership, why: &str) {
    resign(leadership, Some(&candidate.election));
    candidate.status.note(&format!("{why}: the term is given up"));
}

/// What goes with the command of a term.
struct TermOfRun<'a> {
    leadership: &'a Leadership,
    candidate: &'a mut RunningCandidate,
    signals: &'a mut Signals,
    term: &'a mut TermActions,
    checkpoint: Option<&'a CheckpointFile>,
    /// Whether the command drains upon a signal.
    drains: bool,
    /// The signal to end by, once the command has drained.
    ending: &'a mut Option<Signal>,
}

impl Surroundings for TermOfRun<'_> {
    async fn order(&mut self) -> Order {
        loop {
            let action = tokio::select! {
                biased;
                why = self.term.failed() => {
                    fail_term(self.candidate, self.leadership, &why);
                    continue;
                }
                action = self.signals.next() => action,
            };
            match (action, self.checkpoint) {
                (SignalAction::End(signal), _) if self.drains => self.end_by(signal),
                (SignalAction::End(signal), _) => return Order::Stop(signal),
                (SignalAction::Suspend, _) => return Order::Suspend,
                (SignalAction::PassOn(Signal::USR2), Some(checkpoint)) => checkpoint.request_save(),
                (SignalAction::PassOn(signal), _) => return Order::PassOn(signal),
            }
        }
    }

    fn extend(&mut self, deadline: Instant) {
        self.term.extend(deadline);
    }

    fn drain(&mut self, until: Instant) {
        self.term.drain();
        let left = until.saturating_since(BootClock.now());
        if self.ending.is_some() {
            systemd::draining(left + self.candidate.lease);
        }
        let left =
            humantime::format_duration(Duration::from_secs(left.as_secs_f64().round() as u64));
        self.candidate.status.print(&format!("draining: COMMAND has {left} to end"));
    }

    async fn end(&mut self, deadline: Instant, stop: impl Future<Output = ()>) {
        self.term.end(self.leadership, deadline, stop).await;
    }
}

impl TermOfRun<'_> {
    /// Ends after a drain; the second signal ends the drain.
    fn end_by(&mut self, signal: Signal) {
        let election = &self.candidate.election;
        match self.ending.replace(signal) {
            None => drop(election.stop().now_or_never()), // it stops, without a wait
            Some(_) => election.end_drain(),
        }
    }
}
