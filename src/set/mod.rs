//! Sets: many elections, evenly held by their members.
//!
//! A set has a fixed number of shards. Each shard is an ordinary election, `NAME.0`, `NAME.1` and
//! so on, with a leader, a deadline and a fencing token of its own. A member of the set stands in
//! all of them. It leads its part and moves shards to members that lead less, by ordinary handovers
//! and nothing else.

mod builder;
mod calls;
mod change;
mod driver;
mod handle;
mod resizing;
mod shared;

pub use builder::{SetBuilder, SetError, check_shards, new_set};
pub use change::ShardChange;
pub use handle::{LedShard, Set, ShardStatus};
pub use resizing::shard_of;
