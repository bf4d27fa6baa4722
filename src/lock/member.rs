//! The locks that a lock is made of.

use std::sync::Arc;

use super::Lock;

/// Whether a term needs a lock that is one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Need {
    /// No term without it.
    Required,
    /// A term continues without it while it is unreachable or refuses, but not while another
    /// candidate is seen to hold it.
    BestEffort,
}

/// One of the locks that a lock is made of.
#[derive(Debug, Clone)]
pub struct LockMember {
    pub(crate) lock: Arc<dyn Lock>,
    pub(crate) need: Need,
}

impl LockMember {
    /// `lock`, with what a term needs of it.
    pub fn new(lock: impl Lock, need: Need) -> Self {
        Self { lock: Arc::new(lock), need }
    }

    /// The lock.
    pub fn lock(&self) -> &Arc<dyn Lock> {
        &self.lock
    }

    /// What a term needs of it.
    pub fn need(&self) -> Need {
        self.need
    }
}

impl<L: Lock> From<L> for LockMember {
    fn from(lock: L) -> Self {
        Self::new(lock, Need::Required)
    }
}
