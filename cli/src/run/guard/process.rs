//! The guard process: starts the command, and stops its tree.

use std::io::{self, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant, sleep_until};
use incumbent::sentinel::encode;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, WaitStatus, getpid, kill_process_group};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;

use super::config::{GuardConfig, flag_argument, until_argument};
use super::device::{ArmedDevice, NotArmed};
use super::exec;
use super::messages::{GuardEvent, GuardRequest, receive_fd, send_fd};
use super::sentinel::{GuardSentinel, ParseArgs};
use super::signals::{GuardSignals, PendingSignals};
use crate::output;
use crate::process::reaper::{OURSELVES, REPORT_AFTER};
use crate::process::tree::{self, Tree};
use crate::process::{Terminal, WatchedProcess, hide_credentials, send};
use crate::run::traffic::MARKER;
use std::ffi::OsString;

/// The maximum interval between checks of the tree.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How often to look whether requests are still directed here, once the candidate is dead.
const MARKER_INTERVAL: Duration = Duration::from_millis(2);

/// Arguments: the configuration, the command and its arguments.
pub fn watch(mut args: impl Iterator<Item = OsString>, parse: ParseArgs) -> ExitCode {
    hide_credentials();
    let Some((config, candidates)) = GuardConfig::from_args(&mut args) else {
        return ExitCode::FAILURE;
    };
    let terminal = candidates.and_then(Terminal::of_guard);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.and_then(|runtime| {
        runtime.block_on(async {
            // Before the command starts: a terminal may signal the group as soon as it has members.
            let signals = GuardSignals::listen()?;
            match Guard::start(config, terminal, args, parse)? {
                Some(guard) => guard.run(signals).await,
                None => Ok(()),
            }
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format!("incumbent: cannot guard the command: {error}"));
            ExitCode::FAILURE
        }
    }
}

struct Guard {
    config: GuardConfig,
    terminal: Option<Terminal>,
    channel: StdStream,
    tree: Tree,
    command: Pid,
    /// Tells the process that becomes the command of later schedules, until it has.
    starting: Option<StdStream>,
    phase: Phase,
    pending: PendingSignals,
    ended: bool,
    /// `None` if it was dead before it could be watched.
    candidate: Option<WatchedProcess>,
    parse: ParseArgs,
    sentinel: Option<GuardSentinel>,
    /// What resets the machine if this process hangs.
    watchdog: Option<ArmedDevice>,
    /// When the term has killed all at the latest: a watchdog makes the schedule of the command
    /// earlier, and not that of others.
    term_ends: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// The tree has the stop signal, and its schedule is as before.
    Draining,
    Stopping {
        kill_at: Instant,
    },
}

impl Guard {
    /// Starts the command, unless its schedule has passed. Must be called on the main thread: the
    /// parent-death signal is sent when the calling thread ends.
    fn start(
        mut config: GuardConfig,
        terminal: Option<Terminal>,
        args: impl Iterator<Item = OsString>,
        parse: ParseArgs,
    ) -> io::Result<Option<Self>> {
        let tree = Tree::adopt()?;
        let channel = StdStream::from(stdin().as_fd().try_clone_to_owned()?);
        let (starting, theirs) = StdStream::pair()?;
        send_fd(&starting, receive_fd(&channel)?.as_fd())?;
        starting.set_nonblocking(true)?;
        if config.until.is_some_and(|until| until.ask_at <= BootClock.now()) {
            (&channel).write_all(&encode(&GuardEvent::Expired))?;
            return Ok(None);
        }
        let term_ends = config.until.map(|until| until.kill_at);
        let mut watchdog = None;
        if let (Some(device), Some(until)) = (&config.watchdog, config.until) {
            let armed = device.arm().map_err(|why| {
                let (is_armed, error) = match why {
                    NotArmed::Untouched(error) => (false, error),
                    NotArmed::CannotDisarm(error) => (true, error), // the candidate tries it, too
                };
                if !is_armed {
                    let _ = send(&channel, &GuardEvent::Disarmed);
                }
                io::Error::other(format!("the watchdog cannot be armed: {error}"))
            })?;
            config.until = Some(armed.bound(until));
            // It would reset the machine too late, or leave no time for the command.
            if armed.is_too_late(until) {
                armed.disarm()?;
                (&channel).write_all(&encode(&GuardEvent::Disarmed))?;
                (&channel).write_all(&encode(&GuardEvent::Expired))?;
                return Ok(None);
            }
            watchdog = Some(armed);
        }
        let cgroup = config.cgroup.as_ref().map_or_else(|| "-".into(), |c| c.path().into());
        let until = until_argument(config.until);
        // The candidate made the channel.
        let candidate = socket_peercred(&channel).map_err(io::Error::from);
        let candidate = candidate.and_then(|peer| WatchedProcess::peer(peer.pid, &channel)).ok();
        let mut child = Command::new(OURSELVES);
        for variable in &config.withheld {
            child.env_remove(variable);
        }
        let child = child
            .arg0("incumbent")
            .args([exec::SUBCOMMAND.into(), OsString::from(getpid().to_string()), cgroup, until])
            .arg(flag_argument(config.drops_network_capabilities))
            .args(args)
            .stdin(OwnedFd::from(theirs))
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                watchdog.map_or(Ok(()), ArmedDevice::disarm)?;
                return Err(error);
            }
        };
        let command = Pid::from_child(&child);
        Ok(Some(Self {
            config,
            terminal,
            channel,
            tree,
            command,
            starting: Some(starting),
            phase: Phase::Running,
            pending: PendingSignals::default(),
            ended: false,
            candidate,
            parse,
            sentinel: None,
            watchdog,
            term_ends,
        }))
    }

    async fn run(mut self, mut signals: GuardSignals) -> io::Result<()> {
        self.channel.set_nonblocking(true)?;
        let requests = UnixStream::from_std(self.channel.try_clone()?)?;
        let mut requests = BufReader::new(requests).lines();
        let (mut orphaned, mut is_left_reported) = (false, false);
        let mut next_check_timer = sleep_until(BootClock, BootClock.now());
        loop {
            if self.reap_children(&mut signals).await {
                break;
            }
            if !self.ended {
                self.pending.deliver(self.command);
            }
            let now = BootClock.now();
            if let Some(until) = self.config.until
                && until.ask_at <= now
                && !self.is_stopping()
            {
                let _ = send(&self.channel, &GuardEvent::Expired);
                self.stop_tree(until.kill_at);
            }
            if let Phase::Stopping { kill_at } = self.phase
                && kill_at <= now
            {
                let cgroup = self.config.cgroup.as_ref();
                let killed = self.tree.kill_all(cgroup, now + REPORT_AFTER).await;
                self.note(&killed.changed);
                let Some(left) = killed.left() else { break };
                if orphaned && !std::mem::replace(&mut is_left_reported, true) {
                    output::note(format!(
                        "incumbent: some processes of the command could not be stopped: {left}"
                    ));
                }
                let _ = send(&self.channel, &GuardEvent::Left(left));
            }
            next_check_timer.reset(self.next_check(now));
            tokio::select! {
                request = requests.next_line(), if !orphaned => match request {
                    Ok(Some(line)) => {
                        self.handle_request(&line);
                        let _ = send(&self.channel, &GuardEvent::Received);
                    }
                    Ok(None) | Err(_) => {
                        orphaned = true;
                        self.stop_tree(self.grace_end());
                    }
                },
                signal = signals.next() => if let Some(signal) = signal {
                    let _ = send(&self.channel, &GuardEvent::Interrupted(signal));
                },
                () = &mut next_check_timer => {}
            }
        }
        if let Some(terminal) = &self.terminal {
            terminal.give_back();
        }
        self.disarm();
        let _ = send(&self.channel, &GuardEvent::Empty);
        if orphaned {
            self.no_requests().await;
            self.remove_files();
            self.release().await;
        }
        Ok(())
    }

    /// Nothing of the command is left that the machine would be reset for.
    fn disarm(&mut self) {
        match self.watchdog.take().map(ArmedDevice::disarm) {
            Some(Ok(())) => drop(send(&self.channel, &GuardEvent::Disarmed)),
            Some(Err(error)) => output::note(format!(
                "incumbent: the watchdog cannot be disarmed, and resets the machine: {error}"
            )),
            None => {}
        }
    }

    /// Waits until no requests are directed here any more, or the lease is over.
    async fn no_requests(&self) {
        let Some(marker) = self.config.directory.as_ref().map(|path| path.join(MARKER)) else {
            return;
        };
        let end = self.term_ends;
        while marker.exists() && end.is_none_or(|end| BootClock.now() < end) {
            tokio::time::sleep(MARKER_INTERVAL).await;
        }
    }

    /// Releases the terms of a dead candidate, whose command is dead too.
    async fn release(self) {
        let (Some(candidate), Some(sentinel)) = (self.candidate, self.sentinel) else { return };
        if candidate.dead_soon().await.is_ok() {
            sentinel.release().await;
        }
    }

    /// Returns whether the tree is empty.
    async fn reap_children(&mut self, signals: &mut GuardSignals) -> bool {
        let reaped = tree::reap();
        // The signal is reported before the end that it caused.
        if reaped.changed.iter().any(|(pid, _)| *pid == self.command) {
            while let Some(signal) = signals.already().await {
                let _ = send(&self.channel, &GuardEvent::Interrupted(signal));
            }
        }
        self.note(&reaped.changed);
        // Descendants are stopped once the command ended.
        if self.ended && !reaped.none_left && !self.is_stopping() {
            self.stop_tree(self.grace_end());
        }
        reaped.none_left
    }

    fn note(&mut self, changed: &[(Pid, WaitStatus)]) {
        for (pid, status) in changed {
            if *pid != self.command {
                continue;
            }
            if let Some(code) = tree::exit_code(*status) {
                self.ended = true;
                if status.signaled()
                    && let Some(terminal) = &self.terminal
                {
                    terminal.restore_modes();
                }
                let _ = send(&self.channel, &GuardEvent::Ended { code });
            } else if let Some(signal) = status.stopping_signal()
                && !self.is_stopping()
            {
                if let Some(terminal) = &self.terminal {
                    terminal.give_back();
                }
                let _ = send(&self.channel, &GuardEvent::Stopped(signal));
            }
        }
    }

    fn handle_request(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(GuardRequest::RunUntil(until)) => {
                self.term_ends = Some(until.kill_at);
                self.config.until = Some(match &mut self.watchdog {
                    Some(watchdog) => watchdog.feed(until),
                    None => until,
                });
                // It may start later than the schedule allows that it was started with, but not
                // once it is to stop.
                let line = encode(&self.config.until);
                if matches!(self.phase, Phase::Running)
                    && self.starting.as_mut().is_some_and(|c| c.write_all(&line).is_err())
                {
                    self.starting = None;
                }
            }
            Ok(GuardRequest::Stop { kill_at }) => self.stop_tree(kill_at),
            Ok(GuardRequest::Drain) => self.drain_tree(),
            Ok(GuardRequest::PassOn(signal)) => {
                self.pending.pass_on(Signal::from_named_raw(signal))
            }
            Ok(GuardRequest::Sentinel(args)) => {
                self.sentinel = GuardSentinel::start(&args, self.parse);
            }
            Ok(GuardRequest::Term(change)) => {
                if let Some(sentinel) = &self.sentinel {
                    sentinel.on_change(&change);
                }
            }
            Ok(GuardRequest::Suspend) => {
                let _ = kill_process_group(getpid(), Signal::TSTP);
            }
            Err(_) => {}
        }
    }

    /// Sends the stop signal once; an earlier `kill_at` replaces a later one.
    fn stop_tree(&mut self, kill_at: Instant) {
        self.drain_tree();
        let kill_at = self.watchdog.as_ref().map_or(kill_at, |armed| armed.kill_by().min(kill_at));
        let kill_at = match self.phase {
            Phase::Running | Phase::Draining => kill_at,
            Phase::Stopping { kill_at: before } => kill_at.min(before),
        };
        self.phase = Phase::Stopping { kill_at };
    }

    /// Sends the stop signal once.
    fn drain_tree(&mut self) {
        if matches!(self.phase, Phase::Running) {
            self.tree.signal_all(self.config.signal);
            self.tree.signal_all(Signal::CONT); // a stopped process handles no signals
            self.phase = Phase::Draining;
        }
    }

    fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
    }

    /// When to kill without a request.
    fn grace_end(&self) -> Instant {
        let end = BootClock.now() + self.config.grace;
        self.config.until.map_or(end, |until| until.kill_at.min(end))
    }

    /// The time of the next check.
    fn next_check(&self, now: Instant) -> Instant {
        let next = match self.phase {
            Phase::Running | Phase::Draining => self.config.until.map(|until| until.ask_at),
            Phase::Stopping { kill_at } => Some(kill_at),
        };
        let ready = self.pending.next_check().map(|soon| now + soon);
        [next, ready].into_iter().flatten().fold(now + CHECK_INTERVAL, Instant::min)
    }

    /// Removes the files that the candidate would have removed.
    fn remove_files(&self) {
        if let Some(directory) = &self.config.directory {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
