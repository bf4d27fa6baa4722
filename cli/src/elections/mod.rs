//! Elections on any lock: reading, watching and evicting.

mod changes;
mod now;
mod selected;
mod watcher;

pub use self::changes::Handover;
pub use self::selected::{Elections, check_within, shown, unmarked, with_token};
pub use self::watcher::Watcher;
pub use incumbent::lock::{ElectionRecord, ElectionState, Holder, HolderPod, Position, Vacancy};
