//! Lease, renewal, grace and drift, checked once.

use std::time::Duration;

use thiserror::Error;

use crate::time::clock::nanos;

/// The shortest lease of any lock: a renewal and its repetition fit into it on a fast network.
pub const MIN_LEASE: Duration = Duration::from_millis(200);
/// The shortest lease that every lock keeps, and the shortest beside Choria's candidates: what
/// states or expires leases does so by the second.
pub const COMMON_MIN_LEASE: Duration = Duration::from_secs(1);
/// The longest lease: Choria's bound on the TTL of an election bucket.
pub const MAX_LEASE: Duration = Duration::from_secs(3600);
/// The least time between two renewals: below it an election is a load test.
pub const MIN_RENEWAL: Duration = Duration::from_millis(50);

/// Refuses a maximum lease that a store cannot state.
#[allow(dead_code, reason = "some locks use it")]
pub(crate) fn check_max_lease(lease: Duration) -> Result<(), String> {
    match (COMMON_MIN_LEASE..=MAX_LEASE).contains(&lease) {
        true => Ok(()),
        false => Err(format!(
            "a maximum lease of {lease:?} is not between {COMMON_MIN_LEASE:?} and {MAX_LEASE:?}"
        )),
    }
}

/// A right to lead ends this part of a lease early, so that two clocks whose rates differ by up to
/// one part in five hundred still agree on who may lead. (NTP slews a clock by at most one part in
/// two thousand.)
pub(crate) const DRIFT_DIVISOR: u32 = 250;

/// How long the writes of a candidate last, and when it renews them.
///
/// All of it counts from the instant *before* a write is sent, on the candidate's own
/// [`Clock`](crate::time::clock::Clock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Timing {
    // In nanoseconds, which take half the memory of durations: each election has one.
    #[cfg_attr(feature = "_history", serde(with = "crate::time::clock::nanos_as_duration"))]
    lease: u64,
    #[cfg_attr(feature = "_history", serde(with = "crate::time::clock::nanos_as_duration"))]
    renewal: u64,
    #[cfg_attr(feature = "_history", serde(with = "crate::time::clock::nanos_as_duration"))]
    grace: u64,
    #[cfg_attr(feature = "_history", serde(with = "crate::time::clock::nanos_as_duration"))]
    validity: u64,
}

/// What a [`Timing`] is made from; what is `None` gets its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimingOptions {
    /// How long one write entitles its writer to lead. Default: the longest that the lock allows.
    pub lease: Option<Duration>,
    /// How long after a write the next one is sent. Default: a third of the lease.
    pub renewal: Option<Duration>,
    /// How long guarded work may take to stop. Default: a sixth of the lease.
    pub grace: Option<Duration>,
    /// Whether Choria's candidates take part in the same election: then the right to lead ends
    /// 0.75 of the lock's longest lease after a write at the latest, before any of theirs can
    /// have won.
    pub with_choria: bool,
}

impl Timing {
    /// Checks `options` against each other and against the longest lease that the lock allows.
    ///
    /// # Errors
    /// The first inequality that does not hold.
    pub fn new(options: TimingOptions, max_lease: Duration) -> Result<Self, TimingError> {
        let lease = options.lease.unwrap_or(max_lease.min(MAX_LEASE));
        if lease < MIN_LEASE {
            return Err(TimingError::LeaseTooShort { lease, least: MIN_LEASE });
        }
        if options.with_choria && lease < COMMON_MIN_LEASE {
            return Err(TimingError::LeaseBesideChoria { lease, least: COMMON_MIN_LEASE });
        }
        if lease > MAX_LEASE {
            return Err(TimingError::LeaseTooLong { lease, greatest: MAX_LEASE });
        }
        if lease > max_lease {
            return Err(TimingError::LeaseExceedsLock { lease, longest: max_lease });
        }
        if !lease.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(TimingError::LeaseNotMillis { lease });
        }
        let drift = lease / DRIFT_DIVISOR;
        let validity = if options.with_choria {
            (lease - drift).min(three_quarters(max_lease) - drift)
        } else {
            lease - drift
        };
        let grace = options.grace.unwrap_or(lease / 6);
        let renewal = options.renewal.unwrap_or(lease / 3);
        if grace >= validity {
            return Err(TimingError::GraceTooLong { grace, validity });
        }
        if renewal < MIN_RENEWAL {
            return Err(TimingError::RenewalTooShort { renewal, least: MIN_RENEWAL });
        }
        if renewal >= validity - grace {
            return Err(TimingError::RenewalTooLong { renewal, limit: validity - grace });
        }
        let [lease, renewal, grace, validity] = [lease, renewal, grace, validity].map(nanos);
        Ok(Self { lease, renewal, grace, validity })
    }

    /// How long one write entitles its writer to lead, as others must reckon.
    pub fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease)
    }

    /// How long after sending a write the next one is sent.
    pub fn renewal(&self) -> Duration {
        Duration::from_nanos(self.renewal)
    }

    /// How long guarded work may take to stop.
    pub fn grace(&self) -> Duration {
        Duration::from_nanos(self.grace)
    }

    /// How long after sending a write its writer itself reckons that it may lead: the lease less
    /// the drift.
    pub fn validity(&self) -> Duration {
        Duration::from_nanos(self.validity)
    }

    /// How long one request may take before it is tried again: an eighth of the lease, at least 250
    /// ms (of a lease below a second: a quarter of it) and at most 5 s, so that several fit between
    /// a renewal and the deadline.
    pub fn request_timeout(&self) -> Duration {
        (self.lease() / 8).clamp(self.scaled(Duration::from_millis(250)), Duration::from_secs(5))
    }

    /// Whether requests that take this long leave a margin: half of the time that one may take.
    pub fn bears(&self, round_trip: Duration) -> bool {
        round_trip <= self.request_timeout() / 2
    }

    /// The shortest lease that [bears](Self::bears) such requests, rounded up to 50 ms, from a
    /// second on to whole seconds; `None`: no lease does.
    pub fn shortest_lease(round_trip: Duration) -> Option<Duration> {
        let ms = ceil_millis(round_trip);
        let lease_ms = match ms {
            0..=125 => (ms * 8).next_multiple_of(50).max(ceil_millis(MIN_LEASE)),
            126..=2_500 => (ms * 16).next_multiple_of(1_000),
            _ => return None,
        };
        Some(Duration::from_millis(lease_ms))
    }

    /// A span that suits leases of a second and more, which is shorter in proportion for a shorter
    /// lease.
    pub(crate) fn scaled(&self, span: Duration) -> Duration {
        scaled_to(self.lease(), span)
    }

    /// How long a former leader that stepped down by itself, or was evicted, lets others go first:
    /// a third of the lease, at most 5 s. Longer where no hints arrive, as others have to poll.
    pub fn yield_delay(&self) -> Duration {
        (self.lease() / 3).min(Duration::from_secs(5))
    }
}

/// A span that suits leases of a second and more, which is shorter in proportion for a shorter
/// lease.
pub(crate) fn scaled_to(lease: Duration, span: Duration) -> Duration {
    match u32::try_from(lease.as_millis()) {
        Ok(lease_ms @ ..1_000) => span.saturating_mul(lease_ms) / 1_000,
        _ => span,
    }
}

/// Stretches a wait so that it is not cut short by a clock that runs fast.
pub(crate) fn with_drift(wait: Duration) -> Duration {
    wait.saturating_add(wait / DRIFT_DIVISOR)
}

/// Whole milliseconds, rounded up: a span that others wait for must not shrink.
pub(crate) fn ceil_millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Whole milliseconds.
pub(crate) fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Without overflow: a server's response may contain a lease of any length.
pub(crate) fn three_quarters(lease: Duration) -> Duration {
    lease - lease / 4
}

/// Which durations do not go together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TimingError {
    /// A lease shorter than [`MIN_LEASE`].
    #[error("a lease of {lease:?} is below the minimum of {least:?}")]
    LeaseTooShort {
        /// As given.
        lease: Duration,
        /// The bound.
        least: Duration,
    },
    /// A lease longer than [`MAX_LEASE`].
    #[error("a lease of {lease:?} is above the maximum of {greatest:?}")]
    LeaseTooLong {
        /// As given.
        lease: Duration,
        /// The bound.
        greatest: Duration,
    },
    /// A lease shorter than the lock can keep.
    #[error("a lease of {lease:?} is too short for this lock: give it {least:?} or more")]
    LeaseBelowLock {
        /// As given.
        lease: Duration,
        /// The shortest of the lock.
        least: Duration,
    },
    /// A lease shorter than Choria's candidates have.
    #[error(
        "a lease of {lease:?} is too short beside Choria's candidates: give it {least:?} or more"
    )]
    LeaseBesideChoria {
        /// As given.
        lease: Duration,
        /// The bound.
        least: Duration,
    },
    /// A lease that the lock does not keep that long.
    #[error("a lease of {lease:?} is longer than the lock keeps an entry, {longest:?}")]
    LeaseExceedsLock {
        /// As given.
        lease: Duration,
        /// What the lock allows.
        longest: Duration,
    },
    /// A lease that is no whole number of milliseconds.
    #[error("a lease of {lease:?} is not a whole number of milliseconds")]
    LeaseNotMillis {
        /// As given.
        lease: Duration,
    },
    /// No time to lead is left before the work must stop.
    #[error("a grace of {grace:?} leaves no time to lead: it must be shorter than {validity:?}")]
    GraceTooLong {
        /// As given.
        grace: Duration,
        /// How long after a write its writer may lead.
        validity: Duration,
    },
    /// Renewals too close together.
    #[error("a renewal every {renewal:?} is more often than the minimum interval of {least:?}")]
    RenewalTooShort {
        /// As given.
        renewal: Duration,
        /// The bound.
        least: Duration,
    },
    /// A renewal that would be due after the work must stop.
    #[error(
        "a renewal every {renewal:?} comes too late: the lease less drift and grace is {limit:?}"
    )]
    RenewalTooLong {
        /// As given or by default.
        renewal: Duration,
        /// What it must be shorter than.
        limit: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn lease(lease: Duration) -> TimingOptions {
        TimingOptions { lease: Some(lease), ..TimingOptions::default() }
    }

    #[test]
    fn defaults_follow_from_the_lock() {
        let timing = Timing::new(TimingOptions::default(), MINUTE).unwrap();
        assert_eq!(timing.lease(), MINUTE);
        assert_eq!(timing.renewal(), Duration::from_secs(20));
        assert_eq!(timing.grace(), Duration::from_secs(10));
        assert_eq!(timing.validity(), Duration::from_millis(59_760));
    }

    #[test]
    fn each_refusal_names_both_numbers() {
        let refused = |options, longest| Timing::new(options, longest).unwrap_err().to_string();
        assert_eq!(
            refused(lease(Duration::from_millis(199)), MINUTE),
            "a lease of 199ms is below the minimum of 200ms"
        );
        assert_eq!(
            refused(lease(MINUTE * 61), MINUTE * 90),
            "a lease of 3660s is above the maximum of 3600s"
        );
        assert_eq!(
            refused(lease(MINUTE), Duration::from_secs(5)),
            "a lease of 60s is longer than the lock keeps an entry, 5s"
        );
        assert_eq!(
            refused(lease(Duration::from_micros(1_000_500)), MINUTE),
            "a lease of 1.0005s is not a whole number of milliseconds"
        );
        let grace = TimingOptions { grace: Some(MINUTE), ..lease(MINUTE) };
        assert_eq!(
            refused(grace, MINUTE),
            "a grace of 60s leaves no time to lead: it must be shorter than 59.76s"
        );
        let often = TimingOptions { renewal: Some(Duration::from_millis(10)), ..lease(MINUTE) };
        assert_eq!(
            refused(often, MINUTE),
            "a renewal every 10ms is more often than the minimum interval of 50ms"
        );
        let late = TimingOptions { renewal: Some(Duration::from_secs(50)), ..lease(MINUTE) };
        assert_eq!(
            refused(late, MINUTE),
            "a renewal every 50s comes too late: the lease less drift and grace is 49.76s"
        );
    }

    #[test]
    fn spans_shrink_with_a_lease_below_a_second_only() {
        let spans = |ms| {
            let timing = Timing::new(lease(Duration::from_millis(ms)), MINUTE).unwrap();
            [timing.request_timeout(), timing.scaled(Duration::from_millis(40))]
        };
        assert_eq!(spans(200), [50, 8].map(Duration::from_millis));
        assert_eq!(spans(250), [Duration::from_micros(62_500), Duration::from_millis(10)]);
        assert_eq!(spans(1_000), [250, 40].map(Duration::from_millis));
        assert_eq!(spans(60_000), [5_000, 40].map(Duration::from_millis));
    }

    #[test]
    fn the_shortest_lease_is_the_first_that_bears_its_requests() {
        let span = Duration::from_millis;
        let expected =
            [(0, 200), (25, 200), (26, 250), (125, 1_000), (126, 3_000), (2_500, 40_000)];
        for (ms, least) in expected {
            assert_eq!(Timing::shortest_lease(span(ms)), Some(span(least)), "{ms} ms");
            assert!(Timing::new(lease(span(least)), MINUTE).unwrap().bears(span(ms)), "{ms} ms");
        }
        assert_eq!(Timing::shortest_lease(span(2_501)), None);
        assert!(!Timing::new(lease(span(250)), MINUTE).unwrap().bears(span(32)));
    }

    #[test]
    fn beside_choria_the_right_ends_before_theirs_can_begin() {
        let options = TimingOptions { with_choria: true, ..lease(MINUTE) };
        let timing = Timing::new(options, MINUTE).unwrap();
        assert!(timing.validity() < Duration::from_secs(45));
        let short = TimingOptions { lease: Some(Duration::from_millis(250)), ..options };
        assert_eq!(
            Timing::new(short, MINUTE).unwrap_err().to_string(),
            "a lease of 250ms is too short beside Choria's candidates: give it 1s or more"
        );
    }
}
