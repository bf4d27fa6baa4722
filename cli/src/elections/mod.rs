//! Elections on any lock: reading, watching and evicting.

mod feed;
mod for_life;
mod kubernetes;
mod lock;
mod nats;
mod now;
mod selected;
mod status;
mod watcher;

pub use self::feed::{Event, Feed};
pub use self::nats::unmarked;
pub use self::selected::Elections;
pub use self::status::{ElectionStatus, Holder, LeaderStatus, shown};
