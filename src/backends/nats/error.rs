//! Errors of opening, creating and checking buckets.

use std::error::Error;
use std::fmt;

use crate::lock::{LockError, LockErrorKind};

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
#[derive(Debug, Clone)]
pub struct BucketError {
    kind: BucketErrorKind,
    message: String,
    source: Option<std::sync::Arc<dyn Error + Send + Sync>>,
}

impl BucketError {
    pub(super) fn new(kind: BucketErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub(super) fn with_source(
        mut self,
        source: impl Into<Box<dyn Error + Send + Sync + 'static>>,
    ) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> BucketErrorKind {
        self.kind
    }

    /// Converts the error into that of a lock request, which was not sent.
    pub(super) fn into_lock_error(self) -> LockError {
        let kind = match self.kind {
            BucketErrorKind::Missing | BucketErrorKind::Unavailable => LockErrorKind::Unavailable,
            BucketErrorKind::Denied => LockErrorKind::Denied,
            BucketErrorKind::Exists | BucketErrorKind::Unusable => LockErrorKind::Misconfigured,
        };
        match self.source {
            Some(source) => LockError::with_source(kind, self.message, Shared(source)),
            None => LockError::new(kind, self.message),
        }
    }
}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for BucketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn Error + 'static))
    }
}

/// An error that several waiting requests share.
#[derive(Debug)]
struct Shared(std::sync::Arc<dyn Error + Send + Sync>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Shared {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
