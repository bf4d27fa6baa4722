//! What the work of a term is told: that the term is about to end, and that it has ended.

use std::sync::Arc;

use thiserror::Error;

use crate::lock::Token;
use crate::protocol::Cause;
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

/// That a term has ended, and why.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use incumbent::{Cause, memory::MemoryLock, new_election};
/// # let election = new_election("my_app", MemoryLock::new()).start()?;
/// # let leadership = election.won().await?;
/// # leadership.resign();
/// let loss = leadership.ended().await;
/// match &loss.cause {
///     Cause::Resigned | Cause::Stopped => println!("planned: {loss}"),
///     cause => eprintln!("unplanned: {}", cause.as_str()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no longer the leader of {election} (term {token}): {cause}")]
#[non_exhaustive]
pub struct Loss {
    /// The election.
    pub election: Arc<str>,
    /// The token of the term that ended.
    pub token: Token,
    /// Its tokens on each of the election's locks, in their order: see
    /// [`Leadership::tokens`](crate::Leadership::tokens).
    pub tokens: Vec<Option<Token>>,
    /// Why it ended.
    pub cause: Cause,
    /// When work of the term is stopped by force: never after the deadline.
    pub stop_by: Instant,
}
