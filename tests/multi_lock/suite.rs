//! The behaviours that every lock must show, on two locks in process; operators and rivals come to
//! the first, then to the second.

use std::sync::Arc;

use incumbent::all_of;
use incumbent::lock::Lock;
use incumbent::memory::MemoryLock;

use crate::conformance::Service;

mod first {
    use super::*;
    suite!(Two<0>);
}

mod second {
    use super::*;
    suite!(Two<1>);
}

/// Two locks, of which the given one is meddled with.
struct Two<const MEDDLED: usize>([MemoryLock; 2]);

impl<const MEDDLED: usize> Service for Two<MEDDLED> {
    async fn start() -> Self {
        Self([MemoryLock::with_ttl(Self::LEASE), MemoryLock::with_ttl(Self::LEASE)])
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        Arc::new(all_of(self.0.clone()))
    }

    async fn evict(&self, name: &str) {
        self.0[MEDDLED].evict(name);
    }

    async fn overwrite(&self, name: &str, identity: &str) {
        self.0[MEDDLED].overwrite(name, identity);
    }

    async fn holder(&self, name: &str) -> Option<String> {
        self.0[0].holder(name) // taken first, released last
    }
}
