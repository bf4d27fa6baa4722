//! Job control: the command's process group in the foreground of our terminal, and ours back again.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

use rustix::process::{Pid, getpgid, getpgrp, getppid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal.
pub struct Terminal {
    tty: File,
    /// The campaigner's group.
    theirs: Pid,
    modes: Option<Termios>,
}

impl Terminal {
    /// For the campaigner. `None` where the command does not talk with a terminal: in a pipeline the other programs
    /// keep it.
    pub fn of_campaigner() -> Option<Self> {
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

    /// Whether our own group has the terminal. Only then may it be given away without being stopped for trying.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == getpgrp())
    }

    /// Gives the terminal to a group, if it is ours.
    pub fn lend(&self, group: Pid) -> bool {
        self.is_ours() && tcsetpgrp(&self.tty, group).is_ok()
    }

    /// Gives the terminal to the campaigner's group, if it is ours.
    pub fn give_back(&self) {
        self.lend(self.theirs);
    }

    /// A command that was killed could not tidy up.
    pub fn restore_modes(&self) {
        if self.is_ours()
            && let Some(modes) = &self.modes
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Now, modes); // not to wait for one that is stopped
        }
    }
}
