//! Subscriptions to the hints of a lock: who wants to hear of which election, how much is heard, and the task that listens for all.
//!
//! The task runs on the runtime of a subscriber. Where that one ends, it goes on on the runtime of another one. It alone says how much
//! is heard, also to those who join: so what is said last is what is true.

mod sinks;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use sinks::Sinks;

use crate::lock::{Coverage, Hint, HintSink, Subscription};

/// What has a hub, and listens for its subscribers.
pub(crate) trait Listen: Send + Sync + Sized + 'static {
    /// What is noted of each election while somebody subscribes to it.
    type Note: Default + Send;

    fn hub(&self) -> &HintHub<Self::Note>;

    /// Listens until it is dropped, which happens when nobody subscribes any more, or with the runtime.
    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static;
}

/// The elections of a lock that somebody subscribes to in this process.
pub(crate) struct HintHub<N> {
    state: Mutex<State<N>>,
    /// That subscribers have come, or that none is left.
    changed: Notify,
    /// That the elections with subscribers have changed.
    elections: Notify,
}

struct State<N> {
    routes: HashMap<Arc<str>, Route<N>>,
    next_id: u64,
    /// The number of the listener that runs.
    listener: Option<u64>,
    /// The runtimes of subscribers, and how many are on each.
    runtimes: Vec<(Handle, usize)>,
    /// Subscribers that the listener has not told yet how much is heard.
    newcomers: BTreeMap<u64, (Arc<str>, HintSink)>,
    coverage: Coverage,
    /// Of which elections so much is heard.
    covered: Interest,
}

/// The elections that a listener is for.
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
}

impl<N> Default for HintHub<N> {
    fn default() -> Self {
        let state = State {
            routes: HashMap::new(),
            next_id: 0,
            listener: None,
            runtimes: Vec::new(),
            newcomers: BTreeMap::new(),
            coverage: Coverage::None,
            covered: Interest::All,
        };
        Self { state: Mutex::new(state), changed: Notify::new(), elections: Notify::new() }
    }
}

impl<N> fmt::Debug for HintHub<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HintHub")
    }
}

/// Ends one subscription.
struct Guard<L: Listen> {
    of: Arc<L>,
    name: Arc<str>,
    id: u64,
    runtime: Id,
}

impl<L: Listen> Drop for Guard<L> {
    fn drop(&mut self) {
        let hub = self.of.hub();
        let mut state = hub.state();
        let state = &mut *state;
        state.newcomers.remove(&self.id);
        if let Some(route) = state.routes.get_mut(&self.name)
            && route.sinks.remove(self.id)
        {
            state.routes.remove(&self.name);
            hub.elections.notify_one();
        }
        if let Some(at) = state.runtimes.iter().position(|(known, _)| known.id() == self.runtime)
            && let Some((_, subscribers)) = state.runtimes.get_mut(at)
        {
            *subscribers -= 1;
            if *subscribers == 0 {
                state.runtimes.swap_remove(at);
            }
        }
        if state.routes.is_empty() {
            hub.changed.notify_one();
        }
    }
}

/// Subscribes to an election for as long as the subscription lives. Outside of a runtime nothing is heard.
pub(crate) fn subscribe<L: Listen>(of: &Arc<L>, name: &str, sink: HintSink) -> Subscription {
    let Ok(runtime) = Handle::try_current() else {
        sink.send(Hint::Coverage(Coverage::None));
        return Subscription::none();
    };
    let hub = of.hub();
    let (name, id, starts) = {
        let mut state = hub.state();
        let id = state.number();
        let name = match state.routes.get_key_value(name) {
            Some((known, _)) => Arc::clone(known),
            None => {
                hub.elections.notify_one();
                Arc::from(name)
            }
        };
        state.routes.entry(Arc::clone(&name)).or_default().sinks.add(id, sink.clone());
        state.newcomers.insert(id, (Arc::clone(&name), sink));
        match state.runtimes.iter_mut().find(|(known, _)| known.id() == runtime.id()) {
            Some((_, subscribers)) => *subscribers += 1,
            None => state.runtimes.push((runtime.clone(), 1)),
        }
        let starts = state.listener.is_none();
        if starts {
            state.listener = Some(id);
        }
        (name, id, starts)
    };
    if starts {
        Listening::begin(of, id, &runtime);
    }
    hub.changed.notify_one();
    Subscription::new(Guard { of: Arc::clone(of), name, id, runtime: runtime.id() })
}

/// Held by the listener's task. Where that ends while somebody subscribes, as with its runtime, another one takes over on a runtime
/// of those who do.
struct Listening<L: Listen> {
    of: Arc<L>,
    number: u64,
    runtime: Id,
}

impl<L: Listen> Listening<L> {
    fn begin(of: &Arc<L>, number: u64, runtime: &Handle) {
        let listening = Self { of: Arc::clone(of), number, runtime: runtime.id() };
        runtime.spawn(listening.run()); // dropped at once where the runtime has ended
    }

    async fn run(self) {
        let hub = self.of.hub();
        let mut listen = std::pin::pin!(Arc::clone(&self.of).listen());
        loop {
            tokio::select! {
                () = &mut listen => return,
                () = hub.changed.notified() => {
                    if hub.ends() {
                        return;
                    }
                    hub.greet();
                }
            }
        }
    }
}

impl<L: Listen> Drop for Listening<L> {
    fn drop(&mut self) {
        let hub = self.of.hub();
        if hub.state().listener != Some(self.number) {
            return; // nobody subscribes, or another one listens
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
            Self::begin(&self.of, number, &runtime);
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

    /// The subscribers of every election, and whether hints of it are heard.
    fn sinks(&self) -> Vec<(HintSink, bool)> {
        let of_route = |(name, route): (&Arc<str>, &Route<N>)| {
            let covered = self.covered.covers(name);
            route.sinks.to_vec().into_iter().map(move |sink| (sink, covered))
        };
        self.routes.iter().flat_map(of_route).collect()
    }
}

impl<N: Default> HintHub<N> {
    /// The elections that somebody subscribes to.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    pub fn names(&self) -> Vec<Arc<str>> {
        self.state().routes.keys().cloned().collect()
    }

    /// What `look` finds in the notes on an election; `None` where nobody subscribes to it. `look` must not block.
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code))]
    pub fn note<T>(&self, name: &str, look: impl FnOnce(&mut N) -> T) -> Option<T> {
        self.state().routes.get_mut(name).map(|route| look(&mut route.note))
    }

    /// Whether it is so of the notes on any election.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub fn any(&self, is_so: impl Fn(&N) -> bool) -> bool {
        self.state().routes.values().any(|route| is_so(&route.note))
    }

    /// The elections that somebody subscribes to, for a listener that hears one or all; `None`: there are none.
    #[cfg_attr(not(feature = "nats"), allow(dead_code))]
    pub fn interest(&self) -> Option<Interest> {
        let state = self.state();
        let mut names = state.routes.keys();
        match (names.next(), names.next()) {
            (Some(only), None) => Some(Interest::One(Arc::clone(only))),
            (Some(_), Some(_)) => Some(Interest::All),
            (None, _) => None,
        }
    }

    /// Waits until the elections that somebody subscribes to have changed. For the listener alone. Cancel safe.
    #[cfg_attr(not(feature = "nats"), allow(dead_code))]
    pub async fn interest_changed(&self) {
        self.elections.notified().await;
    }

    /// How much is heard.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    pub fn coverage(&self) -> Coverage {
        self.state().coverage
    }

    /// Passes a hint on to those who subscribe to `name`.
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code))]
    pub fn send(&self, name: &str, hint: &Hint) {
        let sinks = self.state().routes.get(name).map(|route| route.sinks.to_vec());
        for sink in sinks.unwrap_or_default() {
            sink.send(hint.clone());
        }
    }

    /// Passes a hint on to all.
    #[cfg_attr(not(any(feature = "kubernetes", feature = "sqlite")), allow(dead_code))]
    pub fn send_all(&self, hint: &Hint) {
        let sinks = self.state().sinks();
        for (sink, _) in sinks {
            sink.send(hint.clone());
        }
    }

    /// Says how much is heard from now on, if that has changed. What was noted until now is forgotten. For the listener alone.
    pub fn announce(&self, coverage: Coverage) {
        self.announce_of(coverage, Interest::All);
    }

    /// The same for a listener that hears of some elections: of the others nothing is heard. Returns whether anything has changed.
    pub fn announce_of(&self, coverage: Coverage, covered: Interest) -> bool {
        let sinks = {
            let mut state = self.state();
            for route in state.routes.values_mut() {
                route.note = N::default();
            }
            let before = std::mem::replace(&mut state.coverage, coverage);
            let covered_before = std::mem::replace(&mut state.covered, covered);
            if before == coverage && (covered_before == state.covered || coverage == Coverage::None)
            {
                return false; // those who join are told when they are greeted
            }
            state.newcomers.clear(); // they are told with the others
            state.sinks()
        };
        for (sink, covered) in sinks {
            sink.send(Hint::Coverage(if covered { coverage } else { Coverage::None }));
        }
        true
    }

    /// Says to those who have joined how much is heard.
    fn greet(&self) {
        let (newcomers, coverage) = {
            let mut state = self.state();
            let mut newcomers = std::mem::take(&mut state.newcomers);
            newcomers.retain(|_, (name, _)| state.covered.covers(name));
            (newcomers, state.coverage)
        };
        if coverage > Coverage::None {
            for (_, sink) in newcomers.into_values() {
                sink.send(Hint::Coverage(coverage));
            }
        }
    }

    /// Whether nobody subscribes any more, which ends the listener.
    fn ends(&self) -> bool {
        let mut state = self.state();
        let ends = state.routes.is_empty();
        if ends {
            (state.listener, state.coverage) = (None, Coverage::None);
            state.newcomers.clear();
        }
        ends
    }
}

impl<N> HintHub<N> {
    fn state(&self) -> MutexGuard<'_, State<N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of one election with one subscriber.
#[cfg(all(test, feature = "nats"))]
pub(crate) const fn size_of_election<L: Listen>() -> usize {
    size_of::<(Arc<str>, Route<L::Note>)>() + size_of::<Guard<L>>()
}

#[cfg(test)]
mod tests;
