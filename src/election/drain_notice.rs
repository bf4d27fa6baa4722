//! That a term is about to end, and by when its work is to have ended.

use std::sync::Arc;

use crate::lock::Token;
use crate::time::clock::Instant;

/// The request to bring the work of a term to its end: see
/// [`Leadership::draining`](crate::Leadership::draining).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainNotice {
    /// The election.
    pub election: Arc<str>,
    /// The token of the term.
    pub token: Token,
    /// When the term ends at the latest, on the election's [`Clock`](crate::clock::Clock). Work
    /// that is still running is then stopped by force.
    pub until: Instant,
}
