//! When to try again what may pass.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// A schedule without an end: from 50 ms, doubling, at most a second, each with a jitter of up to as much again.
///
/// Unlike an iterator of `backon` it can be copied, which a model checker does with the whole machine.
#[derive(Debug, Clone)]
pub(super) struct Retries {
    /// How often it was doubled.
    pub doubled: u8,
    random: fastrand::Rng,
}

impl Retries {
    /// Doublings after which the longest delay is reached.
    const MAX_DOUBLINGS: u8 = 5;

    pub fn new(seed: u64) -> Self {
        Self { doubled: 0, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Iterator for Retries {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let mut delays = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(1))
            .without_max_times()
            .with_jitter()
            .with_jitter_seed(self.random.u64(..))
            .build();
        let delay = delays.nth(usize::from(self.doubled));
        self.doubled = (self.doubled + 1).min(Self::MAX_DOUBLINGS);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_double_from_50_ms_to_a_second_and_never_end() {
        let least = [50, 100, 200, 400, 800, 1000, 1000, 1000];
        for (delay, least) in Retries::new(7).zip(least) {
            let least = Duration::from_millis(least);
            assert!((least..=least * 2).contains(&delay), "{delay:?}");
        }
        assert_eq!(Retries::new(7).take(10_000).count(), 10_000);
    }
}
