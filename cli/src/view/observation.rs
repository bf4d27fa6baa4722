//! What is known of a lock, and what was read of it.

use std::time::Duration;

use crate::elections::{ElectionStatus, Elections};

/// What a model knows of the lock.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// The cause of a vacancy without an entry.
    pub cause_of_absence: &'static str,
    /// Whether the times of writes are those of the lock, rather than of leaders.
    pub has_lock_times: bool,
    /// The lease of a holder whose record states none.
    pub lease: Option<Duration>,
    /// Whether elections were selected by name: then one without a leader is reported at first.
    pub is_named: bool,
}

impl Origin {
    pub fn of(elections: &Elections<'_>, is_named: bool) -> Self {
        Self {
            cause_of_absence: elections.cause_of_absence(),
            has_lock_times: elections.has_lock_times(),
            lease: elections.default_lease(),
            is_named,
        }
    }
}

/// What was read.
#[derive(Debug)]
pub enum Observation {
    /// A write to one election, right after it.
    Written(ElectionStatus),
    /// All elections of the view that have an entry, with their last writes.
    All(Vec<ElectionStatus>),
    /// Nothing but what has been observed.
    Unchanged,
}
