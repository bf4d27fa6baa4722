//! What was read of a lock, and when: a model never reads a clock by itself.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use crate::lock::elections::{ElectionRecord, Elections, Vacancy};

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

/// What a model knows of the lock.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The cause of a vacancy without an entry.
    pub cause_of_absence: Vacancy,
    /// Whether the times of writes are those of the lock, rather than of leaders.
    pub has_lock_times: bool,
    /// The lease of a holder whose record states none.
    pub lease: Option<Duration>,
    /// Whether elections were selected by name: then one without a leader is reported at first.
    pub is_named: bool,
    /// For how long after the start of a read every write is known as well. Zero where writes are
    /// only read.
    pub watched_for: Duration,
}

impl Origin {
    pub fn of(elections: &Elections, is_named: bool, watched_for: Duration) -> Self {
        Self {
            cause_of_absence: elections.facts().absence.clone(),
            has_lock_times: elections.facts().has_lock_times,
            lease: elections.facts().max_lease,
            is_named,
            watched_for,
        }
    }
}

/// What was read.
#[derive(Debug)]
pub enum Observation {
    /// A write to one election, right after it.
    Written(ElectionRecord),
    /// One election by a read: `None` if it has no entry.
    One {
        election: String,
        status: Option<ElectionRecord>,
        /// Whether it was read right after it was written.
        is_new: bool,
    },
    /// All elections of the view that have an entry, with their last writes.
    All(Vec<ElectionRecord>, Read),
    /// Nothing but what has been observed.
    Unchanged(Read),
}

/// A read that shows the state of every election.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub began: Instant,
    /// Whether writes were missed since the read before, which no watcher reported.
    pub has_missed: bool,
}

#[cfg(test)]
impl Observation {
    /// All elections, by a read at this time.
    pub fn all(statuses: Vec<ElectionRecord>, at: Instant) -> Self {
        Self::All(statuses, Read { began: at, has_missed: false })
    }
}
