//! The candidate's end of the pipe: a command behind its guard.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::future::pending;
use std::io::{self, ErrorKind, Read, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::config::{GuardConfig, SUBCOMMAND};
use super::device::WatchdogDevice;
use super::messages::{GuardEvent, GuardRequest, send_fd};
use crate::candidate::NOTIFY_SOCKET;
use crate::config::seen;
use crate::error::{CliError, Code};
use crate::process::reaper::{self, KILL_TREE, OURSELVES, RESUME};
use crate::process::{
    Cgroup, NO_COMMAND, StopTimes, Terminal, Unsent, own_arguments, send, sleep_until,
};
use crate::run::signals::{hung_up, suspend_self};
use crate::run::terms::Terms;

/// A running command with all its descendants.
pub struct GuardHandle {
    /// The parent of the guard.
    reaper: Child,
    /// Written without waiting: a suspended guard does not read.
    requests: StdStream,
    events: Lines<BufReader<UnixStream>>,
    terminal: Option<Terminal>,
    cgroup: Option<Cgroup>,
    /// What the guard has armed, unless it has disarmed it.
    watchdog: Option<WatchdogDevice>,
    /// What the guard releases if this process dies.
    terms: Option<Terms>,
    /// A change of the terms is sent, and not acknowledged.
    term_is_sent: bool,
    /// Requests without acknowledgement, the oldest first.
    unacknowledged: VecDeque<GuardRequest>,
    /// The acknowledged schedule of the guard.
    until: Option<StopTimes>,
    /// The guard does not read requests.
    channel_full: bool,
    /// Why the tree is not known to have ended, once it was to.
    pub left: Option<String>,
    /// The exit code of the command, once it ended.
    pub code: Option<u8>,
    /// The time of the last Ctrl-C or similar signal.
    interrupted: Option<Instant>,
    /// Why the command is stopped, unless on request. An `event` may be dropped meanwhile.
    stopped_by: Option<CommandEvent>,
    /// Whether no process is left.
    empty: bool,
    /// The reaper has ended by itself.
    reaper_has_ended: bool,
    /// When to end the wait for processes that the reaper was to kill.
    give_up_at: Option<Instant>,
}

/// A command that ends this soon after Ctrl-C ended because of it.
const INTERRUPT_WINDOW: Duration = Duration::from_secs(10);
/// How much later than the guard the candidate acts itself.
const GUARD_MARGIN: Duration = Duration::from_millis(10);
/// How long to wait for killed processes: a large one takes time to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// An event of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEvent {
    /// The command and all its descendants ended.
    Ended,
    /// The terminal was closed.
    HungUp,
    /// The guard stopped the command because the candidate sent no later schedule, or the candidate
    /// stopped it because the guard did not.
    Expired,
    /// The guard or its reaper was killed, and the command with it.
    Unguarded,
}

/// Why a command cannot be run, or no longer.
#[derive(Debug)]
pub enum CommandFailure {
    Failed(CliError),
    /// These processes could not be stopped: nothing may be released.
    Left(String),
}

impl From<CliError> for CommandFailure {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

/// Of a start.
impl From<io::Error> for CommandFailure {
    fn from(error: io::Error) -> Self {
        Self::Failed(CliError::new(Code::Failed, format!("cannot start run-guard: {error}")))
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Left(left) => f.write_str(left),
        }
    }
}

/// The error after this event.
pub fn unguarded() -> CliError {
    let message = "the guard of the command (run-guard, run-reaper) failed or was killed, and the \
         command with it";
    CliError::new(Code::Failed, message)
}

/// The error of processes that could not be stopped.
pub fn unstopped(left: &str) -> CliError {
    let message = format!(
        "COMMAND could not be stopped: {left}; its lock is not released, and another candidate may \
         lead after the lease: stop it now"
    );
    CliError::new(Code::Failed, message)
}

impl GuardHandle {
    /// Starts a guard, which starts the command. `is_alone`: a command beside others has no
    /// terminal and no standard input.
    pub fn start(
        command: &[OsString],
        environment: &[(&str, OsString)],
        terms: Option<Terms>,
        config: GuardConfig,
        is_alone: bool,
    ) -> Result<Self, CommandFailure> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        // Before the start: after it nothing may fail.
        let events = BufReader::new(UnixStream::from_std(ours.try_clone()?)?).lines();
        match is_alone {
            true => send_fd(&ours, stdin().as_fd())?,
            false => send_fd(&ours, File::open("/dev/null")?.as_fd())?,
        }
        let terminal = is_alone.then(Terminal::of_candidate).flatten();
        let cgroup = config.cgroup.as_ref().map(Cgroup::path);
        let mut guard = reaper::command(terminal.is_some(), cgroup);
        if terms.is_none() {
            for variable in &config.withheld {
                guard.env_remove(variable); // a sentinel needs the credentials
            }
        }
        for variable in seen() {
            guard.env_remove(variable); // of an outer incumbent
        }
        guard
            .args([OURSELVES, SUBCOMMAND])
            .args(config.to_args(terminal.as_ref().map(Terminal::candidates)))
            .args(command)
            .env_remove(NOTIFY_SOCKET)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        let mut guard = Command::from(guard);
        let spawned = guard.spawn();
        drop(guard); // with its end of the channel
        let reaper = match spawned {
            Ok(reaper) => reaper,
            // It runs, and cannot be watched: it stops the command by itself.
            Err(error) if has_reader(&ours) => {
                return Err(CommandFailure::Left(format!("its reaper cannot be watched: {error}")));
            }
            Err(error) => return Err(error.into()),
        };
        let mut handle = Self {
            reaper,
            requests: ours,
            events,
            terminal,
            cgroup: config.cgroup,
            watchdog: config.watchdog,
            unacknowledged: VecDeque::new(),
            until: config.until,
            channel_full: false,
            left: None,
            code: None,
            interrupted: None,
            stopped_by: None,
            terms,
            term_is_sent: false,
            empty: false,
            reaper_has_ended: false,
            give_up_at: None,
        };
        if let (true, Some(args)) = (handle.terms.is_some(), own_arguments(&NO_COMMAND)) {
            handle.request(GuardRequest::Sentinel(args));
        }
        Ok(handle)
    }

    /// Sends a request. If the guard is gone, its last event reports it.
    pub fn request(&mut self, request: GuardRequest) {
        match send(&self.requests, &request) {
            Err(Unsent::NotRead) => self.channel_full = true,
            Ok(()) | Err(Unsent::Gone) => self.unacknowledged.push_back(request),
        }
    }

    /// Waits for an event that the candidate must act upon. Cancel safe.
    pub async fn event(&mut self) -> CommandEvent {
        loop {
            let missed = missed(self.channel_full, self.until, self.stopped_by.is_some());
            let line = tokio::select! {
                biased;
                line = self.events.next_line() => line.ok().flatten(),
                // One at a time: a guard that reads is not flooded.
                () = differ(&mut self.terms), if !self.term_is_sent => {
                    if let Some(change) = self.terms.as_mut().and_then(Terms::next_change) {
                        self.term_is_sent = true;
                        self.request(GuardRequest::Term(change));
                    }
                    continue;
                }
                () = missed => {
                    self.stopped_by = Some(CommandEvent::Expired);
                    self.stop_without_guard().await;
                    break;
                }
                ended = self.reaper.wait(), if !self.reaper_has_ended => {
                    if ended.is_ok_and(|status| status.signal().is_some()) {
                        // It was killed: nobody would end what a killed guard leaves.
                        self.stopped_by = Some(CommandEvent::Unguarded);
                        self.stop(BootClock.now()).await;
                        break;
                    }
                    self.reaper_has_ended = true;
                    continue;
                }
            };
            match line.map(|line| serde_json::from_str(&line)) {
                Some(Ok(event)) => {
                    if let Some(event) = self.note(event) {
                        return event;
                    }
                    if self.empty {
                        break;
                    }
                }
                Some(Err(_)) => {}
                None => break,
            }
        }
        self.finish();
        self.stopped_by.unwrap_or(match self.code {
            Some(_) => CommandEvent::Ended,
            None => CommandEvent::Unguarded,
        })
    }

    fn note(&mut self, event: GuardEvent) -> Option<CommandEvent> {
        match event {
            GuardEvent::Ended { code } => self.code = Some(code),
            GuardEvent::Stopped(signal) => self.stopped(signal),
            GuardEvent::Interrupted(signal) => {
                if signal == Signal::HUP.as_raw() {
                    return hung_up().then_some(CommandEvent::HungUp);
                }
                self.interrupted = Some(BootClock.now());
            }
            GuardEvent::Expired => self.stopped_by = Some(CommandEvent::Expired),
            GuardEvent::Empty => self.empty = true,
            GuardEvent::Received => match self.unacknowledged.pop_front() {
                Some(GuardRequest::RunUntil(until)) => self.until = Some(until),
                Some(GuardRequest::Term(_)) => self.term_is_sent = false,
                _ => {}
            },
            GuardEvent::Left(left) => self.left = Some(left),
            GuardEvent::Disarmed => self.watchdog = None,
        }
        None
    }

    /// Sends the stop signal, kills what is left at `kill_at`, and returns when no process is left,
    /// or when those that are have been killed for a while: see `left`.
    pub async fn stop(&mut self, kill_at: Instant) {
        self.request(GuardRequest::Stop { kill_at });
        self.end_by(kill_at).await;
    }

    /// Stops the tree of a guard that does not act at its scheduled time.
    pub async fn stop_without_guard(&mut self) {
        self.signal_reaper(RESUME); // the guard may be suspended
        let kill_at = self.until.map_or_else(|| BootClock.now(), |until| until.kill_at);
        self.end_by(kill_at).await;
    }

    /// Waits for the guard until `kill_at`, and for its reaper then.
    async fn end_by(&mut self, kill_at: Instant) {
        if !self.has_ended_by(kill_at + GUARD_MARGIN).await {
            self.signal_reaper(KILL_TREE); // the guard is suspended or busy
            self.signal_reaper(Signal::CONT);
            // Also if this wait is dropped, and begun again.
            let give_up_at = || BootClock.now() + KILL_TIMEOUT;
            let give_up_at = *self.give_up_at.get_or_insert_with(give_up_at);
            self.has_ended_by(give_up_at).await;
        }
        self.finish();
    }

    /// Waits until there are no more events. Returns whether there are none.
    async fn has_ended_by(&mut self, until: Instant) -> bool {
        let too_late = sleep_until(until);
        tokio::pin!(too_late);
        while !self.empty {
            let line = tokio::select! {
                biased;
                () = &mut too_late => return false,
                line = self.events.next_line() => line,
            };
            let Ok(Some(line)) = line else { break };
            match serde_json::from_str(&line) {
                Ok(GuardEvent::Ended { code }) => self.code = Some(code),
                Ok(GuardEvent::Empty) => self.empty = true,
                Ok(GuardEvent::Left(left)) => self.left = Some(left),
                Ok(GuardEvent::Disarmed) => self.watchdog = None,
                _ => {}
            }
        }
        if !self.empty {
            self.empty = tokio::select! {
                biased;
                () = &mut too_late => return false,
                ended = self.reaper.wait() => ended.is_ok_and(never_started),
            };
        }
        true
    }

    /// Notes whether the tree has ended: only what had no child to wait for knows.
    fn finish(&mut self) {
        let unknown = "its guard and the reaper were killed, and may have left processes";
        match self.empty {
            true => self.left = None,
            false => drop(self.left.get_or_insert_with(|| unknown.to_owned())),
        }
        let kills = self.cgroup.as_ref().and_then(Cgroup::kill);
        // This process may end at once, and nothing else kills what is left.
        if !self.empty
            && let Some(kills) = kills
        {
            let _ = kills.recv_timeout(Cgroup::LIMIT);
        }
        // A guard that was killed has left it armed.
        if self.empty
            && let Some(Err(error)) = self.watchdog.take().map(|device| device.disarm())
        {
            let message = format!("the watchdog cannot be disarmed: {error}");
            CliError::new(Code::Failed, message).report();
        }
    }

    fn signal_reaper(&self, signal: Signal) {
        // None: it has ended.
        let pid = self.reaper.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let _ = pid.map(|pid| kill_process(pid, signal));
    }

    /// Suspends this process with the command, and resumes with it.
    pub fn suspend(&mut self) {
        self.request(GuardRequest::Suspend);
        self.suspend_self();
    }

    fn stopped(&mut self, signal: i32) {
        // Without a terminal no shell waits for this process to stop.
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|s| s.as_raw() == signal);
        // The command needed the terminal while in the background, and is in the foreground now.
        if wants_terminal && terminal.is_ours() {
            self.resume();
        } else {
            self.suspend_self();
        }
    }

    fn suspend_self(&mut self) {
        suspend_self();
        self.resume();
    }

    fn resume(&self) {
        self.signal_reaper(RESUME);
    }

    /// Whether a user at the terminal ended it.
    pub fn was_interrupted(&self) -> bool {
        let recently = |at: Instant| BootClock.now().saturating_since(at) < INTERRUPT_WINDOW;
        self.interrupted.is_some_and(recently)
    }
}

impl Drop for GuardHandle {
    fn drop(&mut self) {
        if let Some(cgroup) = self.cgroup.take() {
            let _ = thread::Builder::new().spawn(move || drop(cgroup)); // which may take a second
        }
    }
}

/// Whether a process has the other end of this channel, which does not block.
fn has_reader(mut channel: &StdStream) -> bool {
    // Another child that starts at this moment has it until it executes its program.
    const LOOKS: u32 = 100;
    (0..LOOKS).all(|_| {
        thread::sleep(Duration::from_millis(1));
        match channel.read(&mut [0]) {
            Ok(read) => read > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    })
}

/// Whether the reaper has ended by a signal of this process. It handles them before it starts the
/// guard: on a busy machine a term may be over before that.
fn never_started(reaper: ExitStatus) -> bool {
    [KILL_TREE, RESUME].iter().any(|ours| reaper.signal() == Some(ours.as_raw()))
}

/// Waits until the terms have a change to send. Cancel safe.
async fn differ(terms: &mut Option<Terms>) {
    match terms {
        Some(terms) => terms.differ().await,
        None => pending().await,
    }
}

/// Waits for the scheduled time of an event of the guard; forever without a schedule.
async fn missed(channel_full: bool, until: Option<StopTimes>, stops: bool) {
    match until {
        _ if channel_full => {}
        Some(until) if stops => sleep_until(until.kill_at + GUARD_MARGIN).await,
        Some(until) => sleep_until(until.ask_at + GUARD_MARGIN).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else the lock would be released beside a command that was started all the same.
    #[test]
    fn process_that_was_started_has_the_channel() {
        let (ours, theirs) = StdStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        send_fd(&ours, File::open("/dev/null").unwrap().as_fd()).unwrap();
        assert!(has_reader(&ours));
        drop(theirs);
        assert!(!has_reader(&ours));
    }

    #[test]
    fn a_reaper_that_our_signals_end_has_started_nothing() {
        for (signal, expected) in
            [(KILL_TREE, true), (RESUME, true), (Signal::KILL, false), (Signal::TERM, false)]
        {
            assert_eq!(never_started(ExitStatus::from_raw(signal.as_raw())), expected);
        }
        assert!(!never_started(ExitStatus::from_raw(0)));
    }
}
