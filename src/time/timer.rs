//! Instants on tokio's timers.

use std::time::Duration;

use tokio::time::Instant;

/// About thirty years: a wait that does not end, and that can be added to the present.
const MAX: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The instant `span` from now. A span may come from anybody, and adding the longest ones to an
/// instant panics.
pub(crate) fn deadline_after(span: Duration) -> Instant {
    Instant::now() + span.min(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_span_has_an_instant() {
        for span in [Duration::ZERO, Duration::from_secs(3600), MAX] {
            assert_eq!(deadline_after(span), Instant::now() + span);
        }
        assert_eq!(deadline_after(Duration::MAX), Instant::now() + MAX);
    }
}
