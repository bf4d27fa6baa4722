//! Why a bucket cannot be had.

use std::error::Error;
use std::fmt;

use crate::lock::{LockError, LockErrorKind};

/// What stands in the way of using a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BucketErrorKind {
    /// There is no such bucket.
    Missing,
    /// The bucket exists with other settings than those told.
    Exists,
    /// The server refuses us a right.
    Denied,
    /// No answer, or one that asks to try again.
    Unavailable,
    /// The settings told, or those of the bucket, cannot carry an election.
    Unusable,
}

/// Why a bucket could not be opened, made or examined.
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

    /// What stands in the way.
    pub fn kind(&self) -> BucketErrorKind {
        self.kind
    }

    /// The same as the answer to a campaigner's request, which was not sent.
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

/// An error that several waiters got.
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
