//! The signals that stop a candidate.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::process::is_in;

/// SIGTERM, SIGINT, and SIGHUP unless it was ignored at the start, as by nohup.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Takes over the signals: they no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = match is_in(&status, "SigIgn:", rustix::process::Signal::HUP) {
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

/// Waits for a signal; forever for one that is not listened to. Cancel safe.
pub async fn received(stream: &mut Option<Signal>) {
    match stream {
        Some(stream) => drop(stream.recv().await),
        None => std::future::pending().await,
    }
}
