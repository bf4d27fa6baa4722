//! Errors of opening, creating and checking buckets.

use crate::lock::{Error, LockError, LockErrorKind};

/// The kind of a [`BucketError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BucketErrorKind {
    /// The bucket does not exist.
    Missing,
    /// The bucket exists with settings other than the configured ones.
    Exists,
    /// The server denies a permission.
    Denied,
    /// No response, or a temporary error.
    Unavailable,
    /// Elections cannot use the configured settings, or those of the bucket.
    Unusable,
}

/// The error of opening, creating or checking a bucket.
pub type BucketError = Error<BucketErrorKind>;

impl BucketError {
    /// Converts the error into that of a lock request, which was not sent.
    pub(super) fn into_lock_error(self) -> LockError {
        let kind = match self.kind() {
            BucketErrorKind::Missing | BucketErrorKind::Unavailable => LockErrorKind::Unavailable,
            BucketErrorKind::Denied => LockErrorKind::Denied,
            BucketErrorKind::Exists | BucketErrorKind::Unusable => LockErrorKind::Misconfigured,
        };
        self.with_kind(kind)
    }
}

/// Why a request of the bucket's [`LockAdmin`](crate::lock::LockAdmin) failed: the source of its
/// error, by which a program knows what to advise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminFailure {
    /// There is no JetStream: it is not enabled, or is that of another domain.
    #[error("no response from JetStream")]
    NoJetStream,
    /// No response came in time.
    #[error("no response in time")]
    TimedOut,
    /// JetStream refused the request.
    #[error("JetStream refused the request")]
    Refused,
}
