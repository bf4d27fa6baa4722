//! The processes of the check that runs now: they end before this program does.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, kill_process};
use tokio::process::{Child, Command};

use crate::process::reaper::KILL_TREE;

/// The reaper of a check, which ends with all that the check started. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CheckProcesses(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The reaper of the check that runs.
    running: Option<Pid>,
    /// That of the last one: processes are left while it runs.
    last: Option<Child>,
    closed: bool,
}

/// A check that runs. Dropping it kills its processes.
pub struct RunningCheck {
    /// `None` only while it is dropped.
    reaper: Option<Child>,
    processes: CheckProcesses,
}

impl CheckProcesses {
    /// Starts a reaper. `None`: processes of an earlier check cannot be killed, and there is to be
    /// no further one beside them.
    pub fn start(&self, mut reaper: Command) -> io::Result<Option<RunningCheck>> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(io::Error::other("the program ends"));
        }
        if let Some(last) = &mut state.last
            && last.try_wait()?.is_none()
        {
            return Ok(None);
        }
        let child = reaper.spawn()?;
        *state = State { running: id(&child), ..State::default() };
        Ok(Some(RunningCheck { reaper: Some(child), processes: self.clone() }))
    }

    /// Kills the check that runs: the program ends.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.running.into_iter().for_each(kill);
    }
}

impl RunningCheck {
    /// Waits until the check has ended, and nothing is left of it.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.reaper {
            Some(reaper) => reaper.wait().await,
            None => Err(io::Error::other("it has ended")),
        }
    }
}

impl Drop for RunningCheck {
    fn drop(&mut self) {
        let mut state = self.processes.0.lock();
        state.running = None;
        state.last = self.reaper.take();
        state.last.as_ref().and_then(id).into_iter().for_each(kill);
    }
}

/// The id of a child that was not waited for yet.
fn id(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

/// An error: it has just ended.
fn kill(reaper: Pid) {
    let _ = kill_process(reaper, KILL_TREE);
}
