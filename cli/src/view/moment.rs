//! Moments: a view never reads a clock by itself.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

/// A moment, on the clock that measures spans and on the one that people read.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub at: Instant,
    pub wall: OffsetDateTime,
}

impl Moment {
    pub fn now() -> Self {
        Self { at: Instant::now(), wall: OffsetDateTime::now_utc() }
    }

    /// The age of a time on the wall clock; zero for a time in the future.
    pub fn age(self, time: OffsetDateTime) -> Duration {
        Duration::try_from(self.wall - time).unwrap_or_default()
    }

    /// The time on the wall clock at an instant that is near this moment.
    pub fn wall_at(self, instant: Instant) -> Option<OffsetDateTime> {
        let ahead = instant.saturating_duration_since(self.at);
        let behind = self.at.saturating_duration_since(instant);
        let (ahead, behind) = (ahead.try_into().ok()?, behind.try_into().ok()?);
        self.wall.checked_add(ahead)?.checked_sub(behind)
    }
}
