//! Signals that the guard hears, and those that it passes on.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// How often to look whether the command is ready for a signal: nothing tells it.
const READY: Duration = Duration::from_millis(10);

/// Any wait makes the runtime look for signals.
const HANDED_ON: Duration = Duration::from_millis(1);

/// As a member of the command's process group the guard gets what a terminal sends to it, and must outlive it.
pub struct Heard {
    child: Stream,
    terminate: Stream,
    suspend: Stream,
    to_tell: ToTell,
}

/// Those that the campaigner is told of.
struct ToTell {
    interrupt: Stream,
    quit: Stream,
    hangup: Stream,
}

impl Heard {
    pub fn listen() -> io::Result<Self> {
        let listen = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        Ok(Self {
            child: listen(Signal::CHILD)?,
            terminate: listen(Signal::TERM)?,
            suspend: listen(Signal::TSTP)?,
            to_tell: ToTell {
                interrupt: listen(Signal::INT)?,
                quit: listen(Signal::QUIT)?,
                hangup: listen(Signal::HUP)?,
            },
        })
    }

    /// The next signal to tell of; `None` for one that only wakes. Cancel safe.
    pub async fn next(&mut self) -> Option<i32> {
        tokio::select! {
            _ = self.child.recv() => None,
            _ = self.terminate.recv() => None,
            _ = self.suspend.recv() => None,
            signal = self.to_tell.next() => Some(signal),
        }
    }

    /// A signal to tell of that came before this was called. Cancel safe.
    ///
    /// A terminal signals every process of a group before any of them can end, so whoever sees that the command has
    /// ended was itself signalled; the runtime hands that on when it next waits.
    pub async fn already(&mut self) -> Option<i32> {
        tokio::select! {
            biased;
            signal = self.to_tell.next() => Some(signal),
            () = tokio::time::sleep(HANDED_ON) => None,
        }
    }
}

impl ToTell {
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT.as_raw(),
            _ = self.quit.recv() => Signal::QUIT.as_raw(),
            _ = self.hangup.recv() => Signal::HUP.as_raw(),
        }
    }
}

/// Signals for the command that would kill it if they came before it has a handler for them.
#[derive(Default)]
pub struct Pending(VecDeque<Signal>);

impl Pending {
    pub fn extend(&mut self, signal: Option<Signal>) {
        self.0.extend(signal);
        // Won and lost before it listened: it need not know of either.
        if self.0.len() > 2 {
            self.0.drain(..2);
        }
    }

    pub fn deliver(&mut self, command: Pid) {
        while let Some(signal) = self.0.front() {
            if !is_ready(command, *signal) {
                return;
            }
            let _ = kill_process(command, *signal); // our own child, not yet waited for
            self.0.pop_front();
        }
    }

    pub fn next_look(&self) -> Option<Duration> {
        (!self.0.is_empty()).then_some(READY)
    }
}

/// Whether it catches, ignores or blocks the signal.
fn is_ready(process: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_pid()));
    let status = status.unwrap_or_default();
    ["SigCgt:", "SigIgn:", "SigBlk:"].iter().any(|field| is_in(&status, field, signal))
}

/// Whether the set of signals in this field of a `status` file has the signal.
pub fn is_in(status: &str, field: &str, signal: Signal) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix(field));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    set >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_signals_are_read() {
        let status = "Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000a00\n";
        assert!(is_in(status, "SigIgn:", Signal::HUP));
        assert!(is_in(status, "SigCgt:", Signal::USR1) && is_in(status, "SigCgt:", Signal::USR2));
        assert!(!is_in(status, "SigCgt:", Signal::TERM) && !is_in("", "SigIgn:", Signal::HUP));
    }

    #[test]
    fn what_was_won_and_lost_unheard_is_forgotten() {
        let mut pending = Pending::default();
        for signal in [Signal::USR1, Signal::USR2, Signal::USR1] {
            pending.extend(Some(signal));
        }
        assert_eq!(pending.0, [Signal::USR1]);
    }
}
