//! Errors of lock URLs, and of opening their locks.

use std::error::Error;
use std::fmt;

/// The kind of a [`LockUrlError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockUrlErrorKind {
    /// The URL is invalid.
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
#[derive(Debug)]
pub struct LockUrlError {
    kind: LockUrlErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl LockUrlError {
    pub(super) fn malformed(message: String) -> Self {
        Self { kind: LockUrlErrorKind::Malformed, message, source: None }
    }

    pub(super) fn not_built(message: String) -> Self {
        Self { kind: LockUrlErrorKind::NotBuilt, message, source: None }
    }

    #[cfg(feature = "_json")]
    pub(super) fn of_opening(
        kind: LockUrlErrorKind,
        message: String,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message, source: Some(source.into()) }
    }

    /// The kind of a [`LockUrlError`].
    pub fn kind(&self) -> LockUrlErrorKind {
        self.kind
    }
}

impl fmt::Display for LockUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for LockUrlError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
