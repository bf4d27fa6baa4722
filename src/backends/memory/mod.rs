//! The lock inside one process: for examples, and for the tests of programs that campaign.
//!
//! It keeps the same promises as a bucket on a server: revisions that grow, entries that expire, tombstones that
//! outlive every lease, and hints of everything that it stores. Clones are handles of one lock, and only campaigners
//! that share one stand in the same election, so it elects a leader among the tasks of a process, and no further.
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

use futures_util::future::BoxFuture;
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

/// The longest lease of [`MemoryLock::new`], the same as that of a bucket made with the default settings.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// A lock in the memory of this process. Cheap to clone; every clone is the same lock.
///
/// Entries expire by its [`Clock`]. The hint of an expiry comes from a task on the tokio runtime in which the lock was
/// written to or subscribed to; where there is none, an expiry shows at the next request. The task ends with the last
/// handle.
///
/// The methods of this type itself are for whoever tests a program: they do what an administrator, a stranger or an
/// outage would do to a real lock, and are answered while the lock is out of reach too.
#[derive(Clone)]
pub struct MemoryLock(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    max_lease: Duration,
    state: Mutex<State>,
    /// Tells the task that expires entries that one is due earlier than it knows.
    sooner: Arc<Notify>,
}

struct State {
    bucket: Bucket,
    hints: Hints,
    reachable: bool,
    expiry: Option<JoinHandle<()>>,
}

impl MemoryLock {
    /// A lock whose longest lease is 60 s.
    pub fn new() -> Self {
        Self::with_ttl(LONGEST_LEASE)
    }

    /// A lock whose longest lease is `ttl`: so long it also remembers how an entry came to be gone.
    pub fn with_ttl(ttl: Duration) -> Self {
        Self::with_clock(ttl, BootClock)
    }

    /// The same on the clock of the elections that use it: for tests with [`TokioClock`](crate::time::clock::TokioClock) and
    /// paused time.
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

    /// Deletes what stands under a name as an administrator would, without a holder's mark. Whether somebody held it.
    pub fn evict(&self, name: &str) -> bool {
        self.request(|state, now| {
            let held = state.bucket.holder(name).is_some();
            state.store(name, Content::Vacant(Tombstone::Deleted), Duration::ZERO, now);
            held
        })
    }

    /// Writes an entry as a stranger would who knows nothing of this library: over whatever stands there, without a
    /// mark, to live for the longest lease.
    pub fn overwrite(&self, name: &str, identity: &str) -> Revision {
        let life = self.0.max_lease;
        let entry = Entry { identity: identity.into(), mark: None, ttl: life, advertisement: None };
        self.request(|state, now| state.store(name, Content::Held(entry), life, now))
    }

    /// Who holds an election.
    pub fn holder(&self, name: &str) -> Option<String> {
        self.request(|state, _| state.bucket.holder(name).map(str::to_owned))
    }

    /// Puts the lock out of reach, or back. Meanwhile every request of a campaigner is answered
    /// [`Unavailable`](LockErrorKind::Unavailable), and no hints come; entries expire all the same.
    pub fn set_reachable(&self, reachable: bool) {
        self.request(|state, _| {
            if state.reachable == reachable {
                return;
            }
            state.reachable = reachable;
            if reachable {
                state.hints.tell_everybody(&Hint::Coverage(Coverage::Full));
                state.hints.tell_everybody(&Hint::Recheck); // at what was missed
            } else {
                state.hints.tell_everybody(&Hint::Coverage(Coverage::None));
            }
        });
    }

    /// What an administrator asks, which is answered during an outage too.
    fn request<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> T {
        let answer = self.0.act(act);
        self.0.keep_expiring();
        answer
    }

    /// What a campaigner asks.
    fn requested<T>(
        &self,
        act: impl FnOnce(&mut State, Instant) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        self.request(|state, now| match state.reachable {
            true => act(state, now),
            false => {
                Err(LockError::new(LockErrorKind::Unavailable, "the lock was put out of reach"))
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

/// Every request is answered at once, so no outcome is ever unknown and no `timeout` is reached.
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

    fn read<'a>(
        &'a self,
        name: &'a str,
        _timeout: Duration,
    ) -> BoxFuture<'a, Result<Reading, LockError>> {
        Box::pin(async move {
            self.requested(|state, _| {
                // A tombstone lives as long as any lease, so nothing is left of nobody only.
                Ok(state.bucket.last(name).map_or(Reading::Empty { proof: true }, Reading::Found))
            })
        })
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        write: Write,
    ) -> BoxFuture<'a, Result<Revision, LockError>> {
        Box::pin(async move {
            self.requested(|state, now| {
                state.expect(name, write.expected)?;
                let Write { identity, mark, ttl: life, advertisement, .. } = write;
                let entry = Entry { identity, mark: Some(mark), ttl: life, advertisement };
                Ok(state.store(name, Content::Held(entry), life, now))
            })
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        release: Release,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        Box::pin(async move {
            self.requested(|state, now| {
                state.expect(name, Some(release.expected))?;
                let Release { by, left, .. } = release;
                let released = Content::Vacant(Tombstone::Released { by, left });
                state.store(name, released, left, now);
                Ok(())
            })
        })
    }

    fn notify_step_down<'a>(
        &'a self,
        name: &'a str,
        notice: StepDownNotice,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        Box::pin(async move {
            self.requested(|state, _| {
                state.hints.tell(name, &Hint::SteppedDown(notice));
                Ok(())
            })
        })
    }

    fn names(&self, _timeout: Duration) -> BoxFuture<'_, Result<Vec<String>, LockError>> {
        Box::pin(async move { self.requested(|state, _| Ok(state.bucket.names())) })
    }

    fn evict<'a>(
        &'a self,
        name: &'a str,
        expected: Revision,
        _timeout: Duration,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        Box::pin(async move {
            self.requested(|state, now| {
                state.expect(name, Some(expected))?;
                state.store(name, Content::Vacant(Tombstone::Deleted), Duration::ZERO, now);
                Ok(())
            })
        })
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        let listener = self.request(|state, _| {
            let listener = state.hints.listen(name, sink);
            if state.reachable {
                state.hints.tell_one(&listener, Hint::Coverage(Coverage::Full));
            }
            listener
        });
        Subscription::new(Listening { lock: self.0.clone(), name: name.into(), listener })
    }
}

/// Held by a subscription; its drop ends the hints.
struct Listening {
    lock: Arc<Shared>,
    name: Arc<str>,
    listener: Arc<Listener>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.lock.state().hints.forget(&self.name, &self.listener);
    }
}

impl State {
    /// Refuses where the last revision is another than the expected one.
    fn expect(&self, name: &str, expected: Option<Revision>) -> Result<(), LockError> {
        let last = self.bucket.last(name).map(|record| record.revision);
        if last == expected {
            return Ok(());
        }
        let say = |revision: Option<Revision>| {
            revision.map_or_else(|| "nothing".to_owned(), |revision| format!("revision {revision}"))
        };
        let message = format!("expected {}, found {}", say(expected), say(last));
        Err(LockError::new(LockErrorKind::Conflict, message))
    }

    fn store(&mut self, name: &str, content: Content, life: Duration, now: Instant) -> Revision {
        let stored = self.bucket.store(name, content, now, life);
        let revision = stored.record.revision;
        self.tell_stored(stored);
        revision
    }

    fn tell_stored(&mut self, stored: Stored) {
        if self.reachable {
            let Stored { name, record, previous } = stored;
            let age = Some(Duration::ZERO);
            self.hints.tell(&name, &Hint::Stored { record, previous: Some(previous), age });
        }
    }
}

impl Shared {
    /// Expires what is due, does what is asked, and then delivers the hints of both.
    fn act<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = self.clock.now();
        let answer = {
            let mut state = self.state();
            for stored in state.bucket.expire(now) {
                state.tell_stored(stored);
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

    /// Delivers waiting hints, in their order, unless somebody is at it, who then delivers these too.
    fn deliver(&self) {
        let Some(turn) = self.state().hints.take_turn() else { return };
        loop {
            // Its own statement: a sink may use this very lock, so ours must not be held while it runs.
            let next = self.state().hints.next(&turn);
            match next {
                Some((listener, hint)) => listener.send(hint),
                None => return,
            }
        }
    }

    /// Sees to it that a task expires entries, where there is a runtime for it: again if its runtime has ended.
    fn keep_expiring(self: &Arc<Self>) {
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

/// Expires entries when they are due, so that their hints come then.
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
