//! A lock that is open.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Lock;

/// A lock that is open, for a candidate.
pub struct OpenedLock {
    pub lock: Arc<dyn Lock>,
    /// How long each write entitles the leader to lead.
    pub lease: Duration,
    /// The lease to set on the election; `None` if the lock sets it.
    pub lease_override: Option<Duration>,
    /// Whether Choria's candidates take part.
    pub with_choria: bool,
}
