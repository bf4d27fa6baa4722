//! Stored messages: their format, size limits and expiry.

use std::time::Duration;

use serde::Deserialize;

pub(super) use crate::lock::codec::MAX_IDENTITY_LEN;

/// The maximum length in bytes of the headers of an entry, without an advertisement.
pub(super) const MAX_HEADERS_LEN: usize = 360;

/// The minimum room in bytes for an identity that a bucket must have.
pub(super) const MIN_IDENTITY_LEN: usize = 32;

/// When a bucket expires an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) max_age: Option<Duration>,
    /// How late the server may expire it.
    pub(super) slack: Duration,
    /// Whether the bucket accepts a TTL per message.
    pub(super) own: bool,
}

/// A stored message.
#[derive(Debug, Deserialize)]
pub(super) struct StoredMessage {
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) time: String,
    #[serde(default)]
    pub(super) hdrs: Option<String>,
    #[serde(default)]
    pub(super) data: Option<String>,
}
