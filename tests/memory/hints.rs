//! Hints that come faster than a campaign takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use incumbent::lock::{
    Capabilities, Hint, HintSink, Lock, LockError, Reading, Release, Revision, Subscription, Write,
};
use incumbent::memory::MemoryLock;
use incumbent::new_election;

use crate::conformance::{LEASE, leads, sees, soon};

/// A lock whose subscriptions begin with many hints at once.
#[derive(Debug)]
struct Flooding(MemoryLock);

#[async_trait]
impl Lock for Flooding {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        self.0.check_name(name)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.0.read(name, timeout).await
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        self.0.write(name, write).await
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        self.0.release(name, release).await
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        for _ in 0..1_000 {
            sink.send(Hint::Recheck);
        }
        self.0.subscribe(name, sink) // tells that everything is heard
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn coverage_survives_an_overflow_of_hints() {
    let lock = MemoryLock::with_ttl(LEASE);
    let leader = new_election("my_app", lock.clone()).identity("leader").lease(LEASE);
    let leader = leader.start().unwrap();
    let _leadership = leads(&leader).await;
    let polls = Arc::new(AtomicUsize::new(0));
    let polled = Arc::clone(&polls);
    let standby = new_election("my_app", Flooding(lock))
        .identity("standby")
        .backoff(move |_, _| {
            polled.fetch_add(1, Ordering::SeqCst);
            LEASE / 10
        })
        .start()
        .unwrap();
    sees(&standby, "leader").await;
    let mut seen = None;
    soon("five renewals are seen", async {
        for _ in 0..5 {
            let now = || standby.leader().map(|leader| leader.last_seen);
            while now() == seen {
                tokio::time::sleep(LEASE / 50).await;
            }
            seen = now();
        }
    })
    .await;
    assert_eq!(polls.load(Ordering::SeqCst), 0, "it polls though every change is told");
}
