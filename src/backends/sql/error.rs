//! Why a database cannot be used.

use std::error::Error;
use std::fmt;

use crate::lock::LockErrorKind;

/// Which of the answers a failure to open a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SqlErrorKind {
    /// It cannot be reached now; try again.
    Unavailable,
    /// It refuses us, or a right that we need.
    Denied,
    /// It is not what it must be, or is named wrongly: trying again does not help.
    Misconfigured,
}

/// Why a database cannot be used. It never contains a password.
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

    /// Which answer it is.
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

/// A request that failed, before it is said of which election.
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

    /// As the answer to `what` of the election `name`.
    pub fn of(self, what: &str, name: &str) -> crate::lock::LockError {
        let message = format!("{what} of {name}: {}", self.message);
        match self.source {
            None => crate::lock::LockError::new(self.kind, message),
            Some(source) => crate::lock::LockError::with_source(self.kind, message, source),
        }
    }
}
