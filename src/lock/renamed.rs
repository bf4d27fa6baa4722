//! An election under another name.

use std::sync::Arc;

use super::{Lock, LockMember};

/// The election of one name on a lock, whatever name is asked for.
#[derive(Debug)]
pub(super) struct Renamed {
    pub(super) lock: Arc<dyn Lock>,
    pub(super) name: String,
}

/// The locks that `lock` is made of, on which every election is the one of this name.
pub(crate) fn renamed(lock: &Arc<dyn Lock>, name: &str) -> Vec<LockMember> {
    let renamed = |lock: &Arc<dyn Lock>| Renamed { lock: Arc::clone(lock), name: name.to_owned() };
    match lock.members() {
        None => vec![LockMember::from(renamed(lock))],
        Some(members) => {
            members.iter().map(|m| LockMember::new(renamed(&m.lock), m.need)).collect()
        }
    }
}
