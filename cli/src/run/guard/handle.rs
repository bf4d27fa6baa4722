//! The candidate's end of the pipe: a command behind its guard.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::future::pending;
use std::io::{self, ErrorKind, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;

use incumbent::sentinel::ENVIRONMENT;

use super::channel;
use super::config::{GuardConfig, OURSELVES, SUBCOMMAND};
use super::messages::{GuardEvent, GuardRequest, StopTimes};
use crate::candidate::{CheckProcesses, NOTIFY_SOCKET};
use crate::output;
use crate::process::{Cgroup, Guards, reap_one, tree};
use crate::run::deadline::DEADLINE_FILE;
use crate::run::signals::{hung_up, suspend_self};
use crate::run::terminal::Terminal;
use crate::run::terms::Terms;
use crate::run::timer::sleep_until;

/// A running command with all its descendants.
pub struct GuardHandle {
    /// Also leads the process group of the command.
    guard: Pid,
    /// Written without waiting: a suspended guard does not read.
    requests: StdStream,
    events: Lines<BufReader<UnixStream>>,
    terminal: Option<Terminal>,
    cgroup: Option<Cgroup>,
    /// What the guard releases if this process dies.
    terms: Option<Terms>,
    /// The processes of the check of this candidate.
    check: CheckProcesses,
    /// The stop signal.
    signal: Signal,
    /// Requests without acknowledgement, the oldest first.
    unacknowledged: VecDeque<GuardRequest>,
    /// The acknowledged schedule of the guard.
    until: Option<StopTimes>,
    /// The guard does not read requests.
    channel_full: bool,
    /// The processes that could not be stopped.
    pub left: Option<String>,
    /// The exit code of the command, once it ended.
    pub code: Option<u8>,
    /// The time of the last Ctrl-C or similar signal.
    interrupted: Option<Instant>,
    /// Whether the guard stops the command by its schedule.
    expired: bool,
    /// The guards of all commands, if this one is not alone.
    guards: Option<Guards>,
    /// Whether the guard has ended, and left no process.
    empty: bool,
}

/// A command that ends this soon after Ctrl-C ended because of it.
const INTERRUPT_WINDOW: Duration = Duration::from_secs(10);
/// How much later than the guard the candidate acts itself.
const GUARD_MARGIN: Duration = Duration::from_millis(10);
/// How long to wait for killed processes: a large one takes time to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a guard takes to end that left no process, and how often to look.
const END: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(1));

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
    /// The guard was killed, and the command with it.
    Unguarded,
    /// A process cannot be signalled.
    Foreign,
}

impl GuardHandle {
    /// Starts a guard, which starts the command. `guards`: those of all commands, if several run at
    /// a time. Such a command has no terminal and no standard input.
    pub fn start(
        command: &[OsString],
        environment: &[(&str, OsString)],
        terms: Option<Terms>,
        config: GuardConfig,
        check: CheckProcesses,
        guards: Option<Guards>,
    ) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        match guards {
            Some(_) => channel::send_fd(&ours, File::open("/dev/null")?.as_fd())?,
            None => channel::send_fd(&ours, stdin().as_fd())?,
        }
        let terminal = if guards.is_some() { None } else { Terminal::of_candidate() };
        let mut guard = Command::new(OURSELVES);
        if terms.is_none() {
            for variable in &config.withheld {
                guard.env_remove(variable); // a sentinel needs the credentials
            }
        }
        guard
            .arg0("incumbent")
            .arg(SUBCOMMAND)
            .args(config.to_args())
            .args(command)
            .env_remove(NOTIFY_SOCKET)
            .env_remove(DEADLINE_FILE) // of an outer incumbent run
            .env_remove(ENVIRONMENT) // the command would register with what wraps this process
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0);
        let child = match &guards {
            Some(guards) => guards.spawn(&mut guard)?,
            None => guard.spawn()?,
        };
        let guard = Pid::from_child(&child);
        if let Some(terminal) = &terminal {
            terminal.lend(guard);
        }
        ours.set_nonblocking(true)?;
        let events = BufReader::new(UnixStream::from_std(ours.try_clone()?)?).lines();
        let mut handle = Self {
            guard,
            requests: ours,
            events,
            terminal,
            cgroup: config.cgroup,
            signal: config.signal,
            unacknowledged: VecDeque::new(),
            until: config.until,
            channel_full: false,
            left: None,
            code: None,
            interrupted: None,
            expired: false,
            terms,
            check,
            guards,
            empty: false,
        };
        if let (true, Some(args)) = (handle.terms.is_some(), arguments()) {
            handle.request(GuardRequest::Sentinel(args));
            handle.send_terms();
        }
        Ok(handle)
    }

    fn send_terms(&mut self) {
        let Some(terms) = &mut self.terms else { return };
        let terms = serde_json::to_string(&*terms.borrow_and_update());
        if let Ok(terms) = terms {
            self.request(GuardRequest::Terms(terms));
        }
    }

    /// Sends a request. If the guard is gone, its last event reports it.
    pub fn request(&mut self, request: GuardRequest) {
        let sent = self.requests.write(format!("{request}\n").as_bytes());
        match sent.map_err(|error| error.kind()) {
            Err(ErrorKind::WouldBlock) => self.channel_full = true,
            _ => self.unacknowledged.push_back(request),
        }
    }

    /// Whether the guard has acknowledged every request.
    pub fn has_acknowledged_all(&self) -> bool {
        self.unacknowledged.is_empty() && !self.channel_full
    }

    /// Waits for an event that the candidate must act upon. Cancel safe.
    pub async fn event(&mut self) -> CommandEvent {
        loop {
            let missed = missed(self.channel_full, self.until, self.expired);
            let line = tokio::select! {
                biased;
                line = self.events.next_line() => line.ok().flatten(),
                () = changed(&mut self.terms) => {
                    self.send_terms();
                    continue;
                }
                () = missed => {
                    self.stop_without_guard().await;
                    return CommandEvent::Expired;
                }
            };
            match line.map(|line| line.parse()) {
                Some(Ok(event)) => {
                    if let Some(event) = self.note(event) {
                        return event;
                    }
                }
                Some(Err(_)) => {}
                None => break,
            }
        }
        self.kill_remaining().await;
        match self.code {
            _ if self.expired => CommandEvent::Expired,
            Some(_) => CommandEvent::Ended,
            None => CommandEvent::Unguarded,
        }
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
            GuardEvent::Expired => self.expired = true,
            GuardEvent::Empty => self.empty = true,
            GuardEvent::Received => {
                if let Some(GuardRequest::RunUntil(until)) = self.unacknowledged.pop_front() {
                    self.until = Some(until);
                }
            }
            GuardEvent::Foreign { pid, lasting: false } => output::note(format!(
                "incumbent: process {pid}, which COMMAND started, runs as another user and cannot be signalled; \
                 the term ends if this persists"
            )),
            GuardEvent::Foreign { lasting: true, .. } => return Some(CommandEvent::Foreign),
        }
        None
    }

    /// Sends the stop signal, kills what is left at `kill_at`, and returns when no process is left.
    pub async fn stop(&mut self, kill_at: Instant) {
        self.request(GuardRequest::Stop { kill_at });
        self.wait_for_guard(kill_at).await;
    }

    /// Stops the tree without the guard, at the guard's scheduled time.
    pub async fn stop_without_guard(&mut self) {
        let signal_all = |signal| match self.guards {
            Some(_) => tree::signal_below(self.guard, signal),
            None => tree::signal_all(signal),
        };
        signal_all(self.signal);
        signal_all(Signal::CONT); // including the guard
        let kill_at = self.until.map_or_else(|| BootClock.now(), |until| until.kill_at);
        self.wait_for_guard(kill_at).await;
    }

    /// Waits for the guard until `kill_at`.
    async fn wait_for_guard(&mut self, kill_at: Instant) {
        let too_late = sleep_until(kill_at + GUARD_MARGIN); // the guard is suspended or busy
        tokio::pin!(too_late);
        loop {
            let line = tokio::select! {
                biased;
                () = &mut too_late => break,
                line = self.events.next_line() => line,
            };
            let Ok(Some(line)) = line else { break };
            match line.parse() {
                Ok(GuardEvent::Ended { code }) => self.code = Some(code),
                Ok(GuardEvent::Empty) => self.empty = true,
                _ => {}
            }
        }
        self.kill_remaining().await;
    }

    /// Kills the remaining processes; `left` names those that could not be killed.
    async fn kill_remaining(&mut self) {
        if let Some(guards) = self.guards.clone() {
            return self.kill_remaining_beside(&guards).await;
        }
        // All descendants are killed, and so is the check. One that hangs is no part of COMMAND.
        let _pause = self.check.pause();
        let give_up = BootClock.now() + KILL_TIMEOUT;
        let killed = tree::kill_all(self.cgroup.as_ref(), give_up).await;
        self.left = killed.left_outside(self.check.group());
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    /// The same beside other commands, whose processes are left alone.
    async fn kill_remaining_beside(&mut self, guards: &Guards) {
        let end = BootClock.now() + END.0;
        let mut is_reaped = false;
        while self.empty && !is_reaped && BootClock.now() < end {
            is_reaped = reap_one(self.guard);
            if !is_reaped {
                tokio::time::sleep(END.1).await;
            }
        }
        guards.forget(self.guard);
        if !is_reaped {
            let _pause = self.check.pause();
            let give_up = BootClock.now() + KILL_TIMEOUT;
            let killed = guards.kill_others(self.cgroup.as_ref(), give_up).await;
            self.left = killed.left_outside(self.check.group());
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
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

    fn resume(&mut self) {
        // A guard that ended has no group, and could not return the terminal.
        if let Some(terminal) = &self.terminal
            && tree::is_alive(self.guard)
        {
            terminal.lend(self.guard);
        }
        self.request(GuardRequest::Resume);
    }

    /// Whether a user at the terminal ended it.
    pub fn was_interrupted(&self) -> bool {
        let recently = |at: Instant| BootClock.now().saturating_since(at) < INTERRUPT_WINDOW;
        self.interrupted.is_some_and(recently)
    }
}

impl Drop for GuardHandle {
    fn drop(&mut self) {
        if let Some(guards) = &self.guards {
            guards.forget(self.guard);
        }
    }
}

/// Waits until the terms change. Cancel safe.
async fn changed(terms: &mut Option<Terms>) {
    match terms {
        Some(terms) if terms.has_changed().is_ok() => drop(terms.changed().await),
        _ => pending().await, // no more changes
    }
}

/// The arguments of this process before those of the command, as JSON; `None` if they are not text.
fn arguments() -> Option<String> {
    let args = env::args_os().take_while(|arg| arg != "--").map(|arg| arg.into_string().ok());
    let mut args = args.collect::<Option<Vec<_>>>()?;
    args.extend(["--", "true"].map(str::to_owned));
    serde_json::to_string(&args).ok()
}

/// Waits for the scheduled time of an event of the guard; forever without a schedule.
async fn missed(channel_full: bool, until: Option<StopTimes>, expired: bool) {
    match until {
        _ if channel_full => {}
        Some(until) if expired => sleep_until(until.kill_at + GUARD_MARGIN).await,
        Some(until) => sleep_until(until.ask_at + GUARD_MARGIN).await,
        None => pending().await,
    }
}
