//! Reasons why a database cannot be used.

use std::error::Error;
use std::fmt;

use crate::lock::LockErrorKind;

/// The kind of a [`SqlError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SqlErrorKind {
    /// The database cannot be reached now; retry.
    Unavailable,
    /// The database refuses the credentials, or a required right is missing.
    Denied,
    /// The database is not in the required state, or its URL or path is wrong: retrying does not
    /// help.
    Misconfigured,
}

/// The reason why a database cannot be used. It never contains a password.
#[derive(Debug)]
pub struct SqlError {
    kind: SqlErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SqlError {
    pub(super) fn new(kind: SqlErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> SqlErrorKind {
        self.kind
    }
}

impl From<RequestError> for SqlError {
    fn from(failed: RequestError) -> Self {
        let kind = match failed.kind {
            LockErrorKind::Denied => SqlErrorKind::Denied,
            LockErrorKind::Misconfigured => SqlErrorKind::Misconfigured,
            _ => SqlErrorKind::Unavailable,
        };
        Self { kind, message: failed.message, source: failed.source }
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SqlError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn Error + 'static))
    }
}

/// A failed request, before the election is added to its message.
#[derive(Debug)]
pub(super) struct RequestError {
    pub kind: LockErrorKind,
    pub message: String,
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl RequestError {
    pub fn new(kind: LockErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub fn because(
        kind: LockErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// Converts to the error of the request `what` for the election `name`.
    pub fn of(self, what: &str, name: &str) -> crate::lock::LockError {
        let message = format!("{what} of {name}: {}", self.message);
        match self.source {
            None => crate::lock::LockError::new(self.kind, message),
            Some(source) => crate::lock::LockError::with_source(self.kind, message, source),
        }
    }
}
