//! Job control: moves the terminal's foreground to the command's process group and back.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

use rustix::process::{Pid, getpid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::tree::own_group;

/// The controlling terminal.
pub struct Terminal {
    tty: File,
    /// The process group of this process.
    ours: Pid,
    /// That of the candidate.
    candidates: Pid,
    modes: Option<Termios>,
}

impl Terminal {
    /// The terminal for the candidate. `None` if the command does not use it: in a pipeline it
    /// belongs to the other programs. Nor in a PID namespace without the candidate's group.
    pub fn of_candidate() -> Option<Self> {
        (stdin().is_terminal() && stdout().is_terminal()).then(Self::of_group).flatten()
    }

    /// The terminal for a process in the candidate's group.
    pub fn of_group() -> Option<Self> {
        let group = own_group()?;
        Self::open(group, group)
    }

    /// The terminal for the guard of a candidate in this group.
    pub fn of_guard(candidates: Pid) -> Option<Self> {
        Self::open(getpid(), candidates)
    }

    fn open(ours: Pid, candidates: Pid) -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&tty).ok();
        Some(Self { tty, ours, candidates, modes })
    }

    /// The process group of the candidate.
    pub fn candidates(&self) -> Pid {
        self.candidates
    }

    /// Whether this process group has the foreground. Only then can it be moved without SIGTTOU.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.ours)
    }

    /// Moves the foreground to a group, if this one has it.
    pub fn lend(&self, group: Pid) -> bool {
        self.is_ours() && tcsetpgrp(&self.tty, group).is_ok()
    }

    /// Moves the foreground back to the candidate's group, if this one has it.
    pub fn give_back(&self) {
        self.lend(self.candidates);
    }

    /// Restores the modes after a command was killed.
    pub fn restore_modes(&self) {
        if self.is_ours()
            && let Some(modes) = &self.modes
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Now, modes); // do not wait for a stopped terminal
        }
    }
}
