//! Signals to a process that runs a command.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::process::signals::{listen_unless_ignored, received};

pub struct Signals {
    terminate: Option<Stream>,
    interrupt: Option<Stream>,
    hangup: Option<Stream>,
    quit: Option<Stream>,
    suspend: Option<Stream>,
    user: [Option<Stream>; 2],
}

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
        let listen = |number: Signal| listen_unless_ignored(number.as_raw());
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map(Some)?,
            interrupt: listen(Signal::INT)?,
            hangup: listen(Signal::HUP)?,
            quit: listen(Signal::QUIT)?,
            suspend: listen(Signal::TSTP)?,
            user: [listen(Signal::USR1)?, listen(Signal::USR2)?],
        })
    }

    /// The next signal. Cancel safe.
    pub async fn next(&mut self) -> SignalAction {
        let [first, second] = &mut self.user;
        tokio::select! {
            () = received(&mut self.terminate) => SignalAction::End(Signal::TERM),
            () = received(&mut self.interrupt) => SignalAction::End(Signal::INT),
            () = received(&mut self.hangup) => match hung_up() {
                true => SignalAction::End(Signal::HUP),
                false => SignalAction::PassOn(Signal::HUP),
            },
            () = received(first) => SignalAction::PassOn(Signal::USR1),
            () = received(second) => SignalAction::PassOn(Signal::USR2),
            () = received(&mut self.quit) => SignalAction::End(Signal::QUIT),
            () = received(&mut self.suspend) => SignalAction::Suspend,
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
