//! The command as the campaigner has it: behind its guard.

use std::ffi::OsString;
use std::io::{self, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::LOOK_AGAIN;
use super::cgroup::Cgroup;
use super::channel;
use super::deadline::DEADLINE_FILE;
use super::guard::Duties;
use super::signals::stand_still;
use super::terminal::Terminal;
use super::tree;
use super::words::{Order, Report};
use crate::candidate::NOTIFY_SOCKET;

/// A command that runs, with all that it starts.
pub struct Ward {
    /// Leads the process group of the command, too.
    guard: Pid,
    orders: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
    terminal: Option<Terminal>,
    cgroup: Option<Cgroup>,
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

/// What happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It ended by itself, and so did all that it left behind.
    Ended,
    /// The terminal is gone.
    HungUp,
    /// The guard ended it, because the campaigner had not been heard for too long.
    Expired,
    /// The guard itself was killed, and the command with it.
    Unguarded,
}

impl Ward {
    /// Starts it: a guard, which starts the command.
    pub fn start(
        command: &[OsString],
        environment: &[(&str, OsString)],
        duties: Duties,
    ) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        channel::send_fd(&ours, stdin().as_fd())?;
        let terminal = Terminal::of_campaigner();
        let child = Command::new(super::OURSELVES)
            .arg0("incumbent")
            .arg(super::guard::WORD)
            .args(duties.to_args())
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
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        let reports = BufReader::new(reports).lines();
        let cgroup = duties.cgroup;
        Ok(Self {
            guard,
            orders,
            reports,
            terminal,
            cgroup,
            code: None,
            interrupted: None,
            expired: false,
        })
    }

    /// An order to a guard that is gone is noticed by its last report.
    pub async fn order(&mut self, order: Order) {
        let _ = self.orders.write_all(format!("{order}\n").as_bytes()).await;
    }

    /// Waits until something happens that the campaigner must act upon. Cancel safe.
    pub async fn event(&mut self) -> Event {
        loop {
            let line = self.reports.next_line().await.ok().flatten();
            match line.map(|line| line.parse()) {
                Some(Ok(Report::Ended { code })) => self.code = Some(code),
                Some(Ok(Report::Stopped(signal))) => self.stopped(signal).await,
                Some(Ok(Report::Interrupted(signal))) => {
                    self.interrupted = Some(BootClock.now());
                    if signal == Signal::HUP.as_raw() {
                        return Event::HungUp;
                    }
                }
                Some(Ok(Report::Expired)) => self.expired = true,
                Some(Err(_)) => {}
                None => break,
            }
        }
        self.sweep().await;
        match self.code {
            _ if self.expired => Event::Expired,
            Some(_) => Event::Ended,
            None => Event::Unguarded,
        }
    }

    /// Asks everything to stop, kills what has not by `kill_at`, and returns when nothing is left.
    pub async fn stop(&mut self, kill_at: Instant) {
        self.order(Order::Stop { kill_at }).await;
        loop {
            let left = (kill_at + HELP).saturating_since(BootClock.now());
            if left.is_zero() {
                break; // the guard stands still, or is busy with the same
            }
            match tokio::time::timeout(left.min(LOOK_AGAIN), self.reports.next_line()).await {
                Ok(Ok(Some(line))) => {
                    if let Ok(Report::Ended { code }) = line.parse() {
                        self.code = Some(code);
                    }
                }
                Ok(_) => break,
                Err(_) => {}
            }
        }
        self.sweep().await;
    }

    /// Makes sure that nothing is left, be it that the guard did not do it.
    async fn sweep(&mut self) {
        tree::kill_all(self.cgroup.as_ref()).await;
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    /// Stands still with the command, and goes on with it.
    pub async fn suspend(&mut self) {
        self.order(Order::Suspend).await;
        self.stand_still().await;
    }

    async fn stopped(&mut self, signal: i32) {
        // Without a terminal nobody waits for us to stand still.
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|s| s.as_raw() == signal);
        // It wanted the terminal while a shell had us in the background, and we are not any more.
        if wants_terminal && terminal.is_ours() {
            self.resume().await;
        } else {
            self.stand_still().await;
        }
    }

    async fn stand_still(&mut self) {
        stand_still();
        self.resume().await;
    }

    async fn resume(&mut self) {
        // A guard that ended meanwhile has no group any more, and nothing would give the terminal back.
        if let Some(terminal) = &self.terminal
            && tree::is_alive(self.guard)
        {
            terminal.lend(self.guard);
        }
        self.order(Order::Resume).await;
    }

    /// Whether it ended because somebody at the terminal wanted it.
    pub fn was_interrupted(&self) -> bool {
        let recently = |at: Instant| BootClock.now().saturating_since(at) < BECAUSE_OF_IT;
        self.interrupted.is_some_and(recently)
    }
}
