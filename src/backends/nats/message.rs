//! A message as it is stored: its shape, its sizes, and when it expires.

use std::time::Duration;

use serde::Deserialize;

/// The most bytes that the headers of an entry take, an advertisement apart.
pub(super) const MAX_HEADERS_LEN: usize = 288;

/// The most bytes of an identity that are written or read.
pub(super) const MAX_IDENTITY_LEN: usize = 1_024;

/// The room for an identity below which a bucket is of no use.
pub(super) const MIN_IDENTITY_LEN: usize = 32;

/// When a bucket frees an entry whose writer has not said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) max_age: Option<Duration>,
    /// How late it may be.
    pub(super) slack: Duration,
    /// Whether the bucket lets a writer say so.
    pub(super) own: bool,
}

/// A message as it is stored.
#[derive(Debug, Deserialize)]
pub(super) struct StoredMessage {
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) hdrs: Option<String>,
    #[serde(default)]
    pub(super) data: Option<String>,
}
