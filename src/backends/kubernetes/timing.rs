//! client-go's timing, and its validation.

use std::time::Duration;

use thiserror::Error;

use crate::protocol::{DRIFT_DIVISOR, TimingOptions};

/// Lease duration and renewal in client-go's terms, with its defaults and its validation.
///
/// Each duration is measured on the candidate's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTiming {
    lease: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl LeaseTiming {
    /// `lease`: how long others wait for a holder that does not renew, a whole number of seconds.
    /// `renew_deadline`: how long after its last successful renewal a leader is asked to stop.
    /// `retry_period`: how long after a renewal the next one is sent.
    ///
    /// # Errors
    /// Returns the first of client-go's inequalities that does not hold: the lease must be longer
    /// than the renew deadline, which must be longer than 1.2 times the retry period. Also fails if
    /// the lease is not a whole number of seconds.
    pub fn new(
        lease: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, LeaseTimingError> {
        if lease.is_zero() || lease.subsec_nanos() > 0 {
            return Err(LeaseTimingError::LeaseNotMillis { lease });
        }
        if lease <= renew_deadline {
            return Err(LeaseTimingError::RenewDeadlineTooLong { renew_deadline, lease });
        }
        // As client-go's JitterFactor requires.
        let least = retry_period.saturating_add(retry_period / 5);
        if renew_deadline <= least {
            return Err(LeaseTimingError::RenewDeadlineTooShort { renew_deadline, least });
        }
        if retry_period.is_zero() {
            return Err(LeaseTimingError::NoRetryPeriod);
        }
        Ok(Self { lease, renew_deadline, retry_period })
    }

    /// Uses a lease of whole seconds, and client-go's proportions for the rest: two thirds and two
    /// fifteenths of it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_lease(lease: Duration) -> Result<Self, LeaseTimingError> {
        Self::new(lease, lease / 3 * 2, lease / 15 * 2)
    }

    /// Returns how long others wait for a holder that does not renew.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn options(&self) -> TimingOptions {
        let tenure = self.lease - self.lease / DRIFT_DIVISOR;
        TimingOptions {
            lease: Some(self.lease),
            renewal: Some(self.retry_period),
            grace: Some(tenure.saturating_sub(self.renew_deadline)),
            with_choria: false,
        }
    }
}

/// client-go's defaults: 15 s, 10 s and 2 s.
impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Durations that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeaseTimingError {
    /// A Lease cannot express the duration.
    #[error("a lease of {lease:?} is not a whole number of seconds, at least one")]
    LeaseNotMillis {
        /// As given.
        lease: Duration,
    },
    /// The leader would be asked to stop after others may lead.
    #[error("a renew deadline of {renew_deadline:?} is not shorter than the lease, {lease:?}")]
    RenewDeadlineTooLong {
        /// As given.
        renew_deadline: Duration,
        /// As given.
        lease: Duration,
    },
    /// The leader would be asked to stop before its first attempt to renew.
    #[error(
        "a renew deadline of {renew_deadline:?} is not longer than 1.2 times the retry period, {least:?}"
    )]
    RenewDeadlineTooShort {
        /// As given.
        renew_deadline: Duration,
        /// The bound that it must exceed.
        least: Duration,
    },
    /// Renewals would follow each other without a pause.
    #[error("a retry period must be longer than zero")]
    NoRetryPeriod,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Timing;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_defaults_are_those_of_client_go() {
        let timing = Timing::new(LeaseTiming::default().options(), SECOND * 15).unwrap();
        assert_eq!(timing.lease(), SECOND * 15);
        assert_eq!(timing.renewal(), SECOND * 2);
        assert_eq!(timing.validity() - timing.grace(), SECOND * 10, "the renew deadline");
    }

    #[test]
    fn the_checks_are_those_of_client_go() {
        let refused = |lease, deadline, retry| {
            LeaseTiming::new(lease, deadline, retry).unwrap_err().to_string()
        };
        assert_eq!(
            refused(SECOND * 10, SECOND * 10, SECOND),
            "a renew deadline of 10s is not shorter than the lease, 10s"
        );
        assert_eq!(
            refused(SECOND * 15, SECOND * 6, SECOND * 5),
            "a renew deadline of 6s is not longer than 1.2 times the retry period, 6s"
        );
        assert_eq!(
            refused(SECOND * 3 / 2, SECOND, SECOND / 2),
            "a lease of 1.5s is not a whole number of seconds, at least one"
        );
        assert_eq!(
            refused(SECOND * 3, SECOND, Duration::ZERO),
            "a retry period must be longer than zero"
        );
        let longest = refused(SECOND * 3, SECOND, Duration::MAX);
        assert!(longest.starts_with("a renew deadline of 1s is not longer than"), "{longest}");
    }
}
