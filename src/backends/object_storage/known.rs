//! Known state of one election's object. It has no I/O and no clock: the simulation uses it too.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::vimeo_timing::VimeoTiming;
use crate::lock::{Content, Record, Revision};

/// An object as last seen.
#[derive(Debug, Clone)]
pub(super) struct Known<V> {
    /// The condition of the next write: opaque, and compared only with others of the same object.
    pub(super) version: V,
    /// The number in the object.
    pub(super) number: u64,
    /// Usually one more than the number; more if the object had been set back.
    pub(super) revision: Revision,
    pub(super) content: Content,
}

impl<V> Known<V> {
    pub(super) fn record(&self) -> Record {
        Record { revision: self.revision, content: self.content.clone() }
    }
}

/// The known state when a request was sent.
#[derive(Debug, Clone)]
pub(super) struct Before<V> {
    known: Option<Known<V>>,
    newest: Option<Revision>,
}

/// State of one election.
#[derive(Debug)]
pub(super) struct Election<V>(Mutex<State<V>>);

#[derive(Debug, Clone)]
struct State<V> {
    known: Option<Known<V>>,
    /// The greatest revision that was ever seen. It outlives the object.
    newest: Option<Revision>,
}

impl<V> Default for Election<V> {
    fn default() -> Self {
        Self(Mutex::new(State { known: None, newest: None }))
    }
}

/// For tests that explore several continuations.
impl<V: Clone> Clone for Election<V> {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }
}

impl<V: Clone + PartialEq> Election<V> {
    pub(super) fn known(&self) -> Option<Known<V>> {
        self.state().known.clone()
    }

    pub(super) fn newest(&self) -> Option<Revision> {
        self.state().newest
    }

    /// Returns the known state, before a read.
    pub(super) fn before(&self) -> Before<V> {
        let state = self.state();
        Before { known: state.known.clone(), newest: state.newest }
    }

    /// Records that the object is gone. `before`: the known state when the read was sent.
    pub(super) fn forget(&self, before: &Before<V>) {
        let mut state = self.state();
        if state.newest <= before.newest {
            state.known = None;
        }
    }

    /// Records the result of a read. `before`: the known state when the read was sent. The object
    /// cannot be older than that state, unless another program set it back, deleted it or wrote
    /// over it.
    pub(super) fn found(
        &self,
        before: &Before<V>,
        version: V,
        number: u64,
        content: Content,
        terms: VimeoTiming,
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
            let content = terms.set_back(content);
            let known = Known { version, number, revision, content };
            state.newest = Some(revision);
            state.known = Some(known.clone());
            return known;
        }
        let known = Known { version, number, revision, content };
        state.take(known.clone());
        known
    }

    /// Records the result of an own write.
    pub(super) fn wrote(&self, known: Known<V>) {
        self.state().take(known);
    }

    /// Returns the number of the next write, over `known` or over nothing. `clock`: the wall clock,
    /// in milliseconds.
    ///
    /// The number is greater than that of the replaced object, and greater than all that this
    /// candidate has seen: after an object was deleted, or replaced by an older copy, tokens must
    /// not decrease. For candidates that have not seen it, the wall clock provides that as far as
    /// it can; nothing else depends on it.
    pub(super) fn next_number(&self, known: Option<&Known<V>>, clock: u64) -> u64 {
        let next = known.map_or(0, |known| known.number.saturating_add(1));
        next.max(self.newest().map_or(0, |newest| newest.0)).max(clock)
    }

    fn state(&self) -> MutexGuard<'_, State<V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
