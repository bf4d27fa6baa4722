//! The command as the campaigner has it: behind its guard.

use std::collections::VecDeque;
use std::ffi::OsString;
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

use super::cgroup::Cgroup;
use super::channel;
use super::config::{GuardConfig, OURSELVES, SUBCOMMAND};
use super::messages::{GuardEvent, GuardRequest, StopTimes};
use super::tree;
use crate::candidate::NOTIFY_SOCKET;
use crate::output;
use crate::run::deadline::DEADLINE_FILE;
use crate::run::signals::{hung_up, suspend_self};
use crate::run::terminal::Terminal;
use crate::run::timer::sleep_until;

/// A command that runs, with all that it starts.
pub struct GuardHandle {
    /// Leads the process group of the command, too.
    guard: Pid,
    /// Never waited for: a guard that stands still does not read.
    requests: StdStream,
    events: Lines<BufReader<UnixStream>>,
    terminal: Option<Terminal>,
    cgroup: Option<Cgroup>,
    /// How to ask the tree to stop.
    signal: Signal,
    /// What the guard has not answered yet, the oldest first.
    unacknowledged: VecDeque<GuardRequest>,
    /// What the guard is known to do by itself.
    until: Option<StopTimes>,
    /// The guard takes no requests any more.
    channel_full: bool,
    /// What could not be ended, in words.
    pub left: Option<String>,
    /// What the command exited with, once it has.
    pub code: Option<u8>,
    /// When the guard got a Ctrl-C and the like.
    interrupted: Option<Instant>,
    /// The guard began to end it of itself.
    expired: bool,
}

/// A command that ends so soon after a Ctrl-C ended because of it.
const BECAUSE_OF_IT: Duration = Duration::from_secs(10);
/// How much later than the guard the campaigner sees to it itself.
const HELP: Duration = Duration::from_millis(10);
/// How long to wait for what was killed: a large process takes its time to end.
const GIVE_UP: Duration = Duration::from_secs(10);

/// What happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEvent {
    /// It ended by itself, and so did all that it left behind.
    Ended,
    /// The terminal is gone.
    HungUp,
    /// The guard ended it, because the campaigner had not been heard for too long; or the campaigner, because the guard
    /// had not.
    Expired,
    /// The guard itself was killed, and the command with it.
    Unguarded,
    /// There is a process that may not be signalled, so it could not be stopped.
    Foreign,
}

impl GuardHandle {
    /// Starts it: a guard, which starts the command.
    pub fn start(
        command: &[OsString],
        environment: &[(&str, OsString)],
        withheld: &[&str],
        config: GuardConfig,
    ) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        channel::send_fd(&ours, stdin().as_fd())?;
        let terminal = Terminal::of_campaigner();
        let mut guard = Command::new(OURSELVES);
        for variable in withheld {
            guard.env_remove(variable);
        }
        let child = guard
            .arg0("incumbent")
            .arg(SUBCOMMAND)
            .args(config.to_args())
            .args(command)
            .env_remove(NOTIFY_SOCKET)
            .env_remove(DEADLINE_FILE) // of a campaigner around us
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()?;
        let guard = Pid::from_child(&child);
        if let Some(terminal) = &terminal {
            terminal.lend(guard);
        }
        ours.set_nonblocking(true)?;
        let events = BufReader::new(UnixStream::from_std(ours.try_clone()?)?).lines();
        Ok(Self {
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
        })
    }

    /// An request to a guard that is gone is noticed by its last event.
    pub fn request(&mut self, request: GuardRequest) {
        let sent = self.requests.write(format!("{request}\n").as_bytes());
        match sent.map_err(|error| error.kind()) {
            Err(ErrorKind::WouldBlock) => self.channel_full = true,
            _ => self.unacknowledged.push_back(request),
        }
    }

    /// Whether the guard has answered every request.
    pub fn has_acknowledged_all(&self) -> bool {
        self.unacknowledged.is_empty() && !self.channel_full
    }

    /// Waits until something happens that the campaigner must act upon. Cancel safe.
    pub async fn event(&mut self) -> CommandEvent {
        loop {
            let missed = missed(self.channel_full, self.until, self.expired);
            let line = tokio::select! {
                biased;
                line = self.events.next_line() => line.ok().flatten(),
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
            GuardEvent::Received => {
                if let Some(GuardRequest::RunUntil(until)) = self.unacknowledged.pop_front() {
                    self.until = Some(until);
                }
            }
            GuardEvent::Foreign { pid, lasting: false } => output::note(format!(
                "incumbent: process {pid}, which COMMAND started, runs as another user: nothing here may stop it; \
                 the term ends if it lasts"
            )),
            GuardEvent::Foreign { lasting: true, .. } => return Some(CommandEvent::Foreign),
        }
        None
    }

    /// Asks everything to stop, kills what has not by `kill_at`, and returns when nothing is left.
    pub async fn stop(&mut self, kill_at: Instant) {
        self.request(GuardRequest::Stop { kill_at });
        self.help(kill_at).await;
    }

    /// The same by itself, by when the guard should have done it.
    pub async fn stop_without_guard(&mut self) {
        tree::signal_all(self.signal);
        tree::signal_all(Signal::CONT); // the guard, too
        let kill_at = self.until.map_or_else(|| BootClock.now(), |until| until.kill_at);
        self.help(kill_at).await;
    }

    /// Leaves it to the guard until `kill_at`.
    async fn help(&mut self, kill_at: Instant) {
        let too_late = sleep_until(kill_at + HELP); // the guard stands still, or is busy with the same
        tokio::pin!(too_late);
        loop {
            let line = tokio::select! {
                biased;
                () = &mut too_late => break,
                line = self.events.next_line() => line,
            };
            let Ok(Some(line)) = line else { break };
            if let Ok(GuardEvent::Ended { code }) = line.parse() {
                self.code = Some(code);
            }
        }
        self.kill_remaining().await;
    }

    /// Makes sure that nothing is left, be it that the guard did not do it; else `left` says what is.
    async fn kill_remaining(&mut self) {
        self.left = tree::kill_all(self.cgroup.as_ref(), BootClock.now() + GIVE_UP).await.left();
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    /// Stands still with the command, and goes on with it.
    pub fn suspend(&mut self) {
        self.request(GuardRequest::Suspend);
        self.suspend_self();
    }

    fn stopped(&mut self, signal: i32) {
        // Without a terminal nobody waits for us to stand still.
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|s| s.as_raw() == signal);
        // It wanted the terminal while a shell had us in the background, and we are not any more.
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
        // A guard that ended meanwhile has no group any more, and nothing would give the terminal back.
        if let Some(terminal) = &self.terminal
            && tree::is_alive(self.guard)
        {
            terminal.lend(self.guard);
        }
        self.request(GuardRequest::Resume);
    }

    /// Whether it ended because somebody at the terminal wanted it.
    pub fn was_interrupted(&self) -> bool {
        let recently = |at: Instant| BootClock.now().saturating_since(at) < BECAUSE_OF_IT;
        self.interrupted.is_some_and(recently)
    }
}

/// Waits until the guard should have been heard; for ever where it has nothing to do of itself.
async fn missed(channel_full: bool, until: Option<StopTimes>, expired: bool) {
    match until {
        _ if channel_full => {}
        Some(until) if expired => sleep_until(until.kill_at + HELP).await,
        Some(until) => sleep_until(until.ask_at + HELP).await,
        None => pending().await,
    }
}
