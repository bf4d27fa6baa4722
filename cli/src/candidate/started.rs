//! The election that HTTP serves, once its campaign has started.

use std::sync::Arc;

use incumbent::Election;
use tokio::sync::SetOnce;

use super::health::Health;

/// What is served once the campaign has started.
pub struct StartedElection {
    pub election: Election,
    pub health: Arc<Health>,
}

/// It is not there before the lock was reached.
pub type Started = Arc<SetOnce<StartedElection>>;
