//! What this process has seen of an election: the newest revision, and on some locks what to write
//! over. An older one shows that a backup was restored, also after any time, so none is forgotten
//! while the process takes part. It has no I/O and no clock: the simulation uses it too.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::lock::{Content, Entry, Record, Revision, Tombstone};
use crate::util::locked;

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

/// The known state when a request was sent.
#[derive(Debug, Clone)]
pub struct Before<V> {
    known: Option<Known<V>>,
    newest: Option<Revision>,
}

/// What was seen of one election. `V`: the version of an object, where a write names it.
#[derive(Debug)]
pub struct SeenRevisions<V = ()>(Mutex<State<V>>);

#[derive(Debug, Clone)]
struct State<V> {
    known: Option<Known<V>>,
    /// The greatest revision that was ever seen. It outlives the object.
    newest: Option<Revision>,
}

impl<V> Default for SeenRevisions<V> {
    fn default() -> Self {
        Self(Mutex::new(State { known: None, newest: None }))
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
        self.state().newest
    }

    /// Records a revision, and returns the greatest one that was seen.
    pub fn see(&self, revision: Revision) -> Revision {
        let mut state = self.state();
        let newest = state.newest.map_or(revision, |newest| newest.max(revision));
        *state.newest.insert(newest)
    }

    fn state(&self) -> MutexGuard<'_, State<V>> {
        locked(&self.0)
    }
}

impl<V: Clone + PartialEq> SeenRevisions<V> {
    /// Returns the object as last seen.
    pub fn known(&self) -> Option<Known<V>> {
        self.state().known.clone()
    }

    /// Returns the known state, before a read.
    pub fn before(&self) -> Before<V> {
        let state = self.state();
        Before { known: state.known.clone(), newest: state.newest }
    }

    /// Records that the object is gone. `before`: the known state when the read was sent.
    pub fn forget(&self, before: &Before<V>) {
        let mut state = self.state();
        if state.newest <= before.newest {
            state.known = None;
        }
    }

    /// Records the result of a read. `before`: the known state when the read was sent. The object
    /// cannot be older than that state, unless another program set it back, deleted it or wrote
    /// over it: see [`set_back`]. `longest`: the maximum lease.
    pub fn found(
        &self,
        before: &Before<V>,
        version: V,
        number: u64,
        content: Content,
        longest: Duration,
    ) -> Known<V> {
        let mut state = self.state();
        if let Some(known) = state.known.as_ref().filter(|known| known.version == version) {
            return known.clone();
        }
        // Another elector of this process has written or read meanwhile: the response is from
        // before, and outdated.
        if let Some(known) = before.known.as_ref().filter(|known| known.version == version) {
            return known.clone();
        }
        let revision = Revision(number.saturating_add(1));
        if before.newest.is_some_and(|before| revision <= before) {
            let newest = state.newest.max(before.newest).unwrap_or(revision);
            let revision = Revision(newest.0.saturating_add(1));
            let content = set_back(content, longest);
            let known = Known { version, number, revision, content };
            state.newest = Some(revision);
            state.known = Some(known.clone());
            return known;
        }
        let known = Known { version, number, revision, content };
        state.take(known.clone());
        known
    }

    /// Records the result of an own write, or an object that a hint shows: an older one is ignored.
    pub fn learn(&self, known: Known<V>) {
        self.state().take(known);
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

impl<V> State<V> {
    /// Responses arrive in any order: an older one is ignored.
    fn take(&mut self, known: Known<V>) {
        if self.newest.is_none_or(|newest| known.revision > newest) {
            self.newest = Some(known.revision);
            self.known = Some(known);
        }
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
