//! Locks of `memory:[NAME]`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use super::error::LockUrlError;
use super::parts::Parts;
use super::target::{OpenOptions, StoreTarget};
use crate::backends::memory::MemoryLock;
use crate::lock::Lock;
use crate::util::locked;

/// The locks of this process by name, kept until the process ends.
static LOCKS: LazyLock<Mutex<HashMap<String, MemoryLock>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Clone)]
pub(super) struct MemoryTarget {
    name: String,
    ttl: Option<Duration>,
}

impl StoreTarget for MemoryTarget {
    type Named = ();

    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        Ok(Self { name: parts.decoded(parts.place())?, ttl: parts.take_duration("ttl")? })
    }

    fn named(&self, _: OpenOptions) -> Result<(), LockUrlError> {
        Ok(())
    }

    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        let mut locks = locked(&LOCKS);
        let create =
            || self.ttl.or(options.lease).map_or_else(MemoryLock::new, MemoryLock::with_ttl);
        let lock = locks.entry(self.name.clone()).or_insert_with(create);
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
