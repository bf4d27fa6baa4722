//! What this process has seen of an election: the newest revision, and on some locks what to write
//! over. An older one shows that a backup was restored, also after any time, so none is forgotten
//! while the process takes part. It has no I/O and no clock: the simulation uses it too.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::lock::{Content, Entry, Record, Revision, Tombstone};
use crate::util::locked;

/// An object of an election, as a response or a hint shows it.
pub trait Object: Clone {
    /// Its place in the order of the writes.
    fn order(&self) -> Revision;
    /// Whether both are of the same write.
    fn is_same(&self, other: &Self) -> bool;
}

/// The newest object that was seen, as responses and hints arrive in any order. A copy from before
/// a request shows what its response is compared with.
#[derive(Debug, Clone)]
pub struct Newest<O> {
    /// `None`: there is none, or it is unknown.
    object: Option<O>,
    /// The greatest order that was ever seen. It outlives the object.
    order: Option<Revision>,
}

impl<O> Default for Newest<O> {
    fn default() -> Self {
        Self { object: None, order: None }
    }
}

impl<O: Object> Newest<O> {
    /// Returns the object as last seen.
    pub fn object(&self) -> Option<&O> {
        self.object.as_ref()
    }

    /// Returns the object as last seen, to be changed.
    pub fn object_mut(&mut self) -> Option<&mut O> {
        self.object.as_mut()
    }

    /// Records that the object is gone. `before`: the state when the read was sent.
    pub fn forget(&mut self, before: &Self) {
        if self.order <= before.order {
            self.object = None;
        }
    }

    /// Records an object that no request of this process asked for, or an own write: an older one
    /// is ignored. Returns what is known of it, if it is the newest.
    pub fn take(&mut self, found: O) -> Option<O> {
        if self.order.is_none_or(|newest| found.order() > newest) {
            self.replace(found);
            return self.object.clone();
        }
        self.object().filter(|known| known.is_same(&found)).cloned()
    }

    /// Records the response to a request. `before`: the state when it was sent. The object cannot
    /// be older than that state, unless another program set it back, deleted it or wrote over it:
    /// `set_back` then gives it its meaning, after the greatest order.
    pub fn found(&mut self, before: &Self, found: O, set_back: impl FnOnce(O, Revision) -> O) -> O {
        // If it is the one from before, another elector of this process has written or read
        // meanwhile, and the response is outdated.
        for known in [&self.object, &before.object].into_iter().flatten() {
            if known.is_same(&found) {
                return known.clone();
            }
        }
        match self.order.max(before.order) {
            Some(newest) if before.order.is_some_and(|before| found.order() <= before) => {
                let found = set_back(found, newest);
                self.replace(found.clone());
                found
            }
            _ => {
                self.take(found.clone());
                found
            }
        }
    }

    fn replace(&mut self, object: O) {
        self.order = Some(object.order());
        self.object = Some(object);
    }
}

/// An object as last seen.
#[derive(Debug, Clone)]
pub struct Known<V> {
    /// The condition of the next write: opaque, and compared only with others of the same object.
    pub version: V,
    /// The number in the object.
    pub number: u64,
    /// Usually one more than the number; more if the object had been set back.
    pub revision: Revision,
    /// What it means.
    pub content: Content,
}

impl<V> Known<V> {
    /// Returns the record of the election.
    pub fn record(&self) -> Record {
        Record { revision: self.revision, content: self.content.clone() }
    }
}

impl<V: Clone + PartialEq> Object for Known<V> {
    fn order(&self) -> Revision {
        self.revision
    }

    fn is_same(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

/// The known state when a request was sent.
pub type Before<V> = Newest<Known<V>>;

/// What was seen of one election. `V`: the version of an object, where a write names it.
#[derive(Debug)]
pub struct SeenRevisions<V = ()>(Mutex<Newest<Known<V>>>);

impl<V> Default for SeenRevisions<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// For tests that explore several continuations.
impl<V: Clone> Clone for SeenRevisions<V> {
    fn clone(&self) -> Self {
        Self(Mutex::new(locked(&self.0).clone()))
    }
}

impl<V> SeenRevisions<V> {
    /// Returns the greatest revision that was ever seen.
    pub fn newest(&self) -> Option<Revision> {
        self.state().order
    }

    /// Records a revision, and returns the greatest one that was seen.
    pub fn see(&self, revision: Revision) -> Revision {
        let mut state = self.state();
        let newest = state.order.map_or(revision, |newest| newest.max(revision));
        *state.order.insert(newest)
    }

    fn state(&self) -> MutexGuard<'_, Newest<Known<V>>> {
        locked(&self.0)
    }
}

impl<V: Clone + PartialEq> SeenRevisions<V> {
    /// Returns the object as last seen.
    pub fn known(&self) -> Option<Known<V>> {
        self.state().object.clone()
    }

    /// Returns the known state, before a read.
    pub fn before(&self) -> Before<V> {
        self.state().clone()
    }

    /// Records that the object is gone. `before`: the known state when the read was sent.
    pub fn forget(&self, before: &Before<V>) {
        self.state().forget(before);
    }

    /// Records the result of a read. `before`: the known state when the read was sent. `longest`:
    /// the maximum lease.
    pub fn found(
        &self,
        before: &Before<V>,
        version: V,
        number: u64,
        content: Content,
        longest: Duration,
    ) -> Known<V> {
        let revision = Revision(number.saturating_add(1));
        let found = Known { version, number, revision, content };
        self.state().found(before, found, |found, newest| {
            let Known { version, number, content, .. } = found;
            let content = set_back(content, longest);
            Known { version, number, revision: Revision(newest.0.saturating_add(1)), content }
        })
    }

    /// Records the result of an own write, or an object that a hint shows. Returns what is known of
    /// it, if it is the newest.
    pub fn learn(&self, known: Known<V>) -> Option<Known<V>> {
        self.state().take(known)
    }

    /// Returns the object that a write replaces: the one last seen, else what `fetch` reads. It has
    /// the expected revision, else the result is that of `conflict`.
    pub async fn replaced<E>(
        &self,
        expected: Option<Revision>,
        fetch: impl Future<Output = Result<Option<Known<V>>, E>>,
        conflict: impl FnOnce() -> E,
    ) -> Result<Option<Known<V>>, E> {
        let known = match (expected, self.known()) {
            (Some(_), None) => fetch.await?,
            (Some(_), known) => known,
            (None, _) => None,
        };
        if known.as_ref().map(|known| known.revision) != expected {
            return Err(conflict());
        }
        Ok(known)
    }

    /// Returns the number of the next write, over `known` or over nothing. `clock`: the wall clock,
    /// in milliseconds.
    ///
    /// The number is greater than that of the replaced object, and greater than all that this
    /// candidate has seen: after an object was deleted, or replaced by an older copy, tokens must
    /// not decrease. For candidates that have not seen it, the wall clock provides that as far as
    /// it can; nothing else depends on it.
    pub fn next_number(&self, known: Option<&Known<V>>, clock: u64) -> u64 {
        let next = known.map_or(0, |known| known.number.saturating_add(1));
        next.max(self.newest().map_or(0, |newest| newest.0)).max(clock)
    }
}

/// Returns the meaning of an entry that replaced later ones: another process holds the election,
/// for `longest` or as long as the entry states. The holder in its mark may have stopped leading
/// long ago.
pub fn set_back(content: Content, longest: Duration) -> Content {
    match content {
        Content::Held(entry) => {
            let life = entry.ttl.max(longest);
            Content::Held(Entry { mark: None, ttl: life, ..entry })
        }
        Content::Vacant(_) => Content::Vacant(Tombstone::Deleted),
    }
}

#[cfg(test)]
mod tests {
    //! Late responses to several electors that share one lock.

    use super::*;
    use crate::lock::{Mark, Nonce, WriteId};

    const LEASE: Duration = Duration::from_secs(15);

    /// The content of a write with this number, which is also its version.
    fn held(number: u64) -> Content {
        let write = WriteId { nonce: Nonce(1), number };
        let mark = Mark::new(write, LEASE, None);
        Content::Held(Entry {
            identity: "a".into(),
            mark: Some(mark),
            ttl: LEASE,
            advertisement: None,
        })
    }

    fn wrote(election: &SeenRevisions<u64>, number: u64) {
        let revision = Revision(number + 1);
        election.learn(Known { version: number, number, revision, content: held(number) });
    }

    /// A read is in flight while another elector of the process writes: its response is from
    /// before.
    #[test]
    fn an_answer_from_before_a_write_does_not_set_it_back() {
        let election = SeenRevisions::default();
        wrote(&election, 10);
        let before = election.before();
        wrote(&election, 11);
        let found = election.found(&before, 10, 10, held(10), LEASE);
        assert_eq!(found.record().revision, Revision(11));
        assert_eq!(election.known().map(|known| known.revision), Some(Revision(12)));
        assert_eq!(election.newest(), Some(Revision(12)));
    }

    #[test]
    fn a_restored_object_is_distinguished_from_a_late_response() {
        let election = SeenRevisions::default();
        wrote(&election, 10);
        wrote(&election, 11);
        let before = election.before();
        let found = election.found(&before, 10, 10, held(10), LEASE);
        assert!(found.revision > Revision(12));
        let Content::Held(entry) = found.content else { panic!("{found:?}") };
        assert_eq!(entry.mark, None);
    }
}
