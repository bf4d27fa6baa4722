//! How late and how often hints come. Where a few of the writes are reported, drawn at random: when
//! to poll, and what to repeat.
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

/// A window this many times as wide as the latency of hints keeps the number of creates near
/// e^(λ/8), three or four, where all receive them equally late; measured with a thousand standbys
/// that a server serves one after the other it is about five.
const WINDOW_OF_LATENCY: u32 = 8;
const MIN_WINDOW: Duration = Duration::from_millis(8);
pub(super) const MAX_WINDOW: Duration = Duration::from_millis(500);
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

/// How long hints of what the lock stores take to reach this candidate.
///
/// In a large fleet or on a slow network it takes longer, and the window grows with it. A server
/// that repeats a message to thousands serves them one after the other: those served late draw from
/// a wider window, so that those served early settle it among themselves.
#[derive(Debug, Clone, Default)]
pub(super) struct HintLatency {
    /// How old the last few hints were, in microseconds.
    ages: [u32; Self::KEPT],
    /// How many of them there are, and which is the oldest once that is all.
    known: u8,
    oldest: u8,
    /// The shortest time that a request took, in microseconds.
    round_trip: Option<u32>,
}

impl HintLatency {
    const KEPT: usize = 8;

    pub(super) fn hint_came_after(&mut self, age: Duration) {
        let age = micros(age);
        if let Some(oldest) = self.ages.get_mut(usize::from(self.oldest)) {
            *oldest = age;
        }
        self.oldest = (self.oldest + 1) % Self::KEPT as u8;
        self.known = (self.known + 1).min(Self::KEPT as u8);
    }

    pub(super) fn request_took(&mut self, took: Duration) {
        let took = micros(took);
        self.round_trip = Some(self.round_trip.map_or(took, |shortest| shortest.min(took)));
    }

    /// The shortest time that a request took.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip.map(|micros| Duration::from_micros(micros.into()))
    }

    pub(super) fn window(&self) -> Duration {
        // The third quartile, so that one hint that was late for reasons of its own does not slow a
        // takeover.
        let mut ages = self.ages;
        let ages = ages.get_mut(..usize::from(self.known)).unwrap_or_default();
        ages.sort_unstable();
        let age = ages.get(ages.len().saturating_sub(1) * 3 / 4).copied();
        let span = |micros: Option<u32>| Duration::from_micros(micros.unwrap_or_default().into());
        let latency = span(age).saturating_add(span(self.round_trip));
        latency.saturating_mul(WINDOW_OF_LATENCY).clamp(MIN_WINDOW, MAX_WINDOW)
    }
}

/// At most 71 minutes, which is longer than any request takes.
fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
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

    #[test]
    fn the_window_grows_with_the_latency_of_hints() {
        let mut latency = HintLatency::default();
        assert_eq!(latency.window(), MIN_WINDOW);
        for _ in 0..8 {
            latency.hint_came_after(Duration::from_millis(1));
        }
        assert_eq!(latency.window(), MIN_WINDOW);
        latency.hint_came_after(Duration::from_secs(100));
        assert_eq!(latency.window(), MIN_WINDOW, "one late hint");
        for _ in 0..8 {
            latency.hint_came_after(Duration::from_millis(20));
        }
        latency.request_took(Duration::from_millis(90));
        latency.request_took(Duration::from_millis(5));
        assert_eq!(latency.window(), Duration::from_millis(200), "slow hints");
        for _ in 0..8 {
            latency.hint_came_after(Duration::MAX);
        }
        assert_eq!(latency.window(), MAX_WINDOW);
    }
}
