//! What happens in a set, as its handle reports it.

use crate::lock::Token;
use crate::protocol::Cause;

/// A change of what a member of a set leads, as [`Set::changes`](crate::Set::changes) reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardChange {
    /// This member leads the shard.
    Won {
        /// The shard.
        shard: u32,
        /// The term's fencing token.
        token: Token,
    },
    /// This member is to give up the shard, and continues to lead while its work comes to its end.
    Draining {
        /// The shard.
        shard: u32,
        /// The term's fencing token.
        token: Token,
    },
    /// The term of this member is over, and its work has stopped.
    Lost {
        /// The shard.
        shard: u32,
        /// The token of the term that ended.
        token: Token,
        /// Why it ended.
        cause: Cause,
    },
    /// Another member has this number of shards, and this one acquires nothing beside it: the two
    /// do not exclude each other. See [`SetBuilder::resizing`](crate::SetBuilder::resizing).
    OtherNumber {
        /// How many shards the set has for the other member.
        shards: u32,
    },
    /// The reader was too slow, and this many changes were dropped: compare
    /// [`Set::shards`](crate::Set::shards).
    Missed(u64),
}
