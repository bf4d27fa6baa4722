//! Candidates on several locks.

use std::time::Duration;

use incumbent::lock::Lock;
use incumbent::memory::MemoryLock;
use incumbent::{Cause, ElectionBuilder, Leadership, new_election};

use crate::conformance::{soon, working};

pub const NAME: &str = "my_app";

/// Of a candidate whose lease is waited for: on a busy machine it may run out.
pub const LEASE: Duration = Duration::from_secs(2);
/// A lease that no term loses on a busy machine.
pub const STEADY: Duration = Duration::from_secs(15);

pub fn memory() -> MemoryLock {
    MemoryLock::with_ttl(LEASE)
}

/// One that allows the longer lease.
pub fn steady() -> MemoryLock {
    MemoryLock::with_ttl(STEADY)
}

/// A candidate whose work continues until it must stop.
pub fn candidate(lock: impl Lock, identity: &str) -> ElectionBuilder {
    working(new_election(NAME, lock).identity(identity).lease(LEASE))
}

/// Waits until the term has a token of the second lock, or has none. False: its lease has run out
/// before.
pub async fn has_second(leadership: &Leadership, wanted: bool) -> bool {
    soon(&format!("a token of the second lock: {wanted}"), async {
        while leadership.tokens()[1].is_some() != wanted {
            if let Err(loss) = leadership.renewed(leadership.deadline()).await {
                assert!(matches!(loss.cause, Cause::Expired { .. }), "{loss}");
                return false;
            }
        }
        true
    })
    .await
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
