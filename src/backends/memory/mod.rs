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

mod delivery;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::lock::{
    Capabilities, Content, Coverage, Entry, Hint, HintSink, Lock, LockError, LockErrorKind,
    Reading, Release, Revision, StepDownNotice, Subscription, Tombstone, Write, check_not_empty,
};
use crate::time::clock::{BootClock, Clock, Instant};
use delivery::{Hints, Listener};
use store::{Bucket, Stored};

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

struct Shared {
    clock: Arc<dyn Clock>,
    max_lease: Duration,
    state: Mutex<State>,
    /// Notifies the expiry task that an entry expires earlier than the task expects.
    sooner: Arc<Notify>,
}

struct State {
    bucket: Bucket,
    hints: Hints,
    reachable: bool,
    expiry: Option<JoinHandle<()>>,
}

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

impl fmt::Debug for MemoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLock").field("max_lease", &self.0.max_lease).finish_non_exhaustive()
    }
}

/// Every request completes at once, so no outcome is ever unknown and no `timeout` is reached.
#[async_trait]
impl Lock for MemoryLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
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
            let Release { by, left, cause, .. } = release;
            let cause = Some(Arc::from(cause));
            let released = Content::Vacant(Tombstone::Released { by, left, cause });
            state.store(name, released, left, now);
            Ok(())
        })
    }

    async fn notify_step_down(&self, name: &str, notice: StepDownNotice) -> Result<(), LockError> {
        self.candidate_request(|state, _| {
            state.hints.queue(name, &Hint::SteppedDown(notice));
            Ok(())
        })
    }

    async fn names(&self, _timeout: Duration) -> Result<Vec<String>, LockError> {
        self.candidate_request(|state, _| Ok(state.bucket.names()))
    }

    async fn evict(
        &self,
        name: &str,
        expected: Revision,
        _timeout: Duration,
    ) -> Result<(), LockError> {
        self.candidate_request(|state, now| {
            state.expect(name, Some(expected))?;
            state.store(name, Content::Vacant(Tombstone::Deleted), Duration::ZERO, now);
            Ok(())
        })
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

/// The guard of a subscription; its drop ends the hints.
struct SubscriptionGuard {
    lock: Arc<Shared>,
    name: Arc<str>,
    listener: Arc<Listener>,
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.lock.state().hints.unsubscribe(&self.name, &self.listener);
    }
}

impl State {
    /// Returns a conflict if the last revision is not the expected one.
    fn expect(&self, name: &str, expected: Option<Revision>) -> Result<(), LockError> {
        let last = self.bucket.last(name).map(|record| record.revision);
        if last == expected {
            return Ok(());
        }
        let text = |revision: Option<Revision>| {
            revision.map_or_else(|| "nothing".to_owned(), |revision| format!("revision {revision}"))
        };
        let message = format!("expected {}, found {}", text(expected), text(last));
        Err(LockError::new(LockErrorKind::Conflict, message))
    }

    fn store(&mut self, name: &str, content: Content, life: Duration, now: Instant) -> Revision {
        let stored = self.bucket.store(name, content, now, life);
        let revision = stored.record.revision;
        self.queue_stored(stored);
        revision
    }

    fn queue_stored(&mut self, stored: Stored) {
        if self.reachable {
            let Stored { name, record, previous } = stored;
            let age = Some(Duration::ZERO);
            self.hints.queue(&name, &Hint::Stored { record, previous: Some(previous), age });
        }
    }
}

impl Shared {
    /// Expires due entries, performs `act`, and then delivers the hints of both.
    fn act<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = self.clock.now();
        let answer = {
            let mut state = self.state();
            for stored in state.bucket.expire(now) {
                state.queue_stored(stored);
            }
            let due = state.bucket.next_due();
            let answer = act(&mut state, now);
            if state.bucket.next_due().is_some_and(|next| due.is_none_or(|due| next < due)) {
                self.sooner.notify_one();
            }
            answer
        };
        self.deliver();
        answer
    }

    /// Delivers waiting hints in order, unless another thread is delivering and takes these too.
    fn deliver(&self) {
        let Some(turn) = self.state().hints.take_turn() else { return };
        loop {
            // A statement of its own unlocks the state: the sink may use this lock.
            let next = self.state().hints.next(&turn);
            match next {
                Some((listener, hint)) => listener.send(hint),
                None => return,
            }
        }
    }

    /// Starts the task that expires entries, unless it runs, where there is a runtime.
    fn ensure_expiry_task(self: &Arc<Self>) {
        let mut state = self.state();
        if state.expiry.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let task = expire(Arc::downgrade(self), self.sooner.clone());
            state.expiry = Some(runtime.spawn(task));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = state.expiry.take() {
            task.abort();
        }
    }
}

/// Expires entries when they are due, so that their hints are sent then.
async fn expire(lock: Weak<Shared>, sooner: Arc<Notify>) {
    loop {
        let Some(lock) = lock.upgrade() else { return };
        let left = lock.act(|state, now| Some(state.bucket.next_due()?.saturating_since(now)));
        drop(lock);
        match left {
            None => sooner.notified().await,
            Some(left) => tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = sooner.notified() => {}
            },
        }
    }
}
