//! What goes with a term of a leader, beside its work: hooks, and what directs requests here.
//!
//! At the start: `--on-won`, then the address, the Service and the label, then `/leading` returns
//! 200 and COMMAND starts. At the end: `/leading` returns 503, then the address, the Service and
//! the label are withdrawn, then `--on-lost` runs while COMMAND stops, then the lock is released.
//! Each step has its bound, and all end before the deadline.

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, Leadership, Loss, Token};

use super::deadline::{DeadlineFile, variables};
use super::grace::Grace;
use super::guard::CommandFailure;
use super::hooks::{HookArgs, RunningHook};
use super::restarts::Restarts;
use crate::candidate::{Health, RunningCandidate};
use crate::error::{CliError, Code};
use crate::output;
use crate::process::{StopTimes, own_arguments};
use crate::run::traffic::{MARKER, TrafficArgs, TrafficHandle, WITHDRAWAL};

/// How much later than the process the end of a term acts itself.
const ANSWER: Duration = Duration::from_millis(200);
/// How soon the end of a term tries again what is left.
const RETRY: Duration = Duration::from_millis(200);
/// How long `--on-lost` has at least, if it runs after the deadline.
const LATE: Duration = Duration::from_secs(1);

/// Resigns from a term in which no work is done, or is to be done no longer. `undrained`: its
/// election, as a drain would hold the lock for nothing; `None` if other commands of the term
/// drain.
pub fn resign(leadership: &Leadership, undrained: Option<&Election>) {
    leadership.resign();
    if let Some(election) = undrained {
        election.end_drain();
    }
}

/// Gives up a term of one command, and waits for its end.
pub async fn give_up(leadership: &Leadership, election: &Election) -> Loss {
    resign(leadership, Some(election));
    leadership.ended().await
}

/// The flags of what goes with a term.
#[derive(Debug, Clone, Default, Args)]
pub struct TermArgs {
    #[command(flatten)]
    pub hooks: HookArgs,
    #[command(flatten)]
    pub traffic: TrafficArgs,
}

impl TermArgs {
    /// Whether nothing goes with a term.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty() && self.traffic.is_empty()
    }

    /// Checks what goes with a term, before the campaign. `rest`: arguments that this program
    /// requires after its own.
    pub async fn start(
        &self,
        (lease, grace): (Duration, Grace),
        file: &DeadlineFile,
        rest: &[&str],
    ) -> Result<Option<TrafficHandle>, CliError> {
        if self.hooks.on_lost.is_some() && grace.stop.is_zero() {
            let message = "--on-lost needs a grace to run in: raise --grace";
            return Err(CliError::new(Code::Usage, message));
        }
        if self.traffic.is_empty() {
            return Ok(None);
        }
        let has_addresses = self.traffic.has_addresses();
        let arguments = own_arguments(rest).ok_or_else(|| {
            CliError::new(Code::Usage, "an argument is not UTF-8, as flags of addresses require")
        })?;
        let marker = file.directory().join(MARKER);
        TrafficHandle::start(arguments, lease, marker, has_addresses).await.map(Some)
    }
}

/// What goes with the terms of a candidate.
pub struct TermActions {
    hooks: HookArgs,
    traffic: Option<TrafficHandle>,
    election: Election,
    health: Arc<Health>,
    grace: Grace,
    /// The path of the deadline file.
    file: PathBuf,
    withheld: Vec<String>,
    term: Option<OpenTerm>,
    restarts: Restarts,
    /// Whether this process stands aside since it refused a term.
    stands_aside: bool,
}

/// A term that has begun, and is not finished.
struct OpenTerm {
    token: u64,
    /// Whether requests are withdrawn.
    closed: bool,
    /// Whether requests are known not to come here.
    failed: bool,
    /// Whether its start failed.
    refused: bool,
    /// Whether `--on-lost` has run.
    told: bool,
    /// What has not ended as it should: the lock is left to its lease.
    unfinished: Option<String>,
}

impl OpenTerm {
    fn new(token: u64) -> Self {
        let (closed, failed, refused, told) = (false, false, false, false);
        Self { token, closed, failed, refused, told, unfinished: None }
    }
}

/// How the start of a term went.
pub enum Begun<T> {
    Yes,
    /// The term is to be given up: why.
    Refused(String),
    Lost(Loss),
    Interrupted(T),
}

impl TermActions {
    pub fn new(
        args: &TermArgs,
        traffic: Option<TrafficHandle>,
        candidate: &RunningCandidate,
        grace: Grace,
        file: &DeadlineFile,
        withheld: Vec<String>,
    ) -> Self {
        candidate.health.serves(args.is_empty());
        Self {
            hooks: args.hooks.clone(),
            traffic,
            election: candidate.election.clone(),
            health: Arc::clone(&candidate.health),
            grace,
            file: file.path().to_owned(),
            withheld,
            term: None,
            restarts: Restarts::default(),
            stands_aside: false,
        }
    }

    /// Whether nothing goes with a term.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty() && self.traffic.is_none()
    }

    /// Begins a term, unless it ends or `interrupt` completes before. `renew` writes a later
    /// deadline to the deadline file. `finish` must follow.
    pub async fn begin<T>(
        &mut self,
        leadership: &Leadership,
        interrupt: impl Future<Output = T>,
        mut renew: impl FnMut(Instant),
    ) -> Begun<T> {
        if self.is_empty() {
            self.health.serves(true);
            return Begun::Yes;
        }
        let mut interrupt = pin!(interrupt);
        self.term = Some(OpenTerm::new(leadership.token().0));
        let mut deadline = leadership.deadline();
        let (mut hook, mut asked) = (None, false);
        if let Some(text) = &self.hooks.on_won {
            let (environment, until) = (self.environment("won", None), self.grace.until(deadline));
            let withheld = self.withheld.clone();
            match RunningHook::start("--on-won", text, &environment, until, withheld) {
                Ok(started) => hook = Some(started),
                Err(failure) => {
                    if let (CommandFailure::Left(left), Some(term)) = (&failure, &mut self.term) {
                        term.unfinished = Some(format!("--on-won could not be stopped: {left}"));
                    }
                    return Begun::Refused(format!("--on-won cannot be run: {failure}"));
                }
            }
        }
        let begun = loop {
            let until = self.grace.until(deadline);
            let (traffic, token) = (&mut self.traffic, leadership.token().0);
            // It may start a process, which a renewal must not start anew.
            let directs = hook.is_none() && traffic.is_some() && !asked;
            let step = async {
                match (&mut hook, traffic) {
                    (Some(hook), _) => hook.ended().await,
                    (None, Some(traffic)) if asked => traffic.directed().await,
                    (None, Some(traffic)) => traffic.direct(token, until).await,
                    (None, None) => Ok(()),
                }
            };
            tokio::select! {
                biased;
                loss = leadership.ended() => break Begun::Lost(loss),
                _ = leadership.draining() => {
                    self.election.end_drain(); // there is no work yet
                    break Begun::Lost(leadership.ended().await);
                }
                interrupt = &mut interrupt => break Begun::Interrupted(interrupt),
                Ok(later) = leadership.renewed(deadline), if !directs => {
                    deadline = later;
                    renew(later);
                    match &mut hook {
                        Some(hook) => hook.extend(self.grace.until(later)),
                        None => self.extend(later),
                    }
                }
                done = step => match done {
                    Ok(()) if hook.take().is_some() => {}
                    Ok(()) if self.traffic.is_some() && !asked => asked = true,
                    Ok(()) => break Begun::Yes,
                    Err(why) => break Begun::Refused(why),
                },
            }
        };
        match (&begun, hook) {
            (Begun::Yes, _) => self.health.serves(true),
            (_, Some(mut hook)) => {
                let kill_at = self.grace.kill_at(leadership.deadline());
                let stopped = hook.stop(kill_at).await;
                if let (Some(term), Err(why)) = (&mut self.term, stopped) {
                    term.unfinished = Some(why);
                }
            }
            (_, None) => {}
        }
        begun
    }

    /// Has all continue, as the term was renewed.
    pub fn extend(&mut self, deadline: Instant) {
        if let Some(traffic) = &mut self.traffic {
            traffic.extend(self.grace.until(deadline));
        }
    }

    /// Lets no new requests come here, while the work drains.
    pub fn drain(&mut self) {
        if let Some(traffic) = &mut self.traffic {
            traffic.drain();
        }
    }

    /// Waits until requests no longer come here although the term continues: why. Cancel safe.
    pub async fn failed(&mut self) -> String {
        match (&mut self.traffic, &mut self.term) {
            (Some(traffic), Some(term)) if !term.failed && !term.closed => {
                let why = traffic.failed().await;
                term.failed = true;
                why
            }
            _ => std::future::pending().await,
        }
    }

    /// Withdraws requests, for a bounded time, and runs `--on-lost` beside `stop`, which stops the
    /// work. `deadline`: of the term. Does nothing but `stop` if the term has ended before.
    pub async fn end(
        &mut self,
        leadership: &Leadership,
        deadline: Instant,
        stop: impl Future<Output = ()>,
    ) {
        // Late is better than never, once there is no right to protect.
        let now = BootClock.now();
        let kill_at = match deadline <= now {
            true => now + self.grace.stop.max(LATE),
            false => self.grace.kill_at(deadline),
        };
        self.close(deadline).await;
        let hook = async {
            let term = self.term.as_ref().filter(|term| !term.told)?;
            let text = self.hooks.on_lost.as_ref()?;
            let environment = self.environment("lost", Some(self.cause_of(term, leadership)));
            let until = StopTimes { ask_at: kill_at, kill_at };
            let withheld = self.withheld.clone();
            let hook = RunningHook::start("--on-lost", text, &environment, until, withheld);
            Some(match hook {
                Ok(mut hook) => hook.ended().await,
                Err(failure) => Err(format!("--on-lost cannot be run: {failure}")),
            })
        };
        let ((), done) = tokio::join!(stop, hook);
        if let (Some(term), Some(done)) = (&mut self.term, done) {
            term.told = true;
            term.unfinished = term.unfinished.take().or(done.err());
        }
    }

    /// Ends the term, if it has not ended yet, and waits until its lock may be released. Call it
    /// once no work is left, and drop the `Leadership` then. Without `waits` it returns at once
    /// if the lock may not be released yet: false.
    pub async fn finish(&mut self, leadership: &Leadership, waits: bool) -> bool {
        self.end(leadership, leadership.deadline(), async {}).await;
        let Some(term) = self.term.take() else { return true };
        let by = leadership.deadline().min(BootClock.now() + WITHDRAWAL + ANSWER);
        if let Some(traffic) = &mut self.traffic
            && !traffic.withdraw(by).await
            && traffic.has_addresses()
        {
            traffic.kill(); // it is suspended or hangs: another one removes what it has left
        }
        let has_addresses =
            |this: &Self| this.traffic.as_ref().is_some_and(TrafficHandle::has_addresses);
        if term.unfinished.is_none() && !has_addresses(self) {
            return true;
        }
        resign(leadership, Some(&self.election)); // it renews no more
        if let Some(why) = &term.unfinished {
            output::note(format!("incumbent: {why}; the lock is left to its lease"));
        }
        while waits
            && BootClock.now() < leadership.deadline()
            && (term.unfinished.is_some() || has_addresses(self))
        {
            if let Some(traffic) = &mut self.traffic {
                traffic.withdraw(leadership.deadline()).await;
            }
            tokio::time::sleep(RETRY).await;
        }
        waits
    }

    /// `/leading` returns 503 from now on, and requests are withdrawn, which is waited for within a
    /// part of the grace: what hangs does not delay the end of the work.
    async fn close(&mut self, deadline: Instant) {
        self.health.serves(false);
        let Some(term) = self.term.as_mut().filter(|term| !term.closed) else { return };
        term.closed = true;
        if let Some(traffic) = &mut self.traffic {
            traffic.withdraw(deadline.min(BootClock.now() + self.grace.stop / 4)).await;
        }
    }

    fn environment(&self, event: &str, cause: Option<&str>) -> Vec<(&'static str, OsString)> {
        let token = Token(self.term.as_ref().map_or(0, |term| term.token));
        let mut environment = variables(&self.election, token, &self.file).to_vec();
        environment.push(("INCUMBENT_EVENT", event.into()));
        environment.extend(cause.map(|cause| ("INCUMBENT_CAUSE", cause.into())));
        environment
    }

    /// Gives up a term whose start failed, and stands aside for a while. Returns until when.
    pub fn refuse(&mut self, leadership: &Leadership, began: Instant, why: &str) -> Instant {
        let pause = self.restarts.pause_after(began);
        if !self.health.is_cordoned() {
            self.stands_aside = true;
            self.election.stand_aside(true);
        }
        leadership.resign();
        if let Some(term) = &mut self.term {
            term.refused = true;
        }
        output::note(format!(
            "incumbent: {why}: the term is given up; standing aside for {}",
            humantime::format_duration(pause)
        ));
        BootClock.now() + pause
    }

    /// The pause after a refused term is over.
    pub fn stand_ready(&mut self) {
        if std::mem::take(&mut self.stands_aside) && !self.health.is_cordoned() {
            self.election.stand_aside(false);
        }
    }

    /// Why the term ends: this program ends it, unless the election does.
    fn cause_of(&self, term: &OpenTerm, leadership: &Leadership) -> &'static str {
        match leadership.ended().now_or_never() {
            Some(loss) => loss.cause.as_str(),
            None if term.refused => "resigned",
            None => "stopped",
        }
    }
}
