//! What the lock knows of each election's object, and who wants to hear of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::mark::Found;
use super::record::ElectionRecord;
use crate::lock::{Content, Coverage, Hint, HintSink, Record, Revision};

/// An object as last seen.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// All of it, to be written back.
    pub(super) object: Arc<Value>,
    /// Of the object.
    version: u64,
    /// Of the record: the version at which it was first seen as it is. Others may write to the rest of the object, which
    /// renews nobody's lease.
    pub(super) revision: Revision,
    pub(super) record: ElectionRecord,
    pub(super) content: Content,
}

impl Known {
    pub(super) fn record(&self) -> Record {
        Record { revision: self.revision, content: self.content.clone() }
    }
}

/// One election.
#[derive(Debug)]
pub(super) struct Election {
    state: Mutex<State>,
    /// The newest revision that was read, for the watch to compare.
    read: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct State {
    known: Option<Known>,
    sinks: Vec<(u64, HintSink)>,
    next_sink: u64,
    coverage: Coverage,
    watcher: Option<AbortHandle>,
}

impl Default for Election {
    fn default() -> Self {
        Self { state: Mutex::default(), read: watch::Sender::new(Revision(0)) }
    }
}

impl Election {
    pub(super) fn known(&self) -> Option<Known> {
        self.state().known.clone()
    }

    pub(super) fn forget(&self) {
        self.state().known = None;
    }

    pub(super) fn learn(&self, version: u64, object: Value, found: Found) -> Known {
        let Found { record, content } = found;
        let mut state = self.state();
        let same = |known: &&Known| known.record == record && known.content == content;
        let revision =
            state.known.as_ref().filter(same).map_or(Revision(version), |known| known.revision);
        let known = Known { object: Arc::new(object), version, revision, record, content };
        state.known = Some(known.clone());
        known
    }

    /// Whether an object of this version is no news.
    pub(super) fn is_old(&self, version: u64) -> bool {
        self.state().known.as_ref().is_some_and(|known| version < known.version)
    }

    pub(super) fn was_read(&self, revision: Revision) {
        self.read.send_if_modified(|read| {
            let newer = revision > *read;
            *read = revision.max(*read);
            newer
        });
    }

    pub(super) fn reads(&self) -> watch::Receiver<Revision> {
        self.read.subscribe()
    }

    /// Adds a listener. Answers its number, how much is heard, and whether a watcher runs.
    pub(super) fn listen(&self, sink: HintSink) -> (u64, Coverage, bool) {
        let mut state = self.state();
        let id = state.next_sink;
        state.next_sink = id.wrapping_add(1);
        state.sinks.push((id, sink));
        let runs = state.watcher.as_ref().is_some_and(|watcher| !watcher.is_finished());
        if !runs {
            state.coverage = Coverage::None;
        }
        (id, state.coverage, runs)
    }

    pub(super) fn watched_by(&self, watcher: AbortHandle) {
        if let Some(other) = self.state().watcher.replace(watcher) {
            other.abort();
        }
    }

    /// Removes a listener; with the last one the watcher ends.
    pub(super) fn leave(&self, id: u64) {
        let mut state = self.state();
        state.sinks.retain(|(other, _)| *other != id);
        if state.sinks.is_empty() {
            state.coverage = Coverage::None;
            if let Some(watcher) = state.watcher.take() {
                watcher.abort();
            }
        }
    }

    pub(super) fn tell(&self, hint: &Hint) {
        // Its own statement: what a sink does is not ours, and must not happen under our lock.
        let sinks: Vec<HintSink> = self.state().sinks.iter().map(|(_, s)| s.clone()).collect();
        for sink in sinks {
            sink.send(hint.clone());
        }
    }

    /// Tells how much is heard from now on, if that has changed.
    pub(super) fn announce(&self, coverage: Coverage) {
        let changed = std::mem::replace(&mut self.state().coverage, coverage) != coverage;
        if changed {
            self.tell(&Hint::Coverage(coverage));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
