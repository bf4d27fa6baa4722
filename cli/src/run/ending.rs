//! The end of a program with several commands: a member of a set, or a schedule.

use std::time::Duration;

use rustix::process::Signal;

use super::signals::exit_code;
use crate::candidate::systemd;
use crate::error::{CliError, Code};

/// How the program ends, once it does.
pub struct Ending {
    /// How long a service manager is to wait, where the commands drain.
    drains: Option<Duration>,
    /// The first reason, unless it was a signal.
    reason: Option<Result<u8, CliError>>,
    /// The last signal.
    signal: Option<Signal>,
}

impl Ending {
    /// `drain`: how long the commands may drain.
    pub fn new(drain: Option<Duration>, lease: Duration) -> Self {
        let drains = drain.map(|drain| drain.saturating_add(lease));
        Self { drains, reason: None, signal: None }
    }

    pub fn has_begun(&self) -> bool {
        self.reason.is_some() || self.signal.is_some()
    }

    /// Takes a signal to end. Returns whether it is the second one, which ends the drains.
    pub fn on_signal(&mut self, signal: Signal) -> bool {
        self.notify();
        self.signal.replace(signal).is_some()
    }

    /// Takes another reason to end: an exit code, or a failure. It counts if it is the first one.
    pub fn begin(&mut self, reason: Result<u8, CliError>) {
        match reason {
            _ if !self.has_begun() => {
                self.notify();
                self.reason = Some(reason);
            }
            Err(failure) if matches!(self.reason, Some(Err(_))) => {
                tracing::info!(%failure, "a further failure");
            }
            Err(failure) => {
                failure.report(); // the exit code is that of the signal, or of the command
            }
            Ok(_) => {} // the command ended as it was to
        }
    }

    /// The exit code, or the failure.
    pub fn outcome(self) -> Result<u8, CliError> {
        match (self.reason, self.signal) {
            (Some(reason), _) => reason,
            (None, Some(signal)) => Ok(exit_code(signal)),
            (None, None) => Err(CliError::new(Code::Failed, incumbent::Stopped.to_string())),
        }
    }

    fn notify(&self) {
        match self.drains {
            _ if self.has_begun() => {}
            Some(longest) => systemd::draining(longest),
            None => systemd::stopping(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> Ending {
        Ending::new(Some(Duration::from_secs(60)), Duration::from_secs(10))
    }

    fn failure() -> Result<u8, CliError> {
        Err(CliError::new(Code::Failed, "a failure"))
    }

    #[test]
    fn second_signal_alone_ends_the_drains() {
        let mut ending = ending();
        assert!(!ending.on_signal(Signal::TERM));
        ending.begin(failure());
        ending.begin(Ok(7));
        assert!(ending.on_signal(Signal::INT));
        assert_eq!(ending.outcome().ok(), Some(128 + 2), "the last signal");
    }

    #[test]
    fn first_reason_is_not_replaced() {
        let mut failed = ending();
        assert!(!failed.has_begun());
        failed.begin(failure());
        assert!(failed.has_begun() && !failed.on_signal(Signal::TERM));
        assert!(failed.outcome().is_err_and(|failure| failure.to_string() == "a failure"));
        let mut exited = ending();
        exited.begin(Ok(7));
        exited.begin(failure());
        assert_eq!(exited.outcome().ok(), Some(7));
        assert!(ending().outcome().is_err(), "it has stopped by itself");
    }
}
