//! Reasons why a candidate for life gave up.

use std::error::Error;
use std::fmt;

use crate::lock::{LockError, LockErrorKind};

/// The kind of a [`LifeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LifeErrorKind {
    /// A right is missing, or the credentials are not accepted.
    Denied,
    /// The configuration is unusable: a name, a pod that does not exist, an object that is not a
    /// lock.
    Misconfigured,
    /// This pod is being deleted, has ended, or is gone: it can no longer lead.
    PodEnded,
}

/// The reason why a candidate for life gave up.
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

    /// Returns the kind of the error.
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

/// The reason why one check failed.
#[derive(Debug)]
pub(super) enum Stop {
    /// A retry may help.
    Retry(LockError),
    /// No retry helps.
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

/// Converts a request's failure that no retry fixes.
pub(super) fn final_error(mut error: LockError) -> LifeError {
    let kind = match error.kind() {
        LockErrorKind::Denied => LifeErrorKind::Denied,
        _ => LifeErrorKind::Misconfigured,
    };
    LifeError { kind, message: error.to_string(), source: error.take_source() }
}
