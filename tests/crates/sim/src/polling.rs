//! How standbys without hints poll.

use std::time::Duration;

use incumbent::protocol::{Backoff, BackoffPolicy};

/// The policy of a candidate.
#[derive(Debug, Clone, Copy)]
pub enum Polling {
    Choria(Backoff),
    /// As an `ExponentialBackoff` of the `backoff` crate, with its defaults.
    Exponential,
}

impl Polling {
    pub fn policy(self) -> Box<dyn BackoffPolicy> {
        match self {
            Self::Choria(backoff) => Box::new(backoff),
            Self::Exponential => Box::new(exponential()),
        }
    }
}

const INITIAL: Duration = Duration::from_millis(500);
const MULTIPLIER: f64 = 1.5;
const MAX: Duration = Duration::from_secs(60);
/// Then that crate's policy ends, and the library begins it anew.
const MAX_ELAPSED: Duration = Duration::from_secs(900);

/// That crate's policy draws from a generator of its own, and reads the machine's clock.
fn exponential() -> impl FnMut(u32, f64) -> Duration + Send {
    let (mut mean, mut elapsed) = (INITIAL, Duration::ZERO);
    move |attempt, random| {
        if attempt == 0 || elapsed + mean.mul_f64(0.5 + random) > MAX_ELAPSED {
            (mean, elapsed) = (INITIAL, Duration::ZERO);
        }
        let delay = mean.mul_f64(0.5 + random);
        elapsed += delay;
        mean = mean.mul_f64(MULTIPLIER).min(MAX);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_policy_grows_to_a_minute_and_begins_anew() {
        let mut policy = exponential();
        let delays: Vec<_> = (0..40).map(|attempt| policy(attempt, 0.5)).collect();
        assert_eq!(delays[..3], [500, 750, 1125].map(Duration::from_millis));
        let anew = delays.iter().rposition(|delay| *delay == INITIAL).expect("it begins anew");
        assert_eq!(delays[anew - 1], MAX);
        let elapsed: Duration = delays[..anew].iter().sum();
        assert!(elapsed <= MAX_ELAPSED && elapsed + MAX > MAX_ELAPSED, "{elapsed:?}");
    }
}
