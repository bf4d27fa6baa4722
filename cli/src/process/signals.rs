//! The signals that end a program.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, CtrlClose, CtrlShutdown, ctrl_c, ctrl_close, ctrl_shutdown};

/// SIGTERM, and SIGINT and SIGHUP unless they were ignored at the start.
#[cfg(unix)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Option<Signal>,
    hangup: Option<Signal>,
}

#[cfg(unix)]
impl StopSignals {
    /// Takes over the signals: they no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: listen_unless_ignored(SignalKind::interrupt().as_raw_value())?,
            hangup: listen_unless_ignored(SignalKind::hangup().as_raw_value())?,
        })
    }

    /// The number of the next signal. Cancel safe.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            () = received(&mut self.interrupt) => SignalKind::interrupt().as_raw_value(),
            () = received(&mut self.hangup) => SignalKind::hangup().as_raw_value(),
        }
    }
}

/// Takes over the signal with this number, unless it was ignored at the start, as by nohup: then it
/// stays ignored, also by the children of this process.
#[cfg(unix)]
pub fn listen_unless_ignored(number: i32) -> io::Result<Option<Signal>> {
    match is_ignored(number) {
        true => Ok(None),
        false => signal(SignalKind::from_raw(number)).map(Some),
    }
}

#[cfg(target_os = "linux")]
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let signal = rustix::process::Signal::from_named_raw(number);
    signal.is_some_and(|signal| crate::process::is_in(&status, "SigIgn:", signal))
}

/// Not known.
#[cfg(all(unix, not(target_os = "linux")))]
fn is_ignored(_: i32) -> bool {
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
