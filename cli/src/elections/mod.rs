//! Elections on any lock: reading, watching and evicting.

mod changes;
mod for_life;
mod kubernetes;
mod lock;
mod nats;
mod now;
mod selected;
mod status;
mod watcher;

pub use self::changes::Handover;
pub use self::nats::unmarked;
pub use self::selected::{Elections, Watcher};
pub use self::status::{EXPIRED, ElectionStatus, Holder, LeaderStatus, PodInfo, Position, shown};
pub use self::watcher::{Hint, Update};
