//! A lock in the memory of one process, for examples and for tests of programs that campaign.
//!
//! The lock has the same guarantees as a bucket on a server: growing revisions, expiring entries,
//! tombstones that outlive every lease, and hints of every write. Clones are handles of one lock.
//! Only candidates that share one lock are in the same election, so it elects a leader among the
//! tasks of one process only.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use incumbent::memory::MemoryLock;
//! use incumbent::new_election;
//!
//! let lock = MemoryLock::new();
//! let election = new_election("my_app", lock.clone()).identity("c1").start()?;
//! let leadership = election.won().await?;
//! assert_eq!(lock.holder("my_app").as_deref(), Some("c1"));
//! drop(leadership);
//! election.stop().await;
//! assert_eq!(lock.holder("my_app"), None);
//! # Ok(())
//! # }
//! ```

mod calls;
mod checkpoints;
mod delivery;
mod shared;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::lock::{
    CallId, CandidateInfo, CandidateRequest, Capabilities, CheckpointStore, Content, Coverage,
    ElectionNames, Entry, Hint, HintSink, Lock, LockAdmin, LockError, LockErrorKind, Messages,
    Reading, Release, Revision, RollCall, StepDownNotice, Subscription, Tombstone, Write,
    check_not_empty,
};
use crate::protocol::MIN_LEASE;
use crate::time::clock::{BootClock, Clock, Instant};
use calls::Calls;
use delivery::Hints;
use shared::{PendingCall, Shared, State, SubscriptionGuard};
use store::Bucket;

/// The maximum lease of [`MemoryLock::new`], which is also that of a bucket with the default
/// settings.
const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(60);

/// A lock in the memory of this process. Cheap to clone; every clone is the same lock.
///
/// Entries expire by the lock's [`Clock`]. A task on the tokio runtime of a write or a subscription
/// sends the hint of an expiry; without a runtime, an expiry takes effect at the next request. The
/// task ends with the last handle.
///
/// The methods of this type itself are for tests of programs: they act like an administrator, a
/// foreign writer or an outage of a real lock, and also work while the lock is unreachable.
#[derive(Clone)]
pub struct MemoryLock(Arc<Shared>);

impl MemoryLock {
    /// Creates a lock with a maximum lease of 60 s.
    pub fn new() -> Self {
        Self::with_ttl(DEFAULT_MAX_LEASE)
    }

    /// Creates a lock with the maximum lease `ttl`. The lock keeps tombstones for the same time.
    pub fn with_ttl(ttl: Duration) -> Self {
        Self::with_clock(ttl, BootClock)
    }

    /// Creates a lock on the clock of the elections that use it: for tests with
    /// [`TokioClock`](crate::time::clock::TokioClock) and paused time.
    pub fn with_clock(ttl: Duration, clock: impl Clock) -> Self {
        Self(Arc::new(Shared {
            clock: Arc::new(clock),
            max_lease: ttl,
            state: Mutex::new(State {
                bucket: Bucket::new(ttl),
                hints: Hints::default(),
                reachable: true,
                calls: Calls::default(),
                checkpoints: HashMap::new(),
                expiry: None,
            }),
            sooner: Arc::new(Notify::new()),
        }))
    }

    /// Deletes an entry as an administrator would, without a holder's mark. Returns whether the
    /// election had a holder.
    pub fn evict(&self, name: &str) -> bool {
        self.admin_request(|state, now| {
            let held = state.bucket.holder(name).is_some();
            state.store(name, Content::Vacant(Tombstone::Deleted), Duration::ZERO, now);
            held
        })
    }

    /// Writes an entry as a foreign program would: over any existing entry, without a mark, with
    /// the maximum lease.
    pub fn overwrite(&self, name: &str, identity: &str) -> Revision {
        let life = self.0.max_lease;
        let entry = Entry { identity: identity.into(), mark: None, ttl: life, advertisement: None };
        self.admin_request(|state, now| state.store(name, Content::Held(entry), life, now))
    }

    /// Returns the holder of an election.
    pub fn holder(&self, name: &str) -> Option<String> {
        self.admin_request(|state, _| state.bucket.holder(name).map(str::to_owned))
    }

    /// Makes the lock unreachable, or reachable again. While it is unreachable, every request of a
    /// candidate returns [`Unavailable`](LockErrorKind::Unavailable), and no hints arrive; entries
    /// still expire.
    pub fn set_reachable(&self, reachable: bool) {
        self.admin_request(|state, _| {
            if state.reachable == reachable {
                return;
            }
            state.reachable = reachable;
            if reachable {
                state.hints.queue_for_all(&Hint::Coverage(Coverage::Full));
                state.hints.queue_for_all(&Hint::Recheck); // the missed changes
            } else {
                state.hints.queue_for_all(&Hint::Coverage(Coverage::None));
            }
        });
    }

    /// Performs a request of an administrator, which also works during an outage.
    fn admin_request<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> T {
        let answer = self.0.act(act);
        self.0.ensure_expiry_task();
        answer
    }

    /// Performs a request of a candidate.
    fn candidate_request<T>(
        &self,
        act: impl FnOnce(&mut State, Instant) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        self.admin_request(|state, now| match state.reachable {
            true => act(state, now),
            false => {
                Err(LockError::new(LockErrorKind::Unavailable, "the lock was made unreachable"))
            }
        })
    }
}

impl Default for MemoryLock {
    fn default() -> Self {
        Self::new()
    }
}

partial_debug!(MemoryLock, self, max_lease: self.0.max_lease);

/// Every request completes at once, so no outcome is ever unknown and no `timeout` is reached.
#[async_trait]
impl Lock for MemoryLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            min_lease: MIN_LEASE,
            max_lease: self.0.max_lease,
            can_read: true,
            empty_is_proof: true,
            expires_entries: true,
            reads_are_durable: true,
            max_identity_len: 4096,
        }
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_not_empty(name)
    }

    async fn read(&self, name: &str, _timeout: Duration) -> Result<Reading, LockError> {
        self.candidate_request(|state, _| {
            // A tombstone lives as long as any lease, so an empty slot proves that there is no
            // holder.
            Ok(state.bucket.last(name).map_or(Reading::Empty { proof: true }, Reading::Found))
        })
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        self.candidate_request(|state, now| {
            state.expect(name, write.expected)?;
            let Write { identity, mark, ttl: life, advertisement, .. } = write;
            let entry = Entry { identity, mark: Some(mark), ttl: life, advertisement };
            Ok(state.store(name, Content::Held(entry), life, now))
        })
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        self.candidate_request(|state, now| {
            state.expect(name, Some(release.expected))?;
            let Release { by, left, cause, to, pause, .. } = release;
            let cause = Some(Arc::from(cause));
            let released = Content::Vacant(Tombstone::Released { by, left, cause, to, pause });
            state.store(name, released, left, now);
            Ok(())
        })
    }

    fn checkpoints(&self) -> Option<&dyn CheckpointStore> {
        Some(self)
    }

    fn messages(&self) -> Option<&dyn Messages> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        let listener = self.admin_request(|state, _| {
            let listener = state.hints.subscribe(name, sink);
            if state.reachable {
                state.hints.queue_for_one(&listener, Hint::Coverage(Coverage::Full));
            }
            listener
        });
        Subscription::new(SubscriptionGuard { lock: self.0.clone(), name: name.into(), listener })
    }
}

#[async_trait]
impl ElectionNames for MemoryLock {
    fn lock(&self) -> &dyn Lock {
        self
    }

    async fn election_names(&self, _timeout: Duration) -> Result<Vec<String>, LockError> {
        self.candidate_request(|state, _| Ok(state.bucket.names()))
    }
}

#[async_trait]
impl Messages for MemoryLock {
    fn carries_calls(&self) -> bool {
        true
    }

    async fn notify_step_down(&self, name: &str, notice: StepDownNotice) -> Result<(), LockError> {
        self.candidate_request(|state, _| {
            state.hints.queue(name, &Hint::SteppedDown(notice));
            Ok(())
        })
    }

    async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        let answered = Arc::new(Notify::new());
        let call = RollCall { id: CallId::random(), within, request };
        let pending = PendingCall { lock: &self.0, id: call.id };
        self.candidate_request(|state, _| {
            state.calls.begin(&call, Arc::clone(&answered));
            state.hints.queue(name, &Hint::RollCall(call));
            Ok(())
        })?;
        let _ = tokio::time::timeout(within, answered.notified()).await;
        Ok(pending.end())
    }

    async fn answer_roll_call(
        &self,
        _name: &str,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        self.candidate_request(|state, _| {
            state.calls.answer(call, info);
            Ok(())
        })
    }
}
