//! Errors of lock URLs, and of opening their locks.

use crate::lock::Error;

/// The kind of a [`LockUrlError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockUrlErrorKind {
    /// The URL, or a file that it names, is invalid.
    Malformed,
    /// The lock is not compiled in: a feature of this crate is missing.
    NotBuilt,
    /// The lock is unreachable. Retrying may help.
    Unavailable,
    /// The server refuses the client, or a required permission.
    Denied,
    /// The bucket or the tables of the lock do not exist, and were not to be created.
    Missing,
    /// The lock is misconfigured; retrying does not help.
    Unusable,
}

/// The error of a URL that names no usable lock.
pub type LockUrlError = Error<LockUrlErrorKind>;

impl LockUrlError {
    pub(super) fn malformed(message: String) -> Self {
        Self::new(LockUrlErrorKind::Malformed, message)
    }

    pub(super) fn not_built(message: String) -> Self {
        Self::new(LockUrlErrorKind::NotBuilt, message)
    }
}
