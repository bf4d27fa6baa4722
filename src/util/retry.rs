//! The schedule of attempts at what may succeed later.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, timeout};

/// Delays without an end: from 50 ms, doubling, at most `MAX_MS` milliseconds, each with a jitter
/// of up to as much again.
///
/// Unlike an iterator of `backon` it can be cloned, which a model checker does with the protocol.
#[derive(Debug, Clone)]
pub(crate) struct RetrySchedule<const MAX_MS: u64> {
    /// The number of delays so far.
    attempts: u32,
    random: fastrand::Rng,
}

/// The delays between requests of the protocol that failed.
pub(crate) type ProtocolRetries = RetrySchedule<1_000>;

/// The delays between requests of a backend that failed.
pub(crate) type BackendRetries = RetrySchedule<5_000>;

impl<const MAX_MS: u64> RetrySchedule<MAX_MS> {
    const MIN_MS: u64 = 50;
    pub const MAX: Duration = Duration::from_millis(MAX_MS);
    /// The number of doublings after which the maximum is reached.
    const MAX_DOUBLINGS: u32 = MAX_MS.div_ceil(Self::MIN_MS).next_power_of_two().ilog2();

    pub fn new(seed: u64) -> Self {
        Self { attempts: 0, random: fastrand::Rng::with_seed(seed) }
    }

    /// A schedule with a seed of its own.
    pub fn unseeded() -> Self {
        Self::new(fastrand::u64(..))
    }

    /// Returns the next delay.
    pub fn delay(&mut self) -> Duration {
        let mut delays = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(Self::MIN_MS))
            .with_max_delay(Self::MAX)
            .without_max_times()
            .with_jitter()
            .with_jitter_seed(self.random.u64(..))
            .build();
        let delay = delays.nth(self.attempts.min(Self::MAX_DOUBLINGS) as usize);
        self.attempts = self.attempts.saturating_add(1);
        delay.unwrap_or(Self::MAX)
    }

    /// Returns the delay after an attempt that began then; from the least one on if it lasted.
    #[allow(dead_code, reason = "each lock uses some of it")]
    pub fn delay_after(&mut self, began: Instant) -> Duration {
        if began.elapsed() > Self::MAX {
            *self = Self::unseeded();
        }
        self.delay()
    }

    /// Returns how many delays of the maximum there were.
    pub fn attempts_at_maximum(&self) -> u32 {
        self.attempts.saturating_sub(Self::MAX_DOUBLINGS)
    }
}

/// The result of one attempt at a request.
pub(crate) struct Attempt<T> {
    pub answer: T,
    /// How long the server, which is too busy, asks clients to wait.
    pub retry_after: Option<Duration>,
    /// Whether the request may have been applied, whatever the server answered.
    pub in_doubt: bool,
}

/// Repeats a request until `deadline` while the server asks for that. Returns the last answer, and
/// whether an earlier attempt may have been applied: it may have caused the answer. Each attempt
/// ends by `deadline`.
pub(crate) async fn until<T, F>(deadline: Instant, attempt: impl Fn() -> F) -> (T, bool)
where
    F: Future<Output = Attempt<T>>,
{
    let mut in_doubt = false;
    loop {
        let tried = attempt().await;
        let left = deadline.saturating_duration_since(Instant::now());
        match tried.retry_after.and_then(|pause| requested_pause(pause, left)) {
            Some(pause) => {
                in_doubt |= tried.in_doubt;
                sleep(pause).await;
            }
            None => return (tried.answer, in_doubt),
        }
    }
}

/// Sends a request, and again beside it while there is no answer: after `pause`, and then after
/// twice as long each time. Returns the first answer, and how many requests were sent. The others
/// are dropped.
pub(crate) async fn hedged<T, F>(mut pause: Duration, request: impl Fn() -> F) -> (T, u32)
where
    F: Future<Output = T>,
{
    let mut running = FuturesUnordered::new();
    let mut sent = 0;
    loop {
        running.push(request());
        sent += 1;
        if let Ok(Some(answer)) = timeout(pause, running.next()).await {
            return (answer, sent);
        }
        pause *= 2;
    }
}

/// Returns a pause that a server asked for, at least 100 ms, plus up to as much again: all that it
/// refused at one instant must not return at one instant. `None`: it is longer than `left`.
fn requested_pause(pause: Duration, left: Duration) -> Option<Duration> {
    // A server that is busy may ask for no pause at all.
    let pause = pause.max(Duration::from_millis(100));
    (pause < left).then(|| pause.mul_f64(1.0 + fastrand::f64()).min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_server_is_not_asked_again_at_once() {
        let second = Duration::from_secs(1);
        let pause = requested_pause(Duration::ZERO, second).expect("there is time left");
        assert!(pause >= Duration::from_millis(100), "{pause:?}");
        assert_eq!(requested_pause(second, second), None);
    }

    #[test]
    fn delays_double_from_50_ms_to_the_maximum() {
        let mut schedule = RetrySchedule::<1_000>::new(7);
        for least in [50, 100, 200, 400, 800, 1000, 1000, 1000] {
            let (delay, least) = (schedule.delay(), Duration::from_millis(least));
            assert!((least..=least * 2).contains(&delay), "{delay:?}");
        }
        let mut longer = RetrySchedule::<5_000>::new(7);
        let last = (0..10_000).map(|_| longer.delay()).last();
        assert!(last.is_some_and(|last| last >= Duration::from_secs(5)), "{last:?}");
    }
}
