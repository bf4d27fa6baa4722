//! What a history is computed from.

use time::OffsetDateTime;

use crate::view::Transition;

/// A transition, and when it happened.
#[derive(Debug, Clone)]
pub struct Event {
    pub transition: Transition,
    /// When it happened: by the lock's clock if it has one, else when it was learned.
    pub at: OffsetDateTime,
    /// When it was learned, by the clock of the periods.
    pub learned: OffsetDateTime,
}

/// A time in which every transition of an election was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    pub begin: OffsetDateTime,
    pub end: OffsetDateTime,
}
