//! Errors with a kind.

use std::error;
use std::fmt;
use std::sync::Arc;

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
    /// The server refuses us the permission.
    Denied,
    /// The lock is misconfigured; retrying does not help.
    Misconfigured,
    /// What holds the entries does not exist, as an administrator's request shows.
    Missing,
}

/// What a request may have done to the lock when its response is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "some locks use it")]
pub(crate) enum Effect {
    Read,
    Write,
}

#[allow(dead_code, reason = "some locks use it")]
impl Effect {
    /// The kind of the error of a request whose response is lost.
    pub(crate) fn lost(self) -> LockErrorKind {
        match self {
            Self::Read => LockErrorKind::Unavailable,
            Self::Write => LockErrorKind::OutcomeUnknown,
        }
    }
}

/// The error of a request to a lock.
pub type LockError = Error<LockErrorKind>;

/// An error with a kind, for programs, and a message, for people. It contains no secret.
#[derive(Debug, Clone)]
pub struct Error<K> {
    kind: K,
    message: String,
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

impl<K> Error<K> {
    /// Returns an error without a source.
    pub fn new(kind: K, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Returns an error that `source` caused.
    pub fn with_source(
        kind: K,
        message: impl Into<String>,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into().into()) }
    }

    /// Returns the same error with another kind.
    pub fn with_kind<J>(self, kind: J) -> Error<J> {
        Error { kind, message: self.message, source: self.source }
    }

    /// Names the request, as in `write`, and the election.
    #[allow(dead_code, reason = "some locks use it")]
    pub(crate) fn of_request(self, request: &str, name: &str) -> Self {
        let message = format!("{request} of {name}: {self}");
        self.with_message(message)
    }

    /// Returns the same error with another message.
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }
}

impl<K: Copy> Error<K> {
    /// Returns the kind.
    pub fn kind(&self) -> K {
        self.kind
    }
}

impl<K> fmt::Display for Error<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<K: fmt::Debug> error::Error for Error<K> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn error::Error + 'static))
    }
}
