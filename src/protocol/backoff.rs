//! How standbys that must poll slow down.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How long a standby waits before it polls again.
///
/// Only standbys that receive no hints poll. One policy serves all locks of an election: it keeps a
/// state of its own in an atomic. A closure of the same shape is a policy too:
///
/// ```
/// use std::time::Duration;
/// use incumbent::{memory::MemoryLock, new_election};
///
/// let builder = new_election("my_app", MemoryLock::new())
///     .backoff(|_attempt, random| Duration::from_secs(2).mul_f64(0.5 + random));
/// ```
pub trait BackoffPolicy: Send + Sync + 'static {
    /// The wait after `attempt` polls (counted from 0) that found the same holder. `random` is
    /// uniform in [0, 1): a policy that ignores it makes all standbys poll in step. Where it
    /// panics, [`Backoff::FIVE_SEC`] is used instead.
    fn delay(&self, attempt: u32, random: f64) -> Duration;
}

impl<F: Fn(u32, f64) -> Duration + Send + Sync + 'static> BackoffPolicy for F {
    fn delay(&self, attempt: u32, random: f64) -> Duration {
        self(attempt, random)
    }
}

/// The delay of a policy, or, where it panics, that of the default one: it ends no candidate.
pub(crate) fn delay_of(policy: &dyn BackoffPolicy, attempt: u32, random: f64) -> Duration {
    let delay = catch_unwind(AssertUnwindSafe(|| policy.delay(attempt, random)));
    delay.unwrap_or_else(|_| Backoff::FIVE_SEC.delay(attempt, random))
}

/// Choria's policies: a list of waits, each jittered by 0.5 to 1.5, staying at the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    millis: &'static [u16],
}

impl Backoff {
    /// From half a second up to five seconds: Choria's default, and ours.
    pub const FIVE_SEC: Self =
        Self { millis: &[500, 750, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000] };

    /// [`FIVE_SEC`](Self::FIVE_SEC) after a few rapid polls at the start.
    pub const FIVE_SEC_START_GRACE: Self = Self {
        millis: &[
            0, 25, 50, 75, 100, 125, 150, 200, 250, 500, 750, 1000, 1500, 2000, 2500, 3000, 3500,
            4000, 4500, 5000,
        ],
    };

    /// From half a second up to twenty seconds, for fleets of hundreds.
    pub const TWENTY_SEC: Self = Self {
        millis: &[
            500, 750, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000, 5500, 5750, 6000, 6500,
            7000, 7500, 8000, 8500, 9000, 9500, 10_000, 10_500, 10_750, 11_000, 11_500, 12_000,
            12_500, 13_000, 13_500, 14_000, 14_500, 15_000, 15_500, 15_750, 16_000, 16_500, 17_000,
            17_500, 18_000, 18_500, 19_000, 19_500, 20_000,
        ],
    };
}

impl BackoffPolicy for Backoff {
    fn delay(&self, attempt: u32, random: f64) -> Duration {
        let step = usize::try_from(attempt).unwrap_or(usize::MAX);
        let millis = self.millis.get(step).or(self.millis.last()).copied().unwrap_or(0);
        Duration::from_millis(u64::from(millis)).mul_f64(0.5 + random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choria_policies_grow_jitter_and_stay_at_their_last_step() {
        let mut policy = Backoff::TWENTY_SEC;
        assert_eq!(policy.delay(0, 0.0), Duration::from_millis(250));
        assert_eq!(policy.delay(0, 0.5), Duration::from_millis(500));
        assert_eq!(policy.delay(4_000_000_000, 0.5), Duration::from_secs(20));
        policy = Backoff::FIVE_SEC;
        assert_eq!(policy.delay(10, 1.0), Duration::from_millis(7500));
        policy = Backoff::FIVE_SEC_START_GRACE;
        assert_eq!(policy.delay(0, 0.9), Duration::ZERO);
    }
}
