//! The processes of the check that runs now: they end before this program does.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// The process group of a check. Clones share it.
#[derive(Debug, Clone)]
pub struct CheckProcesses {
    state: Arc<Mutex<State>>,
    paused: Arc<watch::Sender<bool>>,
}

#[derive(Debug, Default)]
struct State {
    /// The group of the check that runs.
    running: Option<Pid>,
    /// The group of the last one, in which processes may be left.
    last: Option<Pid>,
    /// Whether the check that runs is killed for no fault of its own.
    interrupted: bool,
    closed: bool,
}

/// A check that runs. Dropping it kills its group.
pub struct RunningCheck {
    pub child: Child,
    processes: CheckProcesses,
}

/// No check starts until this is dropped.
#[must_use = "dropping it ends the pause"]
pub struct CheckPause(CheckProcesses);

impl Default for CheckProcesses {
    fn default() -> Self {
        Self { state: Arc::default(), paused: Arc::new(watch::channel(false).0) }
    }
}

impl CheckProcesses {
    /// Waits until checks may start.
    pub async fn resumed(&self) {
        let mut paused = self.paused.subscribe();
        let _ = paused.wait_for(|paused| !paused).await; // an error: the program ends
    }

    /// Starts the command as the leader of a group. `None`: processes of an earlier check cannot be
    /// killed, and there is to be no further one beside them.
    pub fn start(&self, mut command: Command) -> io::Result<Option<RunningCheck>> {
        let mut state = self.state();
        if state.closed {
            return Err(io::Error::other("the program ends"));
        }
        if state.last.is_some_and(is_left) {
            return Ok(None);
        }
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        *state = State { running: id, ..State::default() };
        Ok(Some(RunningCheck { child, processes: self.clone() }))
    }

    /// Kills the check that runs: the program ends.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.running.into_iter().for_each(kill);
    }

    /// Kills the check that runs, and starts none until the pause is over. It is then repeated.
    pub fn pause(&self) -> CheckPause {
        self.paused.send_replace(true);
        let mut state = self.state();
        state.interrupted = state.running.is_some();
        state.running.into_iter().for_each(kill);
        CheckPause(self.clone())
    }

    /// The group in which processes of a check may be left.
    pub fn group(&self) -> Option<Pid> {
        let state = self.state();
        state.running.or(state.last)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningCheck {
    /// Kills what it left behind. Returns whether it was interrupted.
    pub fn end(self) -> bool {
        let interrupted = self.processes.state().interrupted;
        drop(self);
        interrupted
    }
}

impl Drop for RunningCheck {
    fn drop(&mut self) {
        let mut state = self.processes.state();
        if let Some(group) = state.running.take() {
            kill(group);
            state.last = Some(group);
        }
    }
}

impl Drop for CheckPause {
    fn drop(&mut self) {
        self.0.paused.send_replace(false);
    }
}

/// An error: no process is left.
fn kill(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
}

/// Whether a child of this process is left in the group. Reaps those that ended: `incumbent run`
/// adopts orphans.
fn is_left(group: Pid) -> bool {
    loop {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false, // no such child
        }
    }
}
