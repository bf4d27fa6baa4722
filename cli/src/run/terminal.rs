//! Job control: moves the terminal's foreground to the command's process group and back.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

use rustix::process::{Pid, getpgid, getpgrp, getppid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal.
pub struct Terminal {
    tty: File,
    /// The candidate's process group.
    theirs: Pid,
    modes: Option<Termios>,
}

impl Terminal {
    /// The terminal for the candidate. `None` if the command does not use it: in a pipeline it
    /// belongs to the other programs.
    pub fn of_candidate() -> Option<Self> {
        (stdin().is_terminal() && stdout().is_terminal()).then(|| Self::open(getpgrp())).flatten()
    }

    pub fn of_guard() -> Option<Self> {
        Self::open(getpgid(Some(getppid()?)).ok()?)
    }

    fn open(theirs: Pid) -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&tty).ok();
        Some(Self { tty, theirs, modes })
    }

    /// Whether this process group has the foreground. Only then can it be moved without SIGTTOU.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == getpgrp())
    }

    /// Moves the foreground to a group, if this one has it.
    pub fn lend(&self, group: Pid) -> bool {
        self.is_ours() && tcsetpgrp(&self.tty, group).is_ok()
    }

    /// Moves the foreground back to the candidate's group, if this one has it.
    pub fn give_back(&self) {
        self.lend(self.theirs);
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
