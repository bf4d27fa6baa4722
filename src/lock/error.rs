//! Why a request to a lock failed.

use std::error::Error;
use std::fmt;

/// The kind of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The expected revision is not the last one: another candidate wrote, or the entry is gone.
    Conflict,
    /// No response came: the request may have been applied or not.
    OutcomeUnknown,
    /// The request was not applied; try again.
    Unavailable,
    /// The server refuses us the right.
    Denied,
    /// The lock is misconfigured; retrying does not help.
    Misconfigured,
}

/// Why a request to a lock failed.
#[derive(Debug)]
pub struct LockError {
    kind: LockErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl LockError {
    /// A failure that has no cause beneath it.
    pub fn new(kind: LockErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same with the error that led to it.
    pub fn with_source(
        kind: LockErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    #[cfg(feature = "kubernetes")]
    pub(crate) fn take_source(&mut self) -> Option<Box<dyn Error + Send + Sync>> {
        self.source.take()
    }

    /// The kind of the failure.
    pub fn kind(&self) -> LockErrorKind {
        self.kind
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn Error + 'static))
    }
}
