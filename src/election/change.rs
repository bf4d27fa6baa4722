//! What happens in an election, as its handles report it.

use crate::lock::Token;
use crate::protocol::{Cause, Leader, LockFailure};

/// What [`Election::changes`](crate::Election::changes) tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// This campaigner leads.
    Won {
        /// The term's fencing token.
        token: Token,
    },
    /// This campaigner's term is over, and its work has stopped.
    Lost {
        /// The token of the term that ended.
        token: Token,
        /// Why it ended.
        cause: Cause,
    },
    /// Somebody, perhaps this campaigner, holds the election, or nobody does.
    Leader(Option<Leader>),
    /// Requests to the lock fail, for a reason of another kind than before.
    LockFailing(LockFailure),
    /// They succeed again.
    LockRecovered,
    /// The reader was too slow, and so many changes were dropped.
    Missed(u64),
}
