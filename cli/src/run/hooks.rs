//! `--on-won` and `--on-lost`: shell commands at the start and the end of a term.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::Signal;

use super::guard::{CommandEvent, CommandFailure, GuardConfig, GuardHandle, GuardRequest};
use crate::error::{CliError, Code};
use crate::process::{Cgroup, StopTimes, hide_credentials, reaper};

/// A hook, in the errors of `prepare_children`.
pub const HOOK: &str = "a hook";

/// The flags of the hooks.
#[derive(Debug, Clone, Default, Args)]
pub struct HookArgs {
    /// Run this shell command when a term begins, before anything else of the term.
    ///
    /// The term counts as begun once it has ended: COMMAND starts then, /leading of --http returns
    /// 200, and requests are directed to this process. Any exit code but 0 refuses the term: the
    /// lock is released, and this process stands aside for 1s, then 2s and so on up to 30s. It has
    /// the variables that COMMAND of `incumbent run` has, but for those of --checkpoint, and
    /// INCUMBENT_EVENT, which is `won`. It is killed before the deadline. What it leaves running is
    /// stopped when it ends: start a service by `systemctl start`. Its output goes to standard
    /// error.
    #[arg(long, value_name = "COMMAND", help_heading = "Terms")]
    pub on_won: Option<String>,
    /// Run this shell command when a term ends, while the work stops, and before the lock is
    /// released.
    ///
    /// It has the grace, and then it is killed. INCUMBENT_EVENT is `lost`, INCUMBENT_CAUSE why. It
    /// also runs after an --on-won that failed. If it fails, the lock is not released, but left to
    /// its lease; so it is if this process is killed, and the hook does not run. It may be killed
    /// when the lock cannot be reached: do what must not fail in COMMAND of `incumbent run`, whose
    /// processes are stopped in any case.
    #[arg(long, value_name = "COMMAND", help_heading = "Terms")]
    pub on_lost: Option<String>,
}

impl HookArgs {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.on_won.is_none() && self.on_lost.is_none()
    }
}

/// A hook that runs.
pub struct RunningHook {
    flag: &'static str,
    guard: GuardHandle,
}

impl RunningHook {
    /// Starts the shell command. It is killed at the end of the schedule, also if this process is.
    pub fn start(
        flag: &'static str,
        text: &str,
        environment: &[(&str, OsString)],
        until: StopTimes,
        withheld: Vec<String>,
    ) -> Result<Self, CommandFailure> {
        // Standard output is for the results of this program, and for those of COMMAND.
        let command = ["/bin/sh", "-c", "exec >&2; eval \"$1\"", "sh", text].map(OsString::from);
        let config = GuardConfig {
            cgroup: Cgroup::create(),
            until: Some(until),
            // Without a grace, once this process is gone.
            ..GuardConfig::new(Signal::TERM, Duration::ZERO, withheld)
        };
        let guard = GuardHandle::start(&command, environment, None, config, false)?;
        Ok(Self { flag, guard })
    }

    /// Moves its schedule with the term.
    pub fn extend(&mut self, until: StopTimes) {
        self.guard.request(GuardRequest::RunUntil(until));
    }

    /// Waits for its end. Cancel safe.
    pub async fn ended(&mut self) -> Result<(), String> {
        loop {
            if self.guard.code.is_some() {
                self.all_ended()?; // what cannot be stopped is not waited for
            }
            tokio::select! {
                event = self.guard.event() => return self.outcome(event),
                () = tokio::time::sleep(LOOK_FOR_LEFT) => {}
            }
        }
    }

    fn all_ended(&self) -> Result<(), String> {
        match &self.guard.left {
            Some(left) => Err(format!("{} could not be stopped: {left}", self.flag)),
            None => Ok(()),
        }
    }

    fn outcome(&self, event: CommandEvent) -> Result<(), String> {
        let flag = self.flag;
        self.all_ended()?;
        match (event, self.guard.code) {
            (CommandEvent::Ended, Some(0)) => Ok(()),
            (CommandEvent::Ended, code) => {
                Err(format!("{flag} exited with code {}", code.unwrap_or(1)))
            }
            (CommandEvent::Expired, _) => Err(format!("{flag} did not end in time")),
            (CommandEvent::HungUp, _) => Err(format!("{flag}: the terminal was closed")),
            (CommandEvent::Unguarded, _) => Err(format!("the guard of {flag} was killed")),
        }
    }

    /// Stops it, and kills what is left of it at this time. Fails if processes remain.
    pub async fn stop(&mut self, kill_at: Instant) -> Result<(), String> {
        self.guard.stop(kill_at).await;
        self.all_ended()
    }
}

/// How often to look whether processes remain that cannot be stopped.
const LOOK_FOR_LEFT: Duration = Duration::from_secs(1);
/// How long a hook outside of a term may take.
pub const HOOK_LIMIT: Duration = Duration::from_secs(60);

/// Runs a hook outside of a term.
pub async fn run_hook(
    flag: &'static str,
    text: &str,
    environment: &[(&str, OsString)],
    withheld: Vec<String>,
) -> Result<(), String> {
    let kill_at = BootClock.now() + HOOK_LIMIT;
    let until = StopTimes { ask_at: kill_at, kill_at };
    let hook = RunningHook::start(flag, text, environment, until, withheld);
    hook.map_err(|failure| format!("{flag} cannot be run: {failure}"))?.ended().await
}

/// Checks that `what` could be stopped, and hides the credentials of the lock from it.
pub fn prepare_children(what: &str) -> Result<(), CliError> {
    reaper::check().map_err(|why| {
        CliError::new(Code::Failed, format!("{what} could not be stopped here: {why}"))
    })?;
    hide_credentials();
    Ok(())
}
