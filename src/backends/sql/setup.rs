//! What is to be done where the tables are not there.

use std::time::Duration;

use super::error::{SqlError, SqlErrorKind};
use crate::protocol::{MAX_LEASE, MIN_LEASE};

/// The longest lease of tables that are made.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// How the tables are made where they are not there yet. Tables that are there stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSetup {
    pub(super) make: bool,
    pub(super) max_lease: Duration,
}

impl TableSetup {
    /// Makes them, with a longest lease of 60 s.
    pub fn create() -> Self {
        Self { make: true, max_lease: LONGEST_LEASE }
    }

    /// Takes those that are there, and makes none.
    pub fn existing() -> Self {
        Self { make: false, max_lease: LONGEST_LEASE }
    }

    /// Whether they are made where they are not there.
    pub fn creates(&self) -> bool {
        self.make
    }

    /// The longest lease of those that are made.
    pub fn lease_of_made(&self) -> Duration {
        self.max_lease
    }

    /// How long a lease may be at the most, from 1 s to an hour, where they are made. So long a winner waits that knows nothing of
    /// who led before it.
    pub fn max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = max_lease;
        self
    }

    pub(super) fn check(&self) -> Result<(), SqlError> {
        let longest = self.max_lease;
        if (MIN_LEASE..=MAX_LEASE).contains(&longest) {
            return Ok(());
        }
        let what = format!(
            "a longest lease of {longest:?} is not between {MIN_LEASE:?} and {MAX_LEASE:?}"
        );
        Err(SqlError::new(SqlErrorKind::Misconfigured, what))
    }
}

impl Default for TableSetup {
    fn default() -> Self {
        Self::create()
    }
}
