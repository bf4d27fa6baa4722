//! Signals that the guard hears, and those that it passes on.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::run::signals::is_in;

/// How often to look whether the command is ready for a signal: nothing tells it.
const READY: Duration = Duration::from_millis(10);

/// How long a signal of somebody else waits for a handler: a command that has none by then does not want it.
const HANDLER: Duration = Duration::from_secs(10);

/// Any wait makes the runtime look for signals.
const HANDED_ON: Duration = Duration::from_millis(1);

/// As a member of the command's process group the guard gets what a terminal sends to it, and must outlive it.
pub struct GuardSignals {
    child: Stream,
    terminate: Stream,
    suspend: Stream,
    reported: ReportedSignals,
}

/// Those that the campaigner is told of.
struct ReportedSignals {
    interrupt: Stream,
    quit: Stream,
    hangup: Stream,
}

impl GuardSignals {
    pub fn listen() -> io::Result<Self> {
        let listen = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        Ok(Self {
            child: listen(Signal::CHILD)?,
            terminate: listen(Signal::TERM)?,
            suspend: listen(Signal::TSTP)?,
            reported: ReportedSignals {
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
            signal = self.reported.next() => Some(signal),
        }
    }

    /// A signal to tell of that came before this was called. Cancel safe.
    ///
    /// A terminal signals every process of a group before any of them can end, so whoever sees that the command has
    /// ended was itself signalled; the runtime hands that on when it next waits.
    pub async fn already(&mut self) -> Option<i32> {
        tokio::select! {
            biased;
            signal = self.reported.next() => Some(signal),
            () = tokio::time::sleep(HANDED_ON) => None,
        }
    }
}

impl ReportedSignals {
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
pub struct PendingSignals {
    /// Of the campaigner: each tells of a win or a loss.
    told: VecDeque<Signal>,
    /// Of others, with when the wait for a handler is over.
    passed: Vec<(Signal, Instant)>,
}

impl PendingSignals {
    pub fn tell(&mut self, signal: Option<Signal>) {
        self.told.extend(signal);
        // Won and lost before it listened: it need not know of either.
        if self.told.len() > 2 {
            self.told.drain(..2);
        }
    }

    pub fn pass_on(&mut self, signal: Option<Signal>) {
        // As with signals that are blocked, one of a kind waits.
        let signal = signal.filter(|new| self.passed.iter().all(|(waits, _)| waits != new));
        self.passed.extend(signal.map(|signal| (signal, BootClock.now() + HANDLER)));
    }

    pub fn deliver(&mut self, command: Pid) {
        let now = BootClock.now();
        self.passed.retain(|(signal, until)| !deliver(command, *signal) && now < *until);
        while let Some(signal) = self.told.front() {
            if !deliver(command, *signal) {
                return;
            }
            self.told.pop_front();
        }
    }

    pub fn next_look(&self) -> Option<Duration> {
        (!self.told.is_empty() || !self.passed.is_empty()).then_some(READY)
    }
}

/// Sends it to a command that is ready for it; answers whether it is.
fn deliver(command: Pid, signal: Signal) -> bool {
    let ready = is_ready(command, signal);
    if ready {
        let _ = kill_process(command, signal); // our own child, not yet waited for
    }
    ready
}

/// Whether it catches, ignores or blocks the signal.
fn is_ready(process: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_pid()));
    let status = status.unwrap_or_default();
    ["SigCgt:", "SigIgn:", "SigBlk:"].iter().any(|field| is_in(&status, field, signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_won_and_lost_unheard_is_forgotten() {
        let mut pending = PendingSignals::default();
        for signal in [Signal::USR1, Signal::USR2, Signal::USR1] {
            pending.tell(Some(signal));
        }
        assert_eq!(pending.told, [Signal::USR1]);
    }
}
