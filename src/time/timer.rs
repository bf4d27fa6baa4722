//! Instants on tokio's timers.

use std::time::Duration;

use tokio::time::Instant;

/// About thirty years: a wait that does not end, and that can be added to the present.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The instant `span` from now. A span may come from anybody, and adding the longest ones to an instant panics.
pub(crate) fn from_now(span: Duration) -> Instant {
    Instant::now() + span.min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_span_has_an_instant() {
        for span in [Duration::ZERO, Duration::from_secs(3600), LONGEST] {
            assert_eq!(from_now(span), Instant::now() + span);
        }
        assert_eq!(from_now(Duration::MAX), Instant::now() + LONGEST);
    }
}
