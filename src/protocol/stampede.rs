//! How candidates that wake together spread out, so that few of thousands send a create.
//!
//! After Nonnenmacher and Biersack, "Scalable feedback for large groups", IEEE/ACM Transactions on
//! Networking 7(3), 1999: each draws its delay from a truncated exponential, so most wait almost
//! the whole window while a few go early, and a candidate that receives a create before its delay
//! is over stays silent. The expected number of creates is small and hardly depends on how many
//! there are.

use std::time::Duration;

/// λ of the truncated exponential: with 10 and a window of 20 ms, 10,000 standbys that see each
/// other's creates within 1 ms send two creates.
const LAMBDA: f64 = 10.0;

/// A window this many times as wide as the latency of hints keeps the number of creates near
/// e^(λ/8), three or four, where all receive them equally late; measured with a thousand standbys
/// that a server serves one after the other it is about five.
const WINDOW_OF_LATENCY: u32 = 8;
const MIN_WINDOW: Duration = Duration::from_millis(8);
pub(super) const MAX_WINDOW: Duration = Duration::from_millis(500);
/// A candidate that is woken among few has to subscribe to the others' creates first.
const MIN_WINDOW_OF_FEW: Duration = Duration::from_millis(24);

/// The part of a window in front of it that is kept for candidates with a priority.
const PRIORITY_PART: u32 = 4;

/// (T/λ)·ln(u·(e^λ − 1) + 1) for a window T and a uniform u in [0, 1).
pub(super) fn truncated_exponential(window: Duration, uniform: f64) -> Duration {
    window.mul_f64(((uniform * LAMBDA.exp_m1()).ln_1p() / LAMBDA).clamp(0.0, 1.0))
}

/// How long a candidate of this priority waits after a vacancy that woke others too.
///
/// Priority 0 draws from the window. Higher ones draw from slots in front of it, the higher the
/// earlier.
pub(super) fn delay(window: Duration, priority: u8, uniform: f64) -> Duration {
    delay_in(window, priority, |span| truncated_exponential(span, uniform))
}

/// The same where few of a fleet are woken: their delays are uniform, which spreads a few best.
pub(super) fn delay_of_few(window: Duration, priority: u8, uniform: f64) -> Duration {
    delay_in(window.max(MIN_WINDOW_OF_FEW), priority, |span| span.mul_f64(uniform))
}

fn delay_in(window: Duration, priority: u8, draw: impl Fn(Duration) -> Duration) -> Duration {
    let front = window / PRIORITY_PART;
    if priority == 0 {
        return front + draw(window);
    }
    let (begin, end) = (front / (u32::from(priority) + 1), front / u32::from(priority));
    begin + draw(end - begin)
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

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(20);

    #[test]
    fn few_of_thousands_acquire_and_one_alone_waits_no_longer_than_its_window() {
        let mut random = fastrand::Rng::with_seed(7);
        for fleet in [1, 10, 100, 1_000, 10_000] {
            let mut creates = 0;
            for _ in 0..50 {
                let mut delays: Vec<_> =
                    (0..fleet).map(|_| delay(WINDOW, 0, random.f64())).collect();
                delays.sort_unstable();
                assert!(delays[fleet - 1] <= WINDOW + WINDOW / PRIORITY_PART);
                let seen = delays[0] + Duration::from_millis(1);
                creates += delays.iter().take_while(|d| **d < seen).count();
            }
            assert!(creates <= 50 * 4, "{creates} creates in 50 vacancies of {fleet} standbys");
        }
    }

    #[test]
    fn the_higher_priority_acquires_first() {
        let mut random = fastrand::Rng::with_seed(3);
        for low in 0..20u8 {
            let slowest_high = delay(WINDOW, low + 1, 0.999_999);
            let fastest_low = delay(WINDOW, low, random.f64() * 1e-9);
            assert!(slowest_high <= fastest_low, "priority {low}");
        }
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
