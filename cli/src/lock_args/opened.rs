//! A lock that is open.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Lock;

/// A lock that is there, before standing in an election of it.
pub struct OpenedLock {
    pub lock: Arc<dyn Lock>,
    /// How long one write entitles to lead.
    pub lease: Duration,
    /// The lease that the campaign must be told of; none where the lock knows it.
    pub told: Option<Duration>,
    /// Whether the campaign must be told of Choria's candidates.
    pub with_choria: bool,
}
