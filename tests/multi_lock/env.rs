//! Candidates on several locks.

use incumbent::lock::Lock;
use incumbent::memory::MemoryLock;
use incumbent::{ElectionBuilder, new_election};

use crate::conformance::{LEASE, soon, working};

pub const NAME: &str = "my_app";

pub fn memory() -> MemoryLock {
    MemoryLock::with_ttl(LEASE)
}

/// A candidate whose work continues until it must stop.
pub fn candidate(lock: impl Lock, identity: &str) -> ElectionBuilder {
    working(new_election(NAME, lock).identity(identity).lease(LEASE))
}

/// Waits until `lock` is held by `identity`, or is free.
pub async fn held(lock: &MemoryLock, identity: Option<&str>) {
    let observer = incumbent::observe(NAME, lock.clone()).expect("an observer");
    let mut changes = observer.changes();
    soon(&format!("{identity:?} holds the lock"), async {
        while lock.holder(NAME).as_deref() != identity {
            changes.next().await.expect("a change");
        }
    })
    .await;
}
