//! Who wants to hear of which election, and what has been heard.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::lock::{Coverage, Hint, HintSink, Revision, Subscription};

/// The listeners of one lock, and the task that serves them.
#[derive(Debug, Default)]
pub(super) struct Hearers {
    state: Mutex<State>,
    /// Tells the task of what is new in `unheard` or in who listens.
    #[cfg(feature = "postgres")]
    pub news: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct State {
    elections: HashMap<Arc<str>, Heard>,
    next: u64,
    coverage: Coverage,
    task: Option<AbortHandle>,
}

#[derive(Debug, Default)]
struct Heard {
    sinks: Vec<(u64, HintSink)>,
    /// The newest revision that was heard; none before the first.
    heard: Option<Revision>,
    /// The newest revision that was read.
    read: Option<Revision>,
}

/// Ends one subscription.
struct Guard {
    hearers: Arc<Hearers>,
    name: String,
    id: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.hearers.leave(&self.name, self.id);
    }
}

impl Hearers {
    /// Adds a listener for as long as the subscription lives. `serve` hears for all of them, from the first to the last, when
    /// it is aborted; it is dropped where one runs already.
    pub fn subscribe(
        self: &Arc<Self>,
        name: &str,
        sink: HintSink,
        serve: impl Future<Output = ()> + Send + 'static,
    ) -> Subscription {
        let Ok(runtime) = Handle::try_current() else { return Subscription::none() };
        let (id, coverage) = self.listen(name, sink.clone());
        match coverage {
            None => self.served_by(runtime.spawn(serve).abort_handle()),
            Some(Coverage::None) => {}
            Some(coverage) => sink.send(Hint::Coverage(coverage)),
        }
        Subscription::new(Guard { hearers: Arc::clone(self), name: name.to_owned(), id })
    }

    /// Answers the listener's number, and how much is heard; `None` where no task runs.
    fn listen(&self, name: &str, sink: HintSink) -> (u64, Option<Coverage>) {
        let mut state = self.state();
        let id = state.next;
        state.next = id.wrapping_add(1);
        state.elections.entry(Arc::from(name)).or_default().sinks.push((id, sink));
        let runs = state.task.as_ref().is_some_and(|task| !task.is_finished());
        if !runs {
            state.coverage = Coverage::None;
        }
        (id, runs.then_some(state.coverage))
    }

    fn served_by(&self, task: AbortHandle) {
        if let Some(other) = self.state().task.replace(task) {
            other.abort();
        }
    }

    /// Removes a listener; with the last one the task ends.
    fn leave(&self, name: &str, id: u64) {
        let mut state = self.state();
        if let Some(election) = state.elections.get_mut(name) {
            election.sinks.retain(|(other, _)| *other != id);
            if election.sinks.is_empty() {
                state.elections.remove(name);
            }
        }
        if state.elections.is_empty() {
            state.coverage = Coverage::None;
            if let Some(task) = state.task.take() {
                task.abort();
            }
        }
    }

    /// The elections that somebody listens to.
    #[cfg(feature = "sqlite")]
    pub fn names(&self) -> Vec<Arc<str>> {
        self.state().elections.keys().cloned().collect()
    }

    /// Whether somebody listens to an election.
    #[cfg(feature = "postgres")]
    pub fn is_heard(&self, name: &str) -> bool {
        self.state().elections.contains_key(name)
    }

    /// Passes on what was stored under a name. Answers whether it is newer than what was heard before.
    pub fn tell(&self, name: &str, hint: &Hint) -> bool {
        let (sinks, newer) = {
            let mut state = self.state();
            let Some(election) = state.elections.get_mut(name) else { return false };
            let newer = match hint {
                Hint::Stored { record, .. } => {
                    let newer = election.heard < Some(record.revision);
                    election.heard = election.heard.max(Some(record.revision));
                    newer
                }
                _ => true,
            };
            (election.sinks.iter().map(|(_, sink)| sink.clone()).collect::<Vec<_>>(), newer)
        };
        // Not under our lock: what a sink does is not ours.
        for sink in sinks {
            sink.send(hint.clone());
        }
        newer
    }

    /// The newest revision of an election that was heard.
    #[cfg(feature = "sqlite")]
    pub fn heard(&self, name: &str) -> Option<Revision> {
        self.state().elections.get(name)?.heard
    }

    pub fn tell_everybody(&self, hint: &Hint) {
        let sinks: Vec<HintSink> = {
            let state = self.state();
            let sinks = state.elections.values().flat_map(|election| &election.sinks);
            sinks.map(|(_, sink)| sink.clone()).collect()
        };
        for sink in sinks {
            sink.send(hint.clone());
        }
    }

    /// Tells how much is heard from now on, if that has changed. What was heard until now counts no more.
    pub fn announce(&self, coverage: Coverage) {
        let changed = {
            let mut state = self.state();
            for election in state.elections.values_mut() {
                (election.heard, election.read) = (None, None);
            }
            std::mem::replace(&mut state.coverage, coverage) != coverage
        };
        if changed {
            self.tell_everybody(&Hint::Coverage(coverage));
        }
    }

    /// The same, where nothing was heard until now. Answers whether that is so.
    #[cfg(feature = "sqlite")]
    pub fn announce_if_none(&self, coverage: Coverage) -> bool {
        let is_none = self.state().coverage == Coverage::None;
        if is_none {
            self.announce(coverage);
        }
        is_none
    }

    /// Remembers what was read, to compare it with what is heard.
    #[cfg(feature = "postgres")]
    pub fn was_read(&self, name: &str, revision: Revision) {
        let unheard = {
            let mut state = self.state();
            let Some(election) = state.elections.get_mut(name) else { return };
            election.read = election.read.max(Some(revision));
            // What stood there when listening began is told by nobody.
            let heard = *election.heard.get_or_insert(revision);
            heard < revision
        };
        if unheard {
            self.news.notify_one();
        }
    }

    /// Whether something was read that nobody has told.
    #[cfg(feature = "postgres")]
    pub fn is_behind(&self) -> bool {
        self.state().elections.values().any(|election| election.heard < election.read)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
