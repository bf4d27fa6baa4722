//! How long a candidate tries to reach its lock at the start.

use std::future::pending;
use std::time::Duration;

use incumbent::clock::{self, BootClock, Instant};

use super::status_line::StatusLine;
use crate::error::{CliError, Code};
use crate::lock::{Attempts, LeaseArgs, LockArgs, OpenedLock};
use crate::output;

/// How long to try to reach the lock.
#[derive(Debug, Clone, Copy, Default)]
pub enum Reach {
    /// Until it is reached; once, if the timeout of requests is given.
    #[default]
    Always,
    Once,
    Until {
        limit: Duration,
        until: Instant,
    },
}

impl Reach {
    /// Opens the lock of an election once its server is reachable. Returns the output of `end` if
    /// it completes before.
    pub async fn open<T>(
        self,
        lock: &LockArgs,
        name: &str,
        lease: &LeaseArgs,
        status: &mut StatusLine,
        end: impl Future<Output = T>,
    ) -> Result<Result<OpenedLock, T>, CliError> {
        status.show(&format!("{name}: connecting"));
        let mut last = None;
        let mut on_retry = |why: &CliError| {
            let why = why.to_string();
            if self.reports_failures() {
                status.clear();
                output::note(format!("incumbent: {why}; retrying"));
            }
            status.show(&format!("{name}: {why}; retrying"));
            last = Some(why);
        };
        let opened = tokio::select! {
            opened = lock.open(name, lease, self.attempts(), &mut on_retry) => Some(Ok(opened)),
            () = self.is_over() => None,
            end = end => Some(Err(end)),
        };
        status.clear();
        match opened {
            Some(Ok(opened)) => Ok(Ok(opened?)),
            Some(Err(end)) => Ok(Err(end)),
            None => Err(self.failure(last)),
        }
    }

    fn attempts(self) -> Attempts {
        match self {
            Self::Always => Attempts::UnlessTimeout,
            Self::Once => Attempts::One,
            Self::Until { .. } => Attempts::Many,
        }
    }

    /// Waits until there is no more time. Cancel safe.
    async fn is_over(self) {
        match self {
            Self::Until { until, .. } => clock::sleep_until(BootClock, until).await,
            Self::Always | Self::Once => pending().await,
        }
    }

    /// Whether a failed attempt is reported at once, rather than at the end.
    fn reports_failures(self) -> bool {
        matches!(self, Self::Always)
    }

    /// The error if the time is over. `last`: of the last attempt.
    fn failure(self, last: Option<String>) -> CliError {
        let why = last.unwrap_or_else(|| "no response of the lock: see `incumbent doctor`".into());
        let message = match self {
            Self::Until { limit, .. } => {
                format!("{why} (tried for {})", humantime::format_duration(limit))
            }
            Self::Always | Self::Once => why,
        };
        CliError::new(Code::Unreachable, message)
    }
}
