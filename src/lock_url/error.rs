//! What is wrong with a URL, or with the lock that it names.

use std::error::Error;
use std::fmt;

/// Which kind of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockUrlErrorKind {
    /// The URL cannot be read.
    Malformed,
    /// It names a lock that was not built in: a feature of this crate is missing.
    NotBuilt,
    /// The lock cannot be reached. Trying again may help.
    Unavailable,
    /// The server refuses us, or a right that we need.
    Denied,
    /// What carries the lock is not there, and was not to be made.
    Missing,
    /// It is not what it must be, until somebody mends it.
    Unusable,
}

/// Why a URL names no lock that can be used.
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

    /// Which kind of thing is wrong.
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
