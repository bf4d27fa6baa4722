//! Signals to a process that runs a command.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Signal, getpid, kill_process};

use crate::process::signals::SignalStreams;

pub struct Signals(SignalStreams);

/// What to do about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// Stop in order, and exit with 128 and this number.
    End(Signal),
    /// Suspend this process, as the terminal requested.
    Suspend,
    /// Forward the signal to the command.
    PassOn(Signal),
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        HAD_TERMINAL.store(has_terminal(), Ordering::Relaxed);
        let unless_ignored =
            [Signal::INT, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::USR1, Signal::USR2];
        let terminate = SignalStreams::listen(&[Signal::TERM])?;
        terminate.and_unless_ignored(&unless_ignored).map(Self)
    }

    /// The next signal. Cancel safe.
    pub async fn next(&mut self) -> SignalAction {
        match self.0.next().await {
            Signal::TSTP => SignalAction::Suspend,
            signal @ (Signal::USR1 | Signal::USR2) => SignalAction::PassOn(signal),
            Signal::HUP if !hung_up() => SignalAction::PassOn(Signal::HUP),
            signal => SignalAction::End(signal),
        }
    }

    /// The next signal that ends this process. Suspends for others, and drops those for the
    /// command. Cancel safe.
    pub async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                SignalAction::End(signal) => return signal,
                SignalAction::Suspend => suspend_self(),
                SignalAction::PassOn(_) => {}
            }
        }
    }
}

/// Whether SIGHUP means that the terminal was closed. Otherwise it is a request as to daemons, such
/// as to reload.
pub fn hung_up() -> bool {
    HAD_TERMINAL.load(Ordering::Relaxed) && !has_terminal()
}

/// Whether there was a terminal at the start.
static HAD_TERMINAL: AtomicBool = AtomicBool::new(false);

fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Stops this process until it is continued. The guard continues.
pub fn suspend_self() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// The exit code of a program that a signal ended.
pub fn exit_code(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}
