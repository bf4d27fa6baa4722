//! Creation of the tables, and why a database cannot be used.

use std::time::Duration;

use crate::lock::{Error, LockError, LockErrorKind};
use crate::time::timing::check_max_lease;

/// The default maximum lease of created tables.
const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(60);

/// Whether and how to create the tables if they do not exist. Existing tables stay unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSetup {
    pub(super) create: bool,
    pub(super) max_lease: Duration,
}

impl TableSetup {
    /// Creates the tables, with a maximum lease of 60 s.
    pub fn create() -> Self {
        Self { create: true, max_lease: DEFAULT_MAX_LEASE }
    }

    /// Uses existing tables, and creates none.
    pub fn existing() -> Self {
        Self { create: false, max_lease: DEFAULT_MAX_LEASE }
    }

    /// Returns whether missing tables are created.
    pub fn creates(&self) -> bool {
        self.create
    }

    /// Returns the maximum lease of created tables.
    pub fn lease_if_created(&self) -> Duration {
        self.max_lease
    }

    /// Sets the maximum lease of created tables, from 1 s to an hour. A winner that knows nothing
    /// of an earlier leader waits that long.
    pub fn max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = max_lease;
        self
    }

    pub(super) fn check(&self) -> Result<(), SqlError> {
        let checked = check_max_lease(self.max_lease);
        checked.map_err(|why| SqlError::new(SqlErrorKind::Misconfigured, why))
    }
}

impl Default for TableSetup {
    fn default() -> Self {
        Self::create()
    }
}

/// The kind of a [`SqlError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SqlErrorKind {
    /// The database cannot be reached now; retry.
    Unavailable,
    /// The database refuses the credentials, or a required permission is missing.
    Denied,
    /// The database is not in the required state, or its URL or path is wrong: retrying does not
    /// help.
    Misconfigured,
}

/// The reason why a database cannot be used. It never contains a password.
pub type SqlError = Error<SqlErrorKind>;

impl From<LockError> for SqlError {
    fn from(error: LockError) -> Self {
        let kind = match error.kind() {
            LockErrorKind::Denied => SqlErrorKind::Denied,
            LockErrorKind::Misconfigured => SqlErrorKind::Misconfigured,
            _ => SqlErrorKind::Unavailable,
        };
        error.with_kind(kind)
    }
}
