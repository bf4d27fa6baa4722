//! The guard itself: starts the command, and stops its tree.

use std::io::{self, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant, sleep_until};
use rustix::process::{Pid, Signal, WaitStatus, getpid, kill_process_group, set_child_subreaper};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;

use super::config::{GuardConfig, OURSELVES, until_argument};
use super::exec;
use super::foreign::ForeignWatch;
use super::messages::{GuardEvent, GuardRequest};
use super::signals::{GuardSignals, PendingSignals};
use super::{channel, tree};
use crate::run::terminal::Terminal;
use std::ffi::OsString;

/// The guard looks at its tree at least this often, whatever it is told of.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long to kill what does not end: then it is the campaigner's.
const GIVE_UP: Duration = Duration::from_secs(1);

/// The arguments: the config, the command and its own.
pub fn watch(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(config) = GuardConfig::from_args(&mut args) else { return ExitCode::FAILURE };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.and_then(|runtime| {
        runtime.block_on(async {
            // Before the command starts: a terminal may send a signal as soon as its group has members.
            let heard = GuardSignals::listen()?;
            match Guard::start(config, args)? {
                Some(guard) => guard.run(heard).await,
                None => Ok(()),
            }
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("incumbent: cannot watch over the command: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Guard {
    config: GuardConfig,
    terminal: Option<Terminal>,
    channel: StdStream,
    command: Pid,
    phase: Phase,
    pending: PendingSignals,
    watch: Option<ForeignWatch>,
    ended: bool,
}

#[derive(Clone, Copy)]
enum Phase {
    Running,
    Stopping { kill_at: Instant },
}

impl Guard {
    /// Starts the command, unless its time is over. Must be called on the main thread: a thread's end would be taken for
    /// the guard's own.
    fn start(
        config: GuardConfig,
        args: impl Iterator<Item = OsString>,
    ) -> io::Result<Option<Self>> {
        set_child_subreaper(Some(getpid()))?;
        let channel = StdStream::from(stdin().as_fd().try_clone_to_owned()?);
        let input = channel::receive_fd(&channel)?;
        if config.until.is_some_and(|until| until.ask_at <= BootClock.now()) {
            (&channel).write_all(format!("{}\n", GuardEvent::Expired).as_bytes())?;
            return Ok(None);
        }
        let cgroup = config.cgroup.as_ref().map_or_else(|| "-".into(), |c| c.path().into());
        let until = until_argument(config.until);
        let terminal = Terminal::of_guard();
        let child = Command::new(OURSELVES)
            .arg0("incumbent")
            .args([exec::SUBCOMMAND.into(), OsString::from(getpid().to_string()), cgroup, until])
            .args(args)
            .stdin(Stdio::from(input))
            .spawn()?;
        let command = Pid::from_child(&child);
        Ok(Some(Self {
            config,
            terminal,
            channel,
            command,
            phase: Phase::Running,
            pending: PendingSignals::default(),
            watch: ForeignWatch::start(),
            ended: false,
        }))
    }

    async fn run(mut self, mut heard: GuardSignals) -> io::Result<()> {
        self.channel.set_nonblocking(true)?;
        let requests = UnixStream::from_std(self.channel.try_clone()?)?;
        let mut requests = BufReader::new(requests).lines();
        let mut orphaned = false;
        let mut look_again = sleep_until(BootClock, BootClock.now());
        loop {
            if self.look_after_children(&mut heard).await {
                break;
            }
            if !self.ended {
                self.pending.deliver(self.command);
            }
            let now = BootClock.now();
            if let Some(until) = self.config.until
                && until.ask_at <= now
                && matches!(self.phase, Phase::Running)
            {
                tell(&self.channel, GuardEvent::Expired);
                self.ask(until.kill_at);
            }
            if let Phase::Stopping { kill_at } = self.phase
                && kill_at <= now
            {
                let killed = tree::kill_all(self.config.cgroup.as_ref(), now + GIVE_UP).await;
                let left = killed.left();
                self.note(killed.changed);
                if let Some(left) = left.filter(|_| orphaned) {
                    eprintln!(
                        "incumbent: not all that the command started could be stopped: {left}"
                    );
                }
                break;
            }
            if let Some(event) = self.look_for_foreigners(now) {
                tell(&self.channel, event);
            }
            look_again.reset(self.next_look(now));
            tokio::select! {
                request = requests.next_line(), if !orphaned => match request {
                    Ok(Some(line)) => {
                        self.obey(&line);
                        tell(&self.channel, GuardEvent::Received);
                    }
                    Ok(None) | Err(_) => {
                        orphaned = true;
                        self.ask(self.patience());
                    }
                },
                signal = heard.next() => if let Some(signal) = signal {
                    tell(&self.channel, GuardEvent::Interrupted(signal));
                },
                () = &mut look_again => {}
            }
        }
        if let Some(terminal) = &self.terminal {
            terminal.give_back();
        }
        if orphaned {
            self.remove_files();
        }
        Ok(())
    }

    /// Answers whether nothing is left of the tree.
    async fn look_after_children(&mut self, heard: &mut GuardSignals) -> bool {
        let reaped = tree::reap();
        // What ended the command is told before its end.
        if reaped.changed.iter().any(|(pid, _)| *pid == self.command) {
            while let Some(signal) = heard.already().await {
                tell(&self.channel, GuardEvent::Interrupted(signal));
            }
        }
        self.note(reaped.changed);
        // What a command leaves behind when it ends has no work to do any more.
        if self.ended && !reaped.none_left && matches!(self.phase, Phase::Running) {
            self.ask(self.patience());
        }
        reaped.none_left
    }

    fn note(&mut self, changed: Vec<(Pid, WaitStatus)>) {
        for (pid, status) in changed {
            if pid != self.command {
                continue;
            }
            if let Some(code) = exit_code(status) {
                self.ended = true;
                if status.signaled()
                    && let Some(terminal) = &self.terminal
                {
                    terminal.restore_modes();
                }
                tell(&self.channel, GuardEvent::Ended { code });
            } else if let Some(signal) = status.stopping_signal()
                && matches!(self.phase, Phase::Running)
            {
                if let Some(terminal) = &self.terminal {
                    terminal.give_back();
                }
                tell(&self.channel, GuardEvent::Stopped(signal));
            }
        }
    }

    fn obey(&mut self, line: &str) {
        match line.parse() {
            Ok(GuardRequest::RunUntil(until)) => self.config.until = Some(until),
            Ok(GuardRequest::Stop { kill_at }) => self.ask(kill_at),
            Ok(GuardRequest::Signal(signal)) => self.pending.tell(Signal::from_named_raw(signal)),
            Ok(GuardRequest::PassOn(signal)) => {
                self.pending.pass_on(Signal::from_named_raw(signal))
            }
            Ok(GuardRequest::Suspend) => {
                let _ = kill_process_group(getpid(), Signal::TSTP);
            }
            Ok(GuardRequest::Resume) => {
                let _ = kill_process_group(getpid(), Signal::CONT);
            }
            Err(_) => {}
        }
    }

    /// Asks everything to stop; what was asked before is only hurried.
    fn ask(&mut self, kill_at: Instant) {
        let kill_at = match self.phase {
            Phase::Running => {
                tree::signal_all(self.config.signal);
                tree::signal_all(Signal::CONT); // what stands still cannot obey
                kill_at
            }
            Phase::Stopping { kill_at: before } => kill_at.min(before),
        };
        self.phase = Phase::Stopping { kill_at };
    }

    /// StopTimes when the tree may go on when nobody says it.
    fn patience(&self) -> Instant {
        let patience = BootClock.now() + self.config.grace;
        self.config.until.map_or(patience, |until| until.kill_at.min(patience))
    }

    /// When there is something to do again, though nothing happens.
    fn next_look(&self, now: Instant) -> Instant {
        let next = match self.phase {
            Phase::Running => self.config.until.map(|until| until.ask_at),
            Phase::Stopping { kill_at } => Some(kill_at),
        };
        let ready = self.pending.next_look().map(|soon| now + soon);
        let foreign = self.watch.as_ref().map(|watch| watch.next);
        [next, ready, foreign].into_iter().flatten().fold(now + LOOK_AGAIN, Instant::min)
    }

    /// What is to be told of a process that may not be signalled.
    fn look_for_foreigners(&mut self, now: Instant) -> Option<GuardEvent> {
        self.watch.as_mut()?.look(now, self.config.cgroup.as_ref())
    }

    /// What the campaigner would have cleared away.
    fn remove_files(&self) {
        if let Some(cgroup) = &self.config.cgroup {
            cgroup.remove();
        }
        if let Some(directory) = &self.config.directory {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// As a shell tells it; `None` for a child that only stopped or went on.
fn exit_code(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|n| 128 + n))?;
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Waits for nobody: a campaigner that stands still does not read, and the time is looked at here.
fn tell(mut events: &StdStream, event: GuardEvent) {
    // An error means that nobody listens (any more); that is noticed where requests are read.
    let _ = events.write(format!("{event}\n").as_bytes());
}
