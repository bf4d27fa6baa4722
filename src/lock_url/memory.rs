//! `memory:[NAME]`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use super::error::LockUrlError;
use super::parts::Parts;
use crate::backends::memory::MemoryLock;
use crate::lock::Lock;

/// The locks of this process, by their names, for as long as it lives.
static LOCKS: LazyLock<Mutex<HashMap<String, MemoryLock>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Clone)]
pub(super) struct MemoryTarget {
    name: String,
    ttl: Option<Duration>,
    /// The TTL of a lock that is not there yet.
    made_for: Option<Duration>,
}

impl MemoryTarget {
    pub fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        Ok(Self {
            name: parts.decoded(parts.place())?,
            ttl: parts.take_duration("ttl")?,
            made_for: None,
        })
    }

    pub fn with_lease(&mut self, lease: Duration) {
        self.made_for = Some(lease);
    }

    pub fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh =
            || self.ttl.or(self.made_for).map_or_else(MemoryLock::new, MemoryLock::with_ttl);
        let lock = locks.entry(self.name.clone()).or_insert_with(fresh);
        let has = lock.capabilities().max_lease;
        match self.ttl.filter(|ttl| *ttl != has) {
            Some(ttl) => Err(LockUrlError::malformed(format!(
                "memory:{}: it is open with a TTL of {has:?}, not {ttl:?}",
                crate::util::text::escape_line(&self.name, 80)
            ))),
            None => Ok(Arc::new(lock.clone())),
        }
    }
}
