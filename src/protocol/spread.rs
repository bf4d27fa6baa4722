//! How candidates that wake together spread out, so that few of thousands ask.
//!
//! After Nonnenmacher and Biersack, "Scalable feedback for large groups", IEEE/ACM Transactions on Networking 7(3), 1999:
//! each draws its delay from a truncated exponential, so most wait almost the whole window while a few go early, and
//! whoever hears of a create before its delay is over stays silent. The expected number that ask is small and hardly
//! depends on how many there are.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instant;

/// λ of the truncated exponential: with 10 and a window of 20 ms, 10,000 stand-bys that hear each other within 1 ms
/// send two creates.
const LAMBDA: f64 = 10.0;

/// A window this many times as wide as hearing is uneven keeps the number that ask near e^(λ/4), about a dozen,
/// whatever the size of the fleet.
const WINDOW_OF_UNEVENNESS: u32 = 4;
const LEAST_WINDOW: Duration = Duration::from_millis(8);
const GREATEST_WINDOW: Duration = Duration::from_millis(500);

/// The part of a window in front of it that is kept for candidates with a priority.
const PRIORITY_PART: u32 = 4;

/// (T/λ)·ln(u·(e^λ − 1) + 1) for a window T and a uniform u in [0, 1).
fn truncated_exponential(window: Duration, uniform: f64) -> Duration {
    window.mul_f64(((uniform * LAMBDA.exp_m1()).ln_1p() / LAMBDA).clamp(0.0, 1.0))
}

/// How long a candidate of this priority waits after a vacancy that woke others too.
///
/// Priority 0 draws from the window. Higher ones draw from slots in front of it, the higher the earlier.
pub(super) fn delay(window: Duration, priority: u8, uniform: f64) -> Duration {
    let front = window / PRIORITY_PART;
    if priority == 0 {
        return front + truncated_exponential(window, uniform);
    }
    let (begin, end) = (front / (u32::from(priority) + 1), front / u32::from(priority));
    begin + truncated_exponential(end - begin, uniform)
}

/// How evenly this campaigner hears what the lock stores, compared with the others that hear it.
///
/// The lock stamps each write with its own clock. The differences between those stamps and the local clock at hearing
/// vary by how long the message waited in queues; the clocks' offset drops out. In a large fleet on a slow network
/// they vary more, and the window grows with them.
#[derive(Debug, Clone, Default)]
pub(super) struct Hearing {
    /// Local instant less the lock's stamp, in nanoseconds, of the last few hints.
    offsets: VecDeque<i128>,
    /// A slowly falling estimate of the time a request takes.
    round_trip: Option<Duration>,
}

impl Hearing {
    const KEPT: usize = 8;

    pub(super) fn heard(&mut self, now: Instant, stored_at: Duration) {
        let nanos = |d: Duration| i128::try_from(d.as_nanos()).unwrap_or(i128::MAX);
        if self.offsets.len() == Self::KEPT {
            self.offsets.pop_front();
        }
        self.offsets.push_back(nanos(now.since_origin()) - nanos(stored_at));
    }

    pub(super) fn answered(&mut self, took: Duration) {
        self.round_trip = Some(match self.round_trip {
            Some(before) => (before * 3 + took) / 4,
            None => took,
        });
    }

    pub(super) fn window(&self) -> Duration {
        // The third quartile, so that one hint that was late for reasons of its own does not slow a takeover.
        let mut offsets: Vec<_> = self.offsets.iter().collect();
        offsets.sort_unstable();
        let quartile = offsets.len().saturating_sub(1) * 3 / 4;
        let spread = match (offsets.first(), offsets.get(quartile)) {
            (Some(least), Some(late)) => late.saturating_sub(**least),
            _ => 0,
        };
        let spread = Duration::from_nanos(u64::try_from(spread).unwrap_or(u64::MAX));
        let uneven = spread.saturating_add(self.round_trip.unwrap_or_default());
        uneven.saturating_mul(WINDOW_OF_UNEVENNESS).clamp(LEAST_WINDOW, GREATEST_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(20);

    #[test]
    fn few_of_thousands_ask_and_one_alone_does_not_wait_longer_than_its_window() {
        let mut random = fastrand::Rng::with_seed(7);
        for fleet in [1, 10, 100, 1_000, 10_000] {
            let mut asked = 0;
            for _ in 0..50 {
                let mut delays: Vec<_> =
                    (0..fleet).map(|_| delay(WINDOW, 0, random.f64())).collect();
                delays.sort_unstable();
                assert!(delays[fleet - 1] <= WINDOW + WINDOW / PRIORITY_PART);
                let heard = delays[0] + Duration::from_millis(1);
                asked += delays.iter().take_while(|d| **d < heard).count();
            }
            assert!(asked <= 50 * 4, "{asked} creates in 50 vacancies of {fleet} stand-bys");
        }
    }

    #[test]
    fn the_higher_priority_asks_first() {
        let mut random = fastrand::Rng::with_seed(3);
        for low in 0..20u8 {
            let slowest_high = delay(WINDOW, low + 1, 0.999_999);
            let fastest_low = delay(WINDOW, low, random.f64() * 1e-9);
            assert!(slowest_high <= fastest_low, "priority {low}");
        }
    }

    #[test]
    fn the_window_grows_where_hearing_is_uneven_and_not_with_the_clocks_offset() {
        let mut hearing = Hearing::default();
        let server = Duration::from_secs(1_800_000_000);
        let heard = |hearing: &mut Hearing, after: u64, late: u64| {
            let stored = Duration::from_millis(after);
            hearing
                .heard(Instant::from_origin(stored + Duration::from_millis(late)), server + stored);
        };
        for i in 0..20 {
            heard(&mut hearing, i * 1000, 1);
        }
        assert_eq!(hearing.window(), LEAST_WINDOW);
        heard(&mut hearing, 20_000, 500);
        assert_eq!(hearing.window(), LEAST_WINDOW, "one late hint");
        for i in 21..30 {
            heard(&mut hearing, i * 1000, if i % 2 == 0 { 1 } else { 26 });
        }
        assert_eq!(hearing.window(), Duration::from_millis(100), "uneven hearing");
        for i in 30..40 {
            heard(&mut hearing, i * 1000, i * i * 100);
        }
        assert_eq!(hearing.window(), GREATEST_WINDOW);
    }
}
