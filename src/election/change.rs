//! What happens in an election, as its handles report it.

use crate::lock::{Readiness, Token};
use crate::protocol::{Cause, Leader, LockFailure};
use crate::time::clock::Instant;

/// A change in an election, as [`Election::changes`](crate::Election::changes) reports it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use incumbent::{Change, memory::MemoryLock, new_election};
/// let (election, mut changes) = new_election("my_app", MemoryLock::new()).start_with_changes()?;
/// while let Some(change) = changes.next().await {
///     match change {
///         Change::Won { token } => {
///             println!("leads with token {token}");
///             break;
///         }
///         other => println!("{other:?}"),
///     }
/// }
/// election.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// This candidate leads.
    Won {
        /// The term's fencing token.
        token: Token,
    },
    /// This candidate is to stop or has resigned, and continues to lead while its work comes to its
    /// end.
    Draining {
        /// The term's fencing token.
        token: Token,
        /// When the term ends at the latest.
        until: Instant,
    },
    /// The term of this candidate is over, and its work has stopped.
    Lost {
        /// The token of the term that ended.
        token: Token,
        /// Why it ended.
        cause: Cause,
    },
    /// The holder of the entry has changed: another candidate, this one, or none.
    Leader(Option<Leader>),
    /// Requests to the lock fail, for a reason of another kind than before.
    LockFailing(LockFailure),
    /// They succeed again.
    LockRecovered,
    /// This candidate is now that ready to lead.
    Readiness(Readiness),
    /// The reader was too slow, and this many changes were dropped.
    Missed(u64),
}
