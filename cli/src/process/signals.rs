//! Signals to this process.

#[cfg(unix)]
use std::future::poll_fn;
use std::io;
#[cfg(unix)]
use std::task::Poll;

#[cfg(unix)]
use rustix::process::Signal;
#[cfg(unix)]
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, CtrlClose, CtrlShutdown, ctrl_c, ctrl_close, ctrl_shutdown};

/// Signals that are taken over: they no longer act on this process by themselves, also once this
/// was dropped.
#[cfg(unix)]
#[derive(Default)]
pub struct SignalStreams(Vec<(Signal, Stream)>);

#[cfg(unix)]
impl SignalStreams {
    /// Takes over these signals.
    pub fn listen(signals: &[Signal]) -> io::Result<Self> {
        Self::default().and(signals.iter().copied())
    }

    /// Takes over these signals, too, but for those that were ignored at the start, as by nohup:
    /// they stay ignored, also by the children of this process.
    pub fn and_unless_ignored(self, signals: &[Signal]) -> io::Result<Self> {
        self.and(signals.iter().copied().filter(|signal| !is_ignored(*signal)))
    }

    fn and(mut self, signals: impl Iterator<Item = Signal>) -> io::Result<Self> {
        for number in signals {
            self.0.push((number, signal(SignalKind::from_raw(number.as_raw()))?));
        }
        Ok(self)
    }

    /// The next signal; waits forever without any. Cancel safe.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let received = self.0.iter_mut().find_map(|(number, stream)| {
                stream.poll_recv(context).is_ready().then_some(*number)
            });
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

#[cfg(target_os = "linux")]
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    crate::process::is_in(&status, "SigIgn:", signal)
}

/// Not known.
#[cfg(all(unix, not(target_os = "linux")))]
fn is_ignored(_: Signal) -> bool {
    false
}

/// The signals that end a program: SIGTERM, and SIGINT and SIGHUP unless they were ignored at the
/// start.
#[cfg(unix)]
pub struct StopSignals(SignalStreams);

#[cfg(unix)]
impl StopSignals {
    /// Takes over the signals: they no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        let terminate = SignalStreams::listen(&[Signal::TERM])?;
        terminate.and_unless_ignored(&[Signal::INT, Signal::HUP]).map(Self)
    }

    /// The number of the next signal. Cancel safe.
    pub async fn next(&mut self) -> i32 {
        self.0.next().await.as_raw()
    }
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
