//! Where a few of the writes are reported, drawn at random: when to poll, and what to repeat.
//!
//! Of a fleet that shares a few hints, each standby polls about as often as hints reach it. All of
//! them together then poll about as often as hints are delivered, however many they are.

use std::time::Duration;

use crate::lock::StepDownNotice;
use crate::time::clock::Instant;

/// The longest wait for a poll on the average.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// So many hints are counted. Then half of what was counted is forgotten: fleets grow and shrink.
const COUNTED: u32 = 8;

/// How often hints have come lately.
#[derive(Debug, Clone)]
pub(super) struct HintRate {
    since: Instant,
    hints: u32,
}

impl HintRate {
    pub fn new(now: Instant) -> Self {
        Self { since: now, hints: 0 }
    }

    pub fn hint_came(&mut self, now: Instant) {
        self.hints += 1;
        if self.hints >= COUNTED {
            self.hints /= 2;
            self.since = now - now.saturating_since(self.since) / 2;
        }
    }

    /// The time between two hints, as far as is known. It grows while none comes.
    pub fn interval(&self, now: Instant) -> Duration {
        (now.saturating_since(self.since) / (self.hints + 1)).min(MAX_WAIT)
    }
}

/// A step-down notice, until nobody can need it any more.
#[derive(Debug, Clone)]
pub(super) struct SentNotice {
    pub notice: StepDownNotice,
    pub until: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_interval_follows_the_hints() {
        let mut now = Instant::ORIGIN + SECOND * 100;
        let mut rate = HintRate::new(now);
        assert_eq!(rate.interval(now), Duration::ZERO);
        now = now + SECOND * 64;
        assert_eq!(rate.interval(now), SECOND * 64, "nothing came");
        for _ in 0..40 {
            now = now + SECOND;
            rate.hint_came(now);
        }
        assert!(rate.interval(now) < SECOND * 2, "{:?}", rate.interval(now));
        now = now + SECOND * 1_000_000;
        assert_eq!(rate.interval(now), MAX_WAIT);
    }
}
