//! What each store implements for its URLs.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::error::LockUrlError;
use super::parts::Parts;
use crate::lock::Lock;

/// What is set for all URLs of a [`LockUrl`](super::LockUrl).
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenOptions {
    /// See [`LockUrl::with_lease`](super::LockUrl::with_lease).
    pub lease: Option<Duration>,
    /// See [`LockUrl::without_create`](super::LockUrl::without_create).
    pub create: bool,
    /// Whether this lock may be opened later, as one on best effort is: that it is out of reach
    /// keeps no term from beginning.
    pub may_wait: bool,
}

/// What one URL of a store names, not opened. `Debug` hides secrets.
pub(super) trait StoreTarget: Debug + Clone {
    /// What a program inspects: see [`LockTarget`](super::LockTarget).
    type Named;

    /// Reads the place, and takes the options. What is left of them is refused.
    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError>;

    /// The environment variables with credentials that `open` reads. Default: none.
    fn credential_variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns what it names. Sends no request.
    fn named(&self, options: OpenOptions) -> Result<Self::Named, LockUrlError>;

    /// Opens the lock.
    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError>;
}
