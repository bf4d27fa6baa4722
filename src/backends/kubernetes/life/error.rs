//! Reasons why a candidate for life gave up.

use crate::lock::{Error, LockError, LockErrorKind};

/// The kind of a [`LifeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LifeErrorKind {
    /// A permission is missing, or the credentials are not accepted.
    Denied,
    /// The configuration is unusable: a name, a pod that does not exist, an object that is not a
    /// lock.
    Misconfigured,
    /// This pod is being deleted, has ended, or is gone: it can no longer lead.
    PodEnded,
}

/// The reason why a candidate for life gave up.
pub type LifeError = Error<LifeErrorKind>;

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
pub(super) fn final_error(error: LockError) -> LifeError {
    let kind = match error.kind() {
        LockErrorKind::Denied => LifeErrorKind::Denied,
        _ => LifeErrorKind::Misconfigured,
    };
    error.with_kind(kind)
}
