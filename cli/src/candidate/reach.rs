//! How long a candidate tries to reach its lock at the start.

use std::future::pending;
use std::time::Duration;

use incumbent::clock::{self, BootClock, Instant};

use crate::error::{CliError, Code};
use crate::lock_args::Attempts;

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
    pub(super) fn attempts(self) -> Attempts {
        match self {
            Self::Always => Attempts::UnlessTimeout,
            Self::Once => Attempts::One,
            Self::Until { .. } => Attempts::Many,
        }
    }

    /// Waits until there is no more time. Cancel safe.
    pub(super) async fn is_over(self) {
        match self {
            Self::Until { until, .. } => clock::sleep_until(BootClock, until).await,
            Self::Always | Self::Once => pending().await,
        }
    }

    /// Whether a failed attempt is reported at once, rather than at the end.
    pub(super) fn reports_failures(self) -> bool {
        matches!(self, Self::Always)
    }

    /// The error if the time is over. `last`: of the last attempt.
    pub(super) fn failure(self, last: Option<String>) -> CliError {
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
