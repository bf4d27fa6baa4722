//! Pauses between attempts at requests that a server did not answer.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// From 50 ms, doubling up to [`LONGEST`](Self::LONGEST), with jitter; they never end.
#[derive(Debug)]
pub(crate) struct Pauses(ExponentialBackoff);

impl Pauses {
    pub(crate) const LONGEST: Duration = Duration::from_secs(5);
    const SHORTEST: Duration = Duration::from_millis(50);

    pub(crate) fn new() -> Self {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(Self::SHORTEST)
            .with_max_delay(Self::LONGEST)
            .with_jitter()
            .without_max_times();
        Self(pauses.build())
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        self.0.next().unwrap_or(Self::LONGEST)
    }
}
