//! The signals that end a program.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, CtrlClose, CtrlShutdown, ctrl_c, ctrl_close, ctrl_shutdown};

/// SIGTERM, SIGINT, and SIGHUP unless it was ignored at the start, as by nohup.
#[cfg(unix)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

#[cfg(unix)]
impl StopSignals {
    /// Takes over the signals: they no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        let hangup = match ignores_hangup() {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)?, hangup })
    }

    /// The number of the next signal. Cancel safe.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            () = received(&mut self.hangup) => SignalKind::hangup().as_raw_value(),
        }
    }
}

#[cfg(target_os = "linux")]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    crate::process::is_in(&status, "SigIgn:", rustix::process::Signal::HUP)
}

/// Not known: a hangup ends the program.
#[cfg(all(unix, not(target_os = "linux")))]
fn ignores_hangup() -> bool {
    false
}

/// Ctrl-C, the end of the console, and the shutdown of the machine.
#[cfg(windows)]
pub struct StopSignals {
    interrupt: CtrlC,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

#[cfg(windows)]
impl StopSignals {
    /// Takes over the events: they no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, close: ctrl_close()?, shutdown: ctrl_shutdown()? })
    }

    /// The number of the signal that means the same as the next event. Cancel safe.
    pub async fn next(&mut self) -> i32 {
        use signal_hook::consts::{SIGINT, SIGTERM};
        tokio::select! {
            _ = self.interrupt.recv() => SIGINT,
            _ = self.close.recv() => SIGTERM,
            _ = self.shutdown.recv() => SIGTERM,
        }
    }
}

/// Waits for a signal; forever for one that is not listened to. Cancel safe.
#[cfg(unix)]
pub async fn received(stream: &mut Option<Signal>) {
    match stream {
        Some(stream) => drop(stream.recv().await),
        None => std::future::pending().await,
    }
}
