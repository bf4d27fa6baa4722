//! Subscriptions to the hints of a lock: subscribers per election, their coverage, and the listener
//! task that receives hints for all of them.
//!
//! The task runs on the runtime of a subscriber. When that runtime ends, the task restarts on the
//! runtime of another subscriber. Only the task reports coverage, also to new subscribers, so the
//! last report is always the current one.

pub(crate) mod guard;
mod sinks;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use sinks::Sinks;

use crate::lock::{Coverage, Hint, HintSink};
use crate::util::locked;

/// How long a hint may be in transit after the same change was read.
pub(crate) const HINT_DELAY: Duration = Duration::from_secs(2);

/// How long a listener may take to begin.
pub(crate) const BEGINS_WITHIN: Duration = Duration::from_secs(5);

/// The owner of a hub, which receives the hints for its subscribers.
pub(crate) trait Listen: Send + Sync + Sized + 'static {
    /// A note per election, kept while the election has subscribers.
    type Note: Default + Send;

    fn hub(&self) -> &HintHub<Self::Note>;

    /// The last subscriber of an election has gone.
    fn forget(&self, _name: &str) {}

    /// Receives hints until the future is dropped: when the last subscriber leaves, or with the
    /// runtime.
    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static;
}

/// The subscriptions of a lock in this process.
pub(crate) struct HintHub<N> {
    state: Mutex<State<N>>,
    /// Notified when subscribers have joined, or the last one has left.
    changed: Notify,
    /// Notified when the set of elections with subscribers has changed.
    elections: Notify,
    /// Notified when all hints of other elections are received.
    whole: Notify,
}

struct State<N> {
    routes: HashMap<Arc<str>, Route<N>>,
    next_id: u64,
    /// The number of the running listener.
    listener: Option<u64>,
    /// The runtimes of subscribers, and the number of subscribers on each.
    runtimes: Vec<(Handle, usize)>,
    /// Subscribers that have not received the coverage yet.
    new_sinks: BTreeMap<u64, (Arc<str>, HintSink)>,
    coverage: Coverage,
    /// The elections with this coverage.
    covered: Interest,
}

/// The elections of interest to a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interest {
    One(Arc<str>),
    All,
}

impl Interest {
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::One(only) => **only == *name,
            Self::All => true,
        }
    }
}

/// One election.
#[derive(Default)]
struct Route<N> {
    sinks: Sinks,
    note: N,
    /// How many subscribers want all hints of it.
    want_all: u32,
    /// Whether the listener receives all of them.
    is_whole: bool,
}

impl<N> Default for HintHub<N> {
    fn default() -> Self {
        let state = State {
            routes: HashMap::new(),
            next_id: 0,
            listener: None,
            runtimes: Vec::new(),
            new_sinks: BTreeMap::new(),
            coverage: Coverage::None,
            covered: Interest::All,
        };
        let [changed, elections, whole] = std::array::from_fn(|_| Notify::new());
        Self { state: Mutex::new(state), changed, elections, whole }
    }
}

partial_debug!(HintHub<N>, self);

/// Owned by the listener's task. If the task ends while there are subscribers, as with its runtime,
/// the drop starts another task on the runtime of a subscriber.
struct ListenerTask<L: Listen> {
    of: Arc<L>,
    number: u64,
    runtime: Id,
}

impl<L: Listen> ListenerTask<L> {
    fn spawn(of: &Arc<L>, number: u64, runtime: &Handle) {
        let listening = Self { of: Arc::clone(of), number, runtime: runtime.id() };
        runtime.spawn(listening.run()); // dropped at once if the runtime has ended
    }

    async fn run(self) {
        let hub = self.of.hub();
        let mut listen = std::pin::pin!(Arc::clone(&self.of).listen());
        loop {
            tokio::select! {
                () = &mut listen => return,
                () = hub.changed.notified() => {
                    if hub.stop_if_unused() {
                        return;
                    }
                    hub.greet();
                }
            }
        }
    }
}

impl<L: Listen> Drop for ListenerTask<L> {
    fn drop(&mut self) {
        let hub = self.of.hub();
        if hub.state().listener != Some(self.number) {
            return; // no subscribers, or another listener runs
        }
        hub.announce(Coverage::None);
        let next = {
            let mut state = hub.state();
            state.runtimes.retain(|(known, _)| known.id() != self.runtime);
            let number = state.number();
            let next = state.runtimes.first().map(|(runtime, _)| (number, runtime.clone()));
            state.listener = next.as_ref().map(|(number, _)| *number);
            next
        };
        if let Some((number, runtime)) = next {
            Self::spawn(&self.of, number, &runtime);
            hub.changed.notify_one();
        }
    }
}

impl<N> State<N> {
    fn number(&mut self) -> u64 {
        let number = self.next_id;
        self.next_id = number.wrapping_add(1);
        number
    }
}

impl<N: Default> HintHub<N> {
    /// Returns the elections with subscribers.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.state().routes.keys().cloned().collect()
    }

    /// Returns whether an election has subscribers.
    pub fn has(&self, name: &str) -> bool {
        self.state().routes.contains_key(name)
    }

    /// Applies `access` to the note on an election; `None` if the election has no subscribers.
    /// `access` must not block.
    pub fn note<T>(&self, name: &str, access: impl FnOnce(&mut N) -> T) -> Option<T> {
        self.state().routes.get_mut(name).map(|route| access(&mut route.note))
    }

    /// Returns whether `predicate` holds for the note on any election.
    pub fn any(&self, predicate: impl Fn(&N) -> bool) -> bool {
        self.state().routes.values().any(|route| predicate(&route.note))
    }

    /// Returns the elections with subscribers, for a listener of one or of all elections; `None`:
    /// there are none.
    pub fn interest(&self) -> Option<Interest> {
        let state = self.state();
        let mut names = state.routes.keys();
        match (names.next(), names.next()) {
            (Some(only), None) => Some(Interest::One(Arc::clone(only))),
            (Some(_), Some(_)) => Some(Interest::All),
            (None, _) => None,
        }
    }

    /// The elections whose subscribers want all hints, but no more than `most`.
    pub fn wanted_whole(&self, most: usize) -> Vec<Arc<str>> {
        let state = self.state();
        let wanted = state.routes.iter().filter(|(_, route)| route.want_all > 0);
        wanted.map(|(name, _)| Arc::clone(name)).take(most).collect()
    }

    /// Sets of which elections all hints are received, by name. For the listener only. Where they
    /// are received from now on, the subscribers recheck: they received few of the earlier ones.
    pub fn set_whole(&self, is_whole: impl Fn(&str) -> bool) {
        let mut became_whole = Vec::new();
        for (name, route) in &mut self.state().routes {
            let before =
                std::mem::replace(&mut route.is_whole, route.want_all > 0 && is_whole(name));
            if route.is_whole && !before {
                became_whole.push(route.sinks.clone());
            }
        }
        self.whole.notify_waiters();
        became_whole.iter().for_each(|sinks| sinks.send(&Hint::Recheck));
    }

    /// Returns whether only a few hints of an election are received, and its subscribers want all.
    pub fn lacks_hints(&self, name: &str) -> bool {
        let state = self.state();
        let lacks = |route: &Route<N>| route.want_all > 0 && !route.is_whole;
        state.coverage == Coverage::Sampled && state.routes.get(name).is_some_and(lacks)
    }

    /// Waits until that is no longer so. Cancel safe.
    pub async fn whole(&self, name: &str) {
        loop {
            let mut changed = std::pin::pin!(self.whole.notified());
            changed.as_mut().enable();
            if !self.lacks_hints(name) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the set of elections with subscribers has changed, or while hints are sampled,
    /// that of elections whose hints are all wanted. For the listener only. Cancel safe.
    pub async fn interest_changed(&self) {
        self.elections.notified().await;
    }

    /// Returns the coverage.
    pub fn coverage(&self) -> Coverage {
        self.state().coverage
    }

    /// Applies `access` to the note on `name`, then sends a hint to its subscribers; `None` if
    /// there are none. `access` must not block.
    pub fn send<T>(&self, name: &str, hint: &Hint, access: impl FnOnce(&mut N) -> T) -> Option<T> {
        let (sinks, result) = {
            let mut state = self.state();
            let route = state.routes.get_mut(name)?;
            (route.sinks.clone(), access(&mut route.note))
        };
        sinks.send(hint);
        Some(result)
    }

    /// Sends a hint to all subscribers.
    pub fn send_all(&self, hint: &Hint) {
        let all: Vec<Sinks> = self.state().routes.values().map(|r| r.sinks.clone()).collect();
        all.iter().for_each(|sinks| sinks.send(hint));
    }

    /// Reports the coverage from now on, if it has changed, and resets all notes. For the listener
    /// only.
    pub fn announce(&self, coverage: Coverage) {
        for (sinks, coverage) in self.set_coverage(coverage, Interest::All) {
            sinks.send(&Hint::Coverage(coverage));
        }
    }

    /// Like [`announce`](Self::announce), for a listener of some elections: the coverage of the
    /// others is `None`. The covered elections recheck: earlier changes had no hints, unless they
    /// received all until now.
    pub fn announce_of(&self, coverage: Coverage, covered: Interest) {
        let misses = self.coverage() < Coverage::Full || coverage != Coverage::Sampled;
        for (sinks, coverage) in self.set_coverage(coverage, covered) {
            sinks.send(&Hint::Coverage(coverage));
            if coverage > Coverage::None && misses {
                sinks.send(&Hint::Recheck);
            }
        }
        if coverage == Coverage::Sampled {
            self.elections.notify_one(); // some may have come to want all hints meanwhile
        }
    }

    /// Returns the coverage to report to the subscribers of each election; empty if it has not
    /// changed.
    fn set_coverage(&self, coverage: Coverage, covered: Interest) -> Vec<(Sinks, Coverage)> {
        let mut state = self.state();
        let state = &mut *state;
        for route in state.routes.values_mut() {
            route.note = N::default();
        }
        let before = std::mem::replace(&mut state.coverage, coverage);
        let covered_before = std::mem::replace(&mut state.covered, covered);
        if before == coverage && (covered_before == state.covered || coverage == Coverage::None) {
            return Vec::new(); // `greet` reports to new subscribers
        }
        state.new_sinks.clear(); // they are among the returned ones
        let coverage_of = |name| match state.covered.covers(name) {
            true => coverage,
            false => Coverage::None,
        };
        let routes = state.routes.iter();
        routes.map(|(name, route)| (route.sinks.clone(), coverage_of(name))).collect()
    }

    /// Reports the coverage to new subscribers.
    fn greet(&self) {
        let (new_sinks, coverage) = {
            let mut state = self.state();
            let mut new_sinks = std::mem::take(&mut state.new_sinks);
            new_sinks.retain(|_, (name, _)| state.covered.covers(name));
            (new_sinks, state.coverage)
        };
        if coverage > Coverage::None {
            for (_, sink) in new_sinks.into_values() {
                sink.send(Hint::Coverage(coverage));
            }
        }
    }

    /// Stops the listener if there are no subscribers, and returns whether it did.
    fn stop_if_unused(&self) -> bool {
        let mut state = self.state();
        let unused = state.routes.is_empty();
        if unused {
            (state.listener, state.coverage) = (None, Coverage::None);
            state.new_sinks.clear();
        }
        unused
    }
}

impl<N> HintHub<N> {
    fn state(&self) -> MutexGuard<'_, State<N>> {
        locked(&self.state)
    }
}

#[cfg(test)]
mod tests;
