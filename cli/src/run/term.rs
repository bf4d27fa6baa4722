//! What goes with a term of a leader, beside its work: hooks, and what directs requests here.
//!
//! At the start: `--on-won`, then the address, the Service and the label, then `/leading` returns
//! 200 and COMMAND starts. At the end: `/leading` returns 503, then the address, the Service and
//! the label are withdrawn, then `--on-lost` runs while COMMAND stops, then the lock is released.
//! Each step has its bound, and all end before the deadline.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, Leadership, Loss, Standing};

use super::deadline::{DEADLINE_FILE, DeadlineFile, sleep_until};
use super::grace::Grace;
use super::hooks::{HookArgs, RunningHook};
use super::restarts::Restarts;
use crate::candidate::{Health, RunningCandidate};
use crate::error::{CliError, Code};
use crate::output;
use crate::process::{StopTimes, own_arguments};
use crate::traffic::{MARKER, TrafficArgs, TrafficHandle, WITHDRAWAL};

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
        self.hooks.on_won.is_none() && self.hooks.on_lost.is_none() && self.traffic.is_empty()
    }

    /// Checks what directs requests here, before the campaign. `rest`: arguments that this program
    /// requires after its own.
    pub async fn start(
        &self,
        lease: Duration,
        file: &DeadlineFile,
        rest: &[&str],
    ) -> Result<Option<TrafficHandle>, CliError> {
        if self.traffic.is_empty() {
            return Ok(None);
        }
        let arguments = own_arguments(rest).ok_or_else(|| {
            CliError::new(Code::Usage, "an argument is not UTF-8, as flags of addresses require")
        })?;
        TrafficHandle::start(arguments, lease, file.directory().join(MARKER)).await.map(Some)
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
    /// Whether anything is to be done.
    is_empty: bool,
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
    /// The end of `--on-lost`, once it ran.
    on_lost: Option<Result<(), String>>,
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
        let is_empty = args.is_empty();
        candidate.health.serves(is_empty);
        Self {
            hooks: args.hooks.clone(),
            traffic,
            election: candidate.election.clone(),
            health: Arc::clone(&candidate.health),
            grace,
            file: file.path().to_owned(),
            withheld,
            is_empty,
            term: None,
            restarts: Restarts::default(),
            stands_aside: false,
        }
    }

    /// Begins a term, unless it ends or `interrupt` completes before. `finish` must follow.
    pub async fn begin<T>(
        &mut self,
        leadership: &Leadership,
        interrupt: impl Future<Output = T>,
    ) -> Begun<T> {
        if self.is_empty {
            return Begun::Yes;
        }
        let token = leadership.token().0;
        self.term =
            Some(OpenTerm { token, closed: false, failed: false, refused: false, on_lost: None });
        let mut hook = None;
        if let Some(text) = &self.hooks.on_won {
            let until = self.grace.until(leadership.deadline());
            let environment = self.environment("won", None);
            let withheld = self.withheld.clone();
            match RunningHook::start("--on-won", text, &environment, until, withheld) {
                Ok(started) => hook = Some(started),
                Err(error) => return Begun::Refused(format!("--on-won cannot be run: {error}")),
            }
        }
        let Self { traffic, grace, .. } = self;
        let work = async {
            if let Some(hook) = &mut hook {
                hook.ended(Some((leadership, grace))).await?;
            }
            match traffic {
                Some(traffic) => {
                    traffic.direct(token, grace.until(leadership.deadline())).await?;
                    traffic.extend(grace.until(leadership.deadline())); // it may have been renewed
                    Ok(())
                }
                None => Ok::<(), String>(()),
            }
        };
        let begun = tokio::select! {
            biased;
            loss = leadership.ended() => Begun::Lost(loss),
            _ = leadership.draining() => {
                self.election.end_drain(); // there is no work yet
                Begun::Lost(leadership.ended().await)
            }
            interrupt = interrupt => Begun::Interrupted(interrupt),
            done = work => match done {
                Ok(()) => Begun::Yes,
                Err(why) => Begun::Refused(why),
            },
        };
        match &begun {
            Begun::Yes => self.health.serves(true),
            _ => {
                if let Some(hook) = hook {
                    hook.stop(self.kill_at(leadership.deadline())).await;
                }
            }
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

    /// Waits until requests no longer come here although the term goes on: why. Cancel safe.
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
        self.close(deadline).await;
        let kill_at = self.kill_at(deadline);
        let hook = async {
            let text = self.hooks.on_lost.as_ref().filter(|_| self.term.is_some())?;
            if self.term.as_ref().is_some_and(|term| term.on_lost.is_some()) {
                return None;
            }
            let environment = self.environment("lost", Some(self.cause_of(leadership)));
            let until = StopTimes { ask_at: kill_at, kill_at };
            let withheld = self.withheld.clone();
            let hook = RunningHook::start("--on-lost", text, &environment, until, withheld);
            Some(match hook {
                Ok(mut hook) => hook.ended(None).await,
                Err(error) => Err(format!("--on-lost cannot be run: {error}")),
            })
        };
        let ((), done) = tokio::join!(stop, hook);
        if let (Some(term), Some(done)) = (&mut self.term, done) {
            term.on_lost = Some(done);
        }
    }

    /// Ends the term, if it has not ended yet, and waits until its lock may be released. Call it
    /// once no work is left, and drop the `Leadership` then.
    pub async fn finish(&mut self, leadership: &Leadership) {
        let deadline = leadership.deadline();
        self.end(leadership, deadline, async {}).await;
        let Some(term) = self.term.take() else { return };
        if let Some(traffic) = &mut self.traffic {
            traffic.withdraw(deadline.min(BootClock.now() + WITHDRAWAL)).await;
            if !traffic.addresses_are_removed() {
                traffic.withdraw(deadline).await;
            }
        }
        if let Some(Err(why)) = term.on_lost {
            output::note(format!("incumbent: {why}; the lock is left to its lease"));
            sleep_until(deadline).await;
        }
    }

    /// `/leading` returns 503 from now on, and requests are withdrawn, which is waited for within a
    /// part of the grace: what hangs does not delay the end of the work.
    async fn close(&mut self, deadline: Instant) {
        let Some(term) = self.term.as_mut().filter(|term| !term.closed) else { return };
        term.closed = true;
        self.health.serves(false);
        if let Some(traffic) = &mut self.traffic {
            traffic.withdraw(deadline.min(BootClock.now() + self.grace.stop / 4)).await;
        }
    }

    fn kill_at(&self, deadline: Instant) -> Instant {
        self.grace.kill_at(deadline)
    }

    fn environment(&self, event: &str, cause: Option<&str>) -> Vec<(&'static str, OsString)> {
        let token = self.term.as_ref().map_or(0, |term| term.token);
        let mut environment = vec![
            ("INCUMBENT_ELECTION", self.election.name().into()),
            ("INCUMBENT_IDENTITY", self.election.identity().into()),
            ("INCUMBENT_TOKEN", token.to_string().into()),
            (DEADLINE_FILE, self.file.clone().into()),
            ("INCUMBENT_EVENT", event.into()),
        ];
        environment.extend(cause.map(|cause| ("INCUMBENT_CAUSE", cause.into())));
        environment
    }

    /// Gives up a term whose start failed, and stands aside for a while. Returns until when.
    pub fn refuse(&mut self, leadership: &Leadership, began: Instant, why: &str) -> Instant {
        let pause = self.restarts.pause_after(began);
        output::note(format!(
            "incumbent: {why}: the term is given up; standing aside for {}",
            humantime::format_duration(pause)
        ));
        if self.election.watch().current().standing != Standing::Aside {
            self.stands_aside = true;
            self.election.stand_aside(true);
        }
        leadership.resign();
        if let Some(term) = &mut self.term {
            term.refused = true;
        }
        BootClock.now() + pause
    }

    /// The pause after a refused term is over.
    pub fn stand_ready(&mut self) {
        if std::mem::take(&mut self.stands_aside) {
            self.election.stand_aside(false);
        }
    }

    /// Why the term ends: this program ends it, unless the election does.
    fn cause_of(&self, leadership: &Leadership) -> &'static str {
        match leadership.ended().now_or_never() {
            Some(loss) => loss.cause.as_str(),
            None if self.term.as_ref().is_some_and(|term| term.refused) => "resigned",
            None => "stopped",
        }
    }
}
