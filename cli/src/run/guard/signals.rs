//! Signals to the guard, and signals that it forwards to the command.

use std::fs;
use std::io;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::is_in;
use crate::process::signals::SignalStreams;

/// How often to check whether the command has a handler.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How long a forwarded signal waits for a handler.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(10);

/// Any wait lets the runtime dispatch signals.
const DISPATCH: Duration = Duration::from_millis(1);

/// The guard is a member of the command's process group: it receives the terminal's signals, and
/// must survive them.
pub struct GuardSignals {
    /// They only wake the guard.
    wakes: SignalStreams,
    /// Signals that are reported to the candidate.
    reported: SignalStreams,
}

impl GuardSignals {
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            wakes: SignalStreams::listen(&[Signal::CHILD, Signal::TERM, Signal::TSTP])?,
            reported: SignalStreams::listen(&[Signal::INT, Signal::QUIT, Signal::HUP])?,
        })
    }

    /// The next signal to report; `None` for one that only wakes the guard. Cancel safe.
    pub async fn next(&mut self) -> Option<i32> {
        tokio::select! {
            _ = self.wakes.next() => None,
            signal = self.reported.next() => Some(signal.as_raw()),
        }
    }

    /// A signal to report that arrived before this call. Cancel safe.
    ///
    /// A terminal signals every process of a group before any of them can end. So when the command
    /// has ended, the guard was signalled too; the runtime dispatches the signal at its next wait.
    pub async fn already(&mut self) -> Option<i32> {
        tokio::select! {
            biased;
            signal = self.reported.next() => Some(signal.as_raw()),
            () = tokio::time::sleep(DISPATCH) => None,
        }
    }
}

/// Signals for the command, which would kill it before it has a handler, each with the end of its
/// wait for one.
#[derive(Default)]
pub struct PendingSignals(Vec<(Signal, Instant)>);

impl PendingSignals {
    pub fn pass_on(&mut self, signal: Option<Signal>) {
        // As with blocked signals, one of each kind waits.
        let signal = signal.filter(|new| self.0.iter().all(|(waits, _)| waits != new));
        self.0.extend(signal.map(|signal| (signal, BootClock.now() + HANDLER_TIMEOUT)));
    }

    pub fn deliver(&mut self, command: Pid) {
        let now = BootClock.now();
        self.0.retain(|(signal, until)| !deliver(command, *signal) && now < *until);
    }

    pub fn next_check(&self) -> Option<Duration> {
        (!self.0.is_empty()).then_some(CHECK_INTERVAL)
    }
}

/// Sends the signal if the command is ready. Returns whether it is.
fn deliver(command: Pid, signal: Signal) -> bool {
    let ready = is_ready(command, signal);
    if ready {
        let _ = kill_process(command, signal); // a child that was not yet waited for
    }
    ready
}

/// Whether the process catches, ignores or blocks the signal.
fn is_ready(process: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_pid()));
    let status = status.unwrap_or_default();
    ["SigCgt:", "SigIgn:", "SigBlk:"].iter().any(|field| is_in(&status, field, signal))
}
