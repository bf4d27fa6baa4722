//! Reasons why a database cannot be used.

use crate::lock::{Error, LockError, LockErrorKind};

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
