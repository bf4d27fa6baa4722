//! The behaviours that every lock must show, on the in-process lock.

mod behaviour;

use std::sync::Arc;

use behaviour::{LEASE, Service};
use incumbent::lock::Lock;
use incumbent::memory::MemoryLock;

struct Memory(MemoryLock);

impl Service for Memory {
    async fn start() -> Self {
        Self(MemoryLock::with_ttl(LEASE))
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        Arc::new(self.0.clone())
    }

    async fn evict(&self, name: &str) {
        self.0.evict(name);
    }

    async fn overwrite(&self, name: &str, identity: &str) {
        self.0.overwrite(name, identity);
    }

    async fn holder(&self, name: &str) -> Option<String> {
        self.0.holder(name)
    }
}

suite!(Memory);
