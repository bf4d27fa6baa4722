//! The guards of several commands that one process runs at a time.
//!
//! Each guard is the root of a tree of its own. What is below this process and in none of these
//! trees was left by a guard that was killed.

use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::{Pid, Signal, WaitOptions, getpid, waitpid};

use super::cgroup::Cgroup;
use super::tree::{self, Killed, PASS, Process};

/// The guards that run. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Guards(Arc<Mutex<Vec<Pid>>>);

impl Guards {
    /// Starts a guard, and knows it from then on.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // Locked, so that nobody takes it for a process that is unguarded.
        let mut guards = self.lock();
        let child = command.spawn()?;
        guards.push(Pid::from_child(&child));
        Ok(child)
    }

    /// The guard has ended, or is treated as a process that is unguarded.
    pub fn forget(&self, guard: Pid) {
        self.lock().retain(|other| *other != guard);
    }

    /// Kills every descendant that is in no tree of a guard, until none is left or `give_up` has
    /// passed.
    pub async fn kill_others(&self, cgroup: Option<&Cgroup>, give_up: Instant) -> Killed {
        let mut changed = Vec::new();
        loop {
            if let Some(cgroup) = cgroup {
                cgroup.kill();
            }
            self.with_unguarded(|left| left.iter().for_each(|one| tree::send(one, Signal::KILL)));
            changed.append(&mut tree::reap().changed);
            let left = self.with_unguarded(std::mem::take);
            if left.is_empty() || give_up <= BootClock.now() {
                return Killed { changed, left };
            }
            tokio::time::sleep(PASS).await;
        }
    }

    /// Calls this with the processes of no guard; no guard starts meanwhile.
    fn with_unguarded<T>(&self, act: impl FnOnce(&mut Vec<Process>) -> T) -> T {
        let guards = self.lock();
        let mut left = tree::below(getpid());
        let mut guarded = guards.clone();
        // Parents come before their children.
        left.retain(|process| {
            let is_guarded = guarded.contains(&process.pid) || guarded.contains(&process.parent);
            if is_guarded {
                guarded.push(process.pid);
            }
            !is_guarded
        });
        act(&mut left)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects a child that has ended. Returns whether it is gone.
pub fn reap_one(child: Pid) -> bool {
    !matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(None))
}
