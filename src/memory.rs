//! The in-process lock: elections among the tasks of one process, without a server.
//!
//! For examples, for tests of one's own code, and wherever exactly one task of a process may do something. It keeps the
//! promise in full within the process; entries expire by the lock's own clock.
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

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock::{BootClock, Clock, Instant};
use crate::lock::{
    Capabilities, Concession, Content, Coverage, Entry, Hint, HintSink, Lock, LockError,
    LockErrorKind, Reading, Record, Release, Revision, Subscription, Tombstone, Write,
};

/// An in-process lock. Clones are the same lock.
#[derive(Clone)]
pub struct MemoryLock {
    inner: Arc<Inner>,
}

struct Inner {
    ttl: Duration,
    clock: Arc<dyn Clock>,
    store: Mutex<Store>,
    /// The set of entries that expire has changed.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Store {
    keys: HashMap<String, Key>,
    /// Who expires when.
    expiries: BTreeSet<(Instant, String)>,
    revision: u64,
    subscribers: u64,
    out_of_reach: bool,
    /// What expires entries while somebody listens.
    expirer: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Key {
    last: Option<(Record, Instant)>,
    sinks: Vec<(u64, HintSink)>,
}

/// Hints to be sent once the store is unlocked.
type Outgoing = Vec<(HintSink, Hint)>;

impl MemoryLock {
    /// A lock on which a lease may last up to a minute.
    pub fn new() -> Self {
        Self::with_ttl(Duration::from_secs(60))
    }

    /// A lock on which a lease may last up to `ttl`, which is also how long tombstones stay.
    pub fn with_ttl(ttl: Duration) -> Self {
        Self::with_clock(ttl, BootClock)
    }

    /// The same on another clock, for tests with [`TokioClock`](crate::clock::TokioClock) and paused time.
    pub fn with_clock(ttl: Duration, clock: impl Clock) -> Self {
        let inner =
            Inner { ttl, clock: Arc::new(clock), store: Mutex::default(), changed: Arc::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Who holds an election.
    pub fn holder(&self, name: &str) -> Option<String> {
        self.inner.transact(|store, now, out| {
            store.expire(now, self.inner.ttl, out);
            match &store.keys.get(name)?.last {
                Some((Record { content: Content::Held(entry), .. }, _)) => {
                    Some(entry.identity.to_string())
                }
                _ => None,
            }
        })
    }

    /// Deletes the entry of an election, as an operator would to force a stand-down.
    pub fn evict(&self, name: &str) {
        self.inner.transact(|store, now, out| {
            store.expire(now, self.inner.ttl, out);
            store.put(name, Content::Vacant(Tombstone::Deleted), now + self.inner.ttl, out);
        });
    }

    /// Writes over the entry of an election unconditionally, as somebody who knows nothing of elections would.
    pub fn overwrite(&self, name: &str, identity: &str) {
        self.inner.transact(|store, now, out| {
            store.expire(now, self.inner.ttl, out);
            let entry = Entry { identity: identity.into(), mark: None, life: self.inner.ttl };
            store.put(name, Content::Held(entry), now + self.inner.ttl, out);
        });
    }

    /// Takes the lock out of reach, or puts it back: meanwhile every request fails and no hints come, while entries go on
    /// expiring.
    pub fn set_reachable(&self, reachable: bool) {
        self.inner.transact(|store, now, out| {
            store.expire(now, self.inner.ttl, out);
            store.out_of_reach = !reachable;
            let coverage = if reachable { Coverage::Full } else { Coverage::None };
            out.clear();
            for (_, sink) in store.keys.values().flat_map(|key| &key.sinks) {
                out.push((sink.clone(), Hint::Coverage(coverage)));
            }
        });
    }

    fn answer<'a, T: Send + 'a>(
        &self,
        request: impl FnOnce(&mut Store, Instant, &mut Outgoing) -> Result<T, LockError>,
    ) -> BoxFuture<'a, Result<T, LockError>> {
        let answer = self.inner.transact(|store, now, out| {
            store.expire(now, self.inner.ttl, out);
            if store.out_of_reach {
                let message = "the lock has been taken out of reach";
                return Err(LockError::new(LockErrorKind::Unavailable, message));
            }
            request(store, now, out)
        });
        self.inner.changed.notify_one();
        ready(answer).boxed()
    }
}

impl Inner {
    /// Works on the store, then sends the hints that came of it. They are sent outside of the lock,
    /// so a sink may call the lock.
    fn transact<T>(&self, work: impl FnOnce(&mut Store, Instant, &mut Outgoing) -> T) -> T {
        let mut out = Vec::new();
        let result = work(&mut self.store(), self.clock.now(), &mut out);
        for (sink, hint) in out {
            sink.send(hint);
        }
        result
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Frees what has outlived its life.
    fn expire(&mut self, now: Instant, ttl: Duration, out: &mut Outgoing) {
        while let Some((at, name)) = self.expiries.first().cloned() {
            if at > now {
                return;
            }
            self.expiries.remove(&(at, name.clone()));
            let Some(key) = self.keys.get_mut(&name) else { continue };
            let held = matches!(&key.last, Some((r, _)) if matches!(r.content, Content::Held(_)));
            if held {
                self.put(&name, Content::Vacant(Tombstone::Expired), at + ttl, out);
            } else {
                key.last = None;
                if key.sinks.is_empty() {
                    self.keys.remove(&name);
                }
            }
        }
    }

    fn put(
        &mut self,
        name: &str,
        content: Content,
        until: Instant,
        out: &mut Outgoing,
    ) -> Revision {
        self.revision += 1;
        let record = Record { revision: Revision(self.revision), content };
        let key = self.keys.entry(name.to_owned()).or_default();
        let previous = key.last.as_ref().map(|(record, _)| record.revision);
        if let Some((_, at)) = &key.last {
            self.expiries.remove(&(*at, name.to_owned()));
        }
        self.expiries.insert((until, name.to_owned()));
        key.last = Some((record.clone(), until));
        if !self.out_of_reach {
            for (_, sink) in &key.sinks {
                let record = record.clone();
                let hint = Hint::Stored { record, previous: Some(previous), stored_at: None };
                out.push((sink.clone(), hint));
            }
        }
        Revision(self.revision)
    }

    fn check(&self, name: &str, expected: Option<Revision>) -> Result<(), LockError> {
        let last = self.keys.get(name).and_then(|key| key.last.as_ref());
        if last.map(|(record, _)| record.revision) == expected {
            return Ok(());
        }
        Err(LockError::new(LockErrorKind::Conflict, "somebody else wrote first"))
    }
}

impl Lock for MemoryLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            longest_lease: self.inner.ttl,
            reads: true,
            empty_is_proof: true,
            longest_identity: 4096,
        }
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        if name.is_empty() { Err("a name has at least one character".to_owned()) } else { Ok(()) }
    }

    fn read<'a>(
        &'a self,
        name: &'a str,
        _timeout: Duration,
    ) -> BoxFuture<'a, Result<Reading, LockError>> {
        self.answer(|store, _, _| {
            let last = store.keys.get(name).and_then(|key| key.last.as_ref());
            Ok(match last {
                Some((record, _)) => Reading::Found(record.clone()),
                None => Reading::Empty { proof: true },
            })
        })
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        write: Write,
    ) -> BoxFuture<'a, Result<Revision, LockError>> {
        self.answer(move |store, now, out| {
            store.check(name, write.expected)?;
            let Write { identity, mark, life, .. } = write;
            let entry = Entry { identity, mark: Some(mark), life };
            Ok(store.put(name, Content::Held(entry), now + life, out))
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        release: Release,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        self.answer(move |store, now, out| {
            store.check(name, Some(release.expected))?;
            let tombstone = Tombstone::Released { by: release.by, left: release.left };
            store.put(name, Content::Vacant(tombstone), now + self.inner.ttl, out);
            Ok(())
        })
    }

    fn concede<'a>(
        &'a self,
        name: &'a str,
        concession: Concession,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        self.answer(move |store, _, out| {
            let sinks = store.keys.get(name).into_iter().flat_map(|key| &key.sinks);
            out.extend(sinks.map(|(_, sink)| (sink.clone(), Hint::Conceded(concession))));
            Ok(())
        })
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        let id = self.inner.transact(|store, _, out| {
            store.subscribers += 1;
            let id = store.subscribers;
            let coverage = if store.out_of_reach { Coverage::None } else { Coverage::Full };
            out.push((sink.clone(), Hint::Coverage(coverage)));
            store.keys.entry(name.to_owned()).or_default().sinks.push((id, sink));
            if store.expirer.as_ref().is_none_or(JoinHandle::is_finished)
                && let Ok(runtime) = tokio::runtime::Handle::try_current()
            {
                let changed = Arc::clone(&self.inner.changed);
                store.expirer = Some(runtime.spawn(expire(Arc::downgrade(&self.inner), changed)));
            }
            id
        });
        Subscription::new(Listener { inner: Arc::clone(&self.inner), name: name.to_owned(), id })
    }
}

/// A place among the sinks of a key.
struct Listener {
    inner: Arc<Inner>,
    name: String,
    id: u64,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut store = self.inner.store();
        if let Some(key) = store.keys.get_mut(&self.name) {
            key.sinks.retain(|(id, _)| *id != self.id);
            if key.sinks.is_empty() && key.last.is_none() {
                store.keys.remove(&self.name);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let store = self.store.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(expirer) = store.expirer.take() {
            expirer.abort();
        }
    }
}

/// Expires entries when their time comes, so that stand-bys hear of it.
async fn expire(inner: Weak<Inner>, changed: Arc<Notify>) {
    loop {
        let Some(wait) = inner.upgrade().map(|inner| {
            inner.transact(|store, now, out| {
                store.expire(now, inner.ttl, out);
                store.expiries.first().map(|(at, _)| at.saturating_since(now))
            })
        }) else {
            return;
        };
        match wait {
            Some(wait) => {
                let _ = tokio::time::timeout(wait, changed.notified()).await;
            }
            None => changed.notified().await,
        }
    }
}

impl Default for MemoryLock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLock").field("ttl", &self.inner.ttl).finish_non_exhaustive()
    }
}
