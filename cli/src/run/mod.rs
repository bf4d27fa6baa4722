//! `incumbent run`: a command that runs while this process leads.
//!
//! Four processes take part, and a fifth where requests follow the leader (`traffic`). The
//! candidate (`candidate`) holds the election. The guard (`guard`) is the parent of the command,
//! and stops its whole process tree in time even if the candidate cannot. Between both is a reaper
//! (`process::reaper`), which ends what a killed guard leaves. `guard::exec` replaces itself by the
//! command, tied to the guard. `for_life` is the candidate of `incumbent life`, and
//! `without_command` that of `incumbent campaign`.

mod args;
mod candidate;
mod checkpoint;
mod deadline;
mod ending;
mod for_life;
mod grace;
mod guard;
mod guarded;
mod hooks;
mod restarts;
mod signals;
mod term;
mod terms;
pub mod traffic;
mod wait_limit;
mod watchdog;
mod without_command;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use incumbent::clock::{BootClock, Clock};

pub use self::args::{OnExit, Program, Run, StopArgs, parse_signal};
use self::candidate::CommandCandidate;
use self::checkpoint::CheckpointFile;
pub use self::deadline::{DeadlineFile, check_uptime};
pub use self::ending::Ending;
pub use self::for_life::Life;
pub use self::grace::Grace;
use self::guard::WatchdogDevice;
pub use self::guard::{CommandFailure, SentinelArgs, unstopped};
pub use self::guarded::{CommandEnd, GuardedCommand, Order, new_orders};
pub use self::hooks::{HOOK, HOOK_LIMIT, prepare_children, run_hook};
pub use self::restarts::Restarts;
pub use self::signals::{SignalAction, Signals, exit_code, suspend_self};
use self::term::TermActions;
pub use self::terms::{Terms, channel as channel_of_terms};
pub use self::watchdog::Watchdog;
pub use self::without_command::CampaignTerms;
use crate::error::{CliError, Code};
use crate::process::{NO_COMMAND, reaper};

/// For tests: the arithmetic of a lease and a grace.
#[cfg(test)]
pub fn check_grace_bounds(lease: std::time::Duration, asked: std::time::Duration) {
    if let Ok(grace) = Grace::new(lease, Some(asked)) {
        let deadline = incumbent::clock::Instant::from_origin(asked);
        let _ = (grace.total(), grace.until(deadline), grace.kill_at(deadline));
    }
}

/// Runs as one of the helper processes, if the program was started as such.
pub fn inner(
    mut args: impl Iterator<Item = OsString>,
    parse: guard::ParseArgs,
    parse_traffic: traffic::ParseTraffic,
) -> Option<ExitCode> {
    match args.nth(1)?.to_str()? {
        reaper::SUBCOMMAND => Some(reaper::run(args)),
        guard::GUARD_SUBCOMMAND => Some(guard::watch(args, parse)),
        traffic::SUBCOMMAND => Some(traffic::run(args, parse_traffic)),
        guard::EXEC_SUBCOMMAND => Some(guard::become_command(args)),
        _ => None,
    }
}

impl Run {
    /// The lock of the sentinel of a candidate.
    pub fn sentinel_args(self) -> SentinelArgs {
        SentinelArgs { lock: self.lock, object: self.candidate.lease.object }
    }

    pub async fn run(mut self) -> Result<ExitCode, CliError> {
        let started = BootClock.now();
        if self.once_per.is_some() && self.on_exit == OnExit::Restart {
            let message = "--once-per and --on-exit restart exclude each other: leave out one";
            return Err(CliError::new(Code::Usage, message));
        }
        let mut signals = match self.program.prepare()? {
            Ok(signals) => signals,
            Err(code) => return Ok(code),
        };
        self.checkpoint.as_deref().map_or(Ok(()), CheckpointFile::check)?;
        self.candidate.moves = std::mem::take(&mut self.moves);
        let mut wait_limit = self.waiting.begin(self.lock.request_timeout());
        self.candidate.reach = wait_limit.reach();
        let file = DeadlineFile::create_for_long()?;
        deadline::check_uptime();
        let (asked, term, mut traffic) = (self.stop.grace, self.term.clone(), None);
        let (path, mut watchdog_device) = (self.watchdog.clone(), None);
        let prepare = async |lease| {
            let grace = Grace::new(lease, asked)?;
            let check = |path: &PathBuf| WatchdogDevice::check(path, lease, &grace);
            watchdog_device = path.as_ref().map(check).transpose()?;
            traffic = term.start((lease, grace), &file, &NO_COMMAND).await?;
            Ok(Some(grace.total()))
        };
        // What --on-lost would do is not done if this process is killed: its lease is waited for.
        let releases = !self.stop.no_sentinel && self.term.hooks.on_lost.is_none();
        let (sentinel, terms) = terms::channel(releases);
        self.candidate.sentinel = Some(sentinel);
        self.candidate.drain = self.stop.drain;
        self.candidate.checkpoint = self.checkpoint.is_some() || self.once_per.is_some();
        let candidate = match self.candidate.start(&self.lock, signals.end(), prepare).await? {
            Ok((candidate, _)) => candidate,
            Err(signal) => return Ok(ExitCode::from(exit_code(signal))),
        };
        wait_limit.opened();
        let grace = Grace::new(candidate.lease, asked)?;
        let term = TermActions::new(&self.term, traffic, &candidate, grace, &file, self.withheld());
        let watchdog = Watchdog::start(candidate.election.clone(), false);
        let mut running = CommandCandidate {
            candidate,
            signals,
            file,
            grace,
            watchdog,
            watchdog_device,
            wait_limit,
            terms,
            term,
            not_before: None,
            checkpoint: None,
            options: self,
            restarts: Restarts::default(),
            started,
            took_period: None,
            ending: None,
        };
        let code = running.campaign().await;
        running.candidate.stop().await;
        code.map(ExitCode::from)
    }
}
