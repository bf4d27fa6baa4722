//! Why a candidate for life gave up.

use std::error::Error;
use std::fmt;

use crate::lock::{LockError, LockErrorKind};

/// What ended a candidacy for life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LifeErrorKind {
    /// A right is missing, or the credentials are not accepted.
    Denied,
    /// What was asked for cannot be: a name, a pod that is not there, an object that is no lock.
    Misconfigured,
    /// This pod is being deleted, has ended, or is gone: it cannot lead any more.
    PodEnded,
}

/// Why a candidate for life gave up.
#[derive(Debug)]
pub struct LifeError {
    kind: LifeErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl LifeError {
    pub(super) fn new(kind: LifeErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// What it is.
    pub fn kind(&self) -> LifeErrorKind {
        self.kind
    }
}

impl fmt::Display for LifeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for LifeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// What stopped one look.
#[derive(Debug)]
pub(super) enum Stop {
    /// Trying again may help.
    Retry(LockError),
    /// Nothing helps.
    Fatal(LifeError),
}

impl From<LockError> for Stop {
    fn from(error: LockError) -> Self {
        match error.kind() {
            LockErrorKind::Misconfigured => Self::Fatal(final_error(error)),
            _ => Self::Retry(error),
        }
    }
}

impl From<LifeError> for Stop {
    fn from(error: LifeError) -> Self {
        Self::Fatal(error)
    }
}

/// A request's failure that no retry mends.
pub(super) fn final_error(mut error: LockError) -> LifeError {
    let kind = match error.kind() {
        LockErrorKind::Denied => LifeErrorKind::Denied,
        _ => LifeErrorKind::Misconfigured,
    };
    LifeError { kind, message: error.to_string(), source: error.take_source() }
}
