//! What the lock knows of each election's object.

use std::sync::{Mutex, MutexGuard, PoisonError};

use object_store::UpdateVersion;

use super::entry::{Terms, set_back};
use crate::lock::{Content, Record, Revision};

/// An object as last seen.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// By which the next write is conditional.
    pub(super) version: UpdateVersion,
    /// The number in the object.
    pub(super) number: u64,
    /// Its revision is as a rule one more than the number. More where the object had been set back.
    pub(super) record: Record,
}

/// One election.
#[derive(Debug, Default)]
pub(super) struct Election(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Option<Known>,
    /// The greatest revision that was ever seen, which outlives the object.
    newest: Option<Revision>,
}

impl Election {
    pub(super) fn known(&self) -> Option<Known> {
        self.state().known.clone()
    }

    pub(super) fn newest(&self) -> Option<Revision> {
        self.state().newest
    }

    /// The object is gone. `before`: what was known when it was asked for.
    pub(super) fn forget(&self, before: Option<Revision>) {
        let mut state = self.state();
        if state.newest <= before {
            state.known = None;
        }
    }

    /// Takes in what a read has found. `before`: the newest revision known when it was sent, than which an object that
    /// nobody set back, deleted or wrote over from elsewhere cannot be older.
    pub(super) fn found(
        &self,
        before: Option<Revision>,
        version: UpdateVersion,
        number: u64,
        content: Content,
        terms: Terms,
    ) -> Known {
        let mut state = self.state();
        if let Some(known) = state.known.as_ref().filter(|known| known.version == version) {
            return known.clone();
        }
        let revision = Revision(number.saturating_add(1));
        if before.is_some_and(|before| revision <= before) {
            let newest = state.newest.max(before).unwrap_or(revision);
            let revision = Revision(newest.0.saturating_add(1));
            let record = Record { revision, content: set_back(content, terms) };
            let known = Known { version, number, record };
            state.newest = Some(revision);
            state.known = Some(known.clone());
            return known;
        }
        let known = Known { version, number, record: Record { revision, content } };
        state.take(known.clone());
        known
    }

    /// Takes in what a write of ours was answered.
    pub(super) fn wrote(&self, known: Known) {
        self.state().take(known);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Answers come in any order: an older one is no news.
    fn take(&mut self, known: Known) {
        let revision = known.record.revision;
        if self.newest.is_none_or(|newest| revision > newest) {
            self.newest = Some(revision);
            self.known = Some(known);
        }
    }
}
