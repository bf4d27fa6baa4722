//! The behaviours that every lock must show, on the in-process lock.

#[macro_use]
extern crate incumbent_conformance as conformance;

mod checkpoint;
#[cfg(feature = "tower")]
mod discovery;
mod drain;
#[cfg(feature = "tower")]
mod fence;
mod guard;
mod hints;
#[cfg(feature = "tower")]
#[path = "../nats/log.rs"]
#[allow(dead_code)]
mod log;
mod moves;
#[cfg(feature = "schedule")]
mod schedule;
#[cfg(all(feature = "sentinel", unix))]
mod sentinel;
mod sets;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance::{LEASE, Service, leads, sees, soon};
use incumbent::lock::{
    CandidateInfo, CandidateRequest, Capabilities, HintSink, Lock, LockError, Messages, Reading,
    Release, Revision, Subscription, Write,
};
use incumbent::memory::MemoryLock;
use incumbent::{Leadership, new_election};

struct Memory(MemoryLock);

/// A lease that no term loses on a busy machine.
const STEADY: Duration = Duration::from_secs(10);

impl Service for Memory {
    async fn start() -> Self {
        Self(MemoryLock::with_ttl(Self::LEASE))
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

/// A lock with hints of its own, and roll calls that never end.
#[derive(Debug)]
struct WithHints {
    lock: MemoryLock,
    capabilities: fn(&MemoryLock) -> Capabilities,
    subscribe: fn(&MemoryLock, &str, HintSink) -> Subscription,
}

#[async_trait]
impl Lock for WithHints {
    fn capabilities(&self) -> Capabilities {
        (self.capabilities)(&self.lock)
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        self.lock.check_name(name)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.lock.read(name, timeout).await
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        self.lock.write(name, write).await
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        self.lock.release(name, release).await
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        (self.subscribe)(&self.lock, name, sink)
    }

    fn messages(&self) -> Option<&dyn Messages> {
        Some(self)
    }
}

#[async_trait]
impl Messages for WithHints {
    fn carries_calls(&self) -> bool {
        true
    }

    async fn call_roll(
        &self,
        _name: &str,
        _request: CandidateRequest,
        _within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        std::future::pending().await
    }
}

/// Its candidates poll.
fn without_hints(lock: MemoryLock) -> WithHints {
    let subscribe = |_: &MemoryLock, _: &str, _| Subscription::none();
    WithHints { lock, capabilities: MemoryLock::capabilities, subscribe }
}

/// Waits until the term lasts for this much longer than it does now, and calls `check` after each
/// renewal.
async fn renewals_continue(leadership: &Leadership, longer: Duration, check: impl Fn()) {
    let mut deadline = leadership.deadline();
    let until = deadline + longer;
    while deadline < until {
        deadline = soon("a renewal", leadership.renewed(deadline)).await.expect("it still leads");
        check();
    }
}

/// A policy may return "never", which is not an instant that a timer can hold.
#[tokio::test]
async fn a_candidate_that_never_polls_continues() {
    let lock = MemoryLock::with_ttl(STEADY);
    let leader = new_election("my_app", lock.clone()).identity("first").start().unwrap();
    let _leadership = leads(&leader).await;
    let never = |_: u32, _: f64| Duration::MAX;
    let standby = new_election("my_app", without_hints(lock)).backoff(never).start().unwrap();
    sees(&standby, "first").await;
    tokio::task::yield_now().await; // it begins to wait
    assert!(tokio::time::timeout(LEASE / 5, standby.won()).await.is_err(), "it stands");
}
