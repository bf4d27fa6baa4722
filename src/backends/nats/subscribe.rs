//! Who wants to hear about which election, and the door to it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bucket::Inner;
use super::codec;
use super::listener;
use crate::lock::{
    Concession, Coverage, Hint, HintSink, LockError, LockErrorKind, Revision, Subscription,
};

/// How long a hint may be under way when the same change was read already.
const HINT_DELAY: Duration = Duration::from_secs(2);

/// How long a concession may take to leave.
const CONCEDE_TIMEOUT: Duration = Duration::from_secs(1);

/// The elections of one bucket that somebody listens to in this process.
#[derive(Default)]
pub(super) struct Hub {
    state: Mutex<State>,
    /// That the elections have changed, or that hints do not come.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    routes: HashMap<Arc<str>, Route>,
    next_id: u64,
    /// The number of the listener that runs.
    listener: Option<u64>,
    /// The runtimes that somebody listens on, and how many do.
    runtimes: Vec<(Handle, usize)>,
    /// Who has not been told yet how much is heard: the listener tells everything, so that it is told in order.
    newcomers: BTreeMap<u64, (Arc<str>, HintSink)>,
    coverage: Coverage,
    /// What the subscription hears, so that who joins it need not wait.
    hears: Option<Wanted>,
    /// Whether writes were read that no hint has told.
    deaf: bool,
}

/// One election.
#[derive(Default)]
struct Route {
    sinks: Sinks,
    /// The last write that a hint told.
    heard: u64,
    /// A write that was read and that no hint had told then.
    unheard: Option<(u64, Instant)>,
}

/// Most elections have one listener a process.
#[derive(Default)]
enum Sinks {
    #[default]
    None,
    One(u64, HintSink),
    Many(Vec<(u64, HintSink)>),
}

impl Sinks {
    fn add(&mut self, id: u64, sink: HintSink) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(id, sink),
            Self::One(first_id, first) => Self::Many(vec![(first_id, first), (id, sink)]),
            Self::Many(mut all) => {
                all.push((id, sink));
                Self::Many(all)
            }
        };
    }

    /// Answers whether none is left.
    fn remove(&mut self, id: u64) -> bool {
        match self {
            Self::None => true,
            Self::One(only, _) if *only == id => {
                *self = Self::None;
                true
            }
            Self::One(..) => false,
            Self::Many(all) => {
                all.retain(|(other, _)| *other != id);
                all.is_empty()
            }
        }
    }

    /// To be called after the lock on them is given back: what a sink does is not ours.
    fn to_vec(&self) -> Vec<HintSink> {
        match self {
            Self::None => Vec::new(),
            Self::One(_, sink) => vec![sink.clone()],
            Self::Many(all) => all.iter().map(|(_, sink)| sink.clone()).collect(),
        }
    }
}

/// What the listener is to hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    One(Arc<str>),
    All,
}

impl Wanted {
    fn covers(&self, name: &str) -> bool {
        match self {
            Self::One(only) => **only == *name,
            Self::All => true,
        }
    }
}

/// Ends one subscription.
struct Guard {
    bucket: Arc<Inner>,
    name: Arc<str>,
    id: u64,
    runtime: Id,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let hub = &self.bucket.hub;
        let mut state = hub.state();
        let state = &mut *state;
        state.newcomers.remove(&self.id);
        if let Some(route) = state.routes.get_mut(&self.name)
            && route.sinks.remove(self.id)
        {
            state.routes.remove(&self.name);
        }
        if let Some(at) = state.runtimes.iter().position(|(known, _)| known.id() == self.runtime)
            && let Some((_, listeners)) = state.runtimes.get_mut(at)
        {
            *listeners -= 1;
            if *listeners == 0 {
                state.runtimes.swap_remove(at);
            }
        }
        if state.routes.is_empty() {
            hub.changed.notify_one();
        }
    }
}

/// Starts hints about an election.
pub(super) fn subscribe(bucket: &Arc<Inner>, name: &str, sink: HintSink) -> Subscription {
    let Ok(runtime) = Handle::try_current() else {
        sink.send(Hint::Coverage(Coverage::None));
        return Subscription::none();
    };
    let hub = &bucket.hub;
    let (name, id, starts) = {
        let mut state = hub.state();
        let state = &mut *state;
        let id = state.next_id;
        state.next_id = id.wrapping_add(1);
        let name = match state.routes.get_key_value(name) {
            Some((known, _)) => known.clone(),
            None => Arc::from(name),
        };
        state.routes.entry(name.clone()).or_default().sinks.add(id, sink.clone());
        state.newcomers.insert(id, (name.clone(), sink));
        match state.runtimes.iter_mut().find(|(known, _)| known.id() == runtime.id()) {
            Some((_, listeners)) => *listeners += 1,
            None => state.runtimes.push((runtime.clone(), 1)),
        }
        let starts = state.listener.is_none();
        if starts {
            state.listener = Some(id);
        }
        (name, id, starts)
    };
    if starts {
        Listening::begin(bucket, id, &runtime);
    }
    hub.changed.notify_one();
    Subscription::new(Guard { bucket: bucket.clone(), name, id, runtime: runtime.id() })
}

/// Held by the listener. Where its task ends before nobody listens any more, as with its runtime, another one takes over
/// on a runtime of those who do.
pub(super) struct Listening {
    pub(super) bucket: Arc<Inner>,
    number: u64,
    runtime: Id,
}

impl Listening {
    fn begin(bucket: &Arc<Inner>, number: u64, runtime: &Handle) {
        let listening = Self { bucket: bucket.clone(), number, runtime: runtime.id() };
        runtime.spawn(listener::listen(listening)); // dropped at once where the runtime has ended
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let hub = &self.bucket.hub;
        if hub.state().listener != Some(self.number) {
            return; // nobody listens, or another one does
        }
        hub.announce(Coverage::None, None);
        let next = {
            let mut state = hub.state();
            state.runtimes.retain(|(known, _)| known.id() != self.runtime);
            let number = state.next_id;
            state.next_id = number.wrapping_add(1);
            let next = state.runtimes.first().map(|(runtime, _)| (number, runtime.clone()));
            state.listener = next.as_ref().map(|(number, _)| *number);
            next
        };
        if let Some((number, runtime)) = next {
            Self::begin(&self.bucket, number, &runtime);
        }
    }
}

/// Tells candidates that a deposed holder has stopped.
pub(super) async fn concede(
    bucket: &Arc<Inner>,
    name: &str,
    concession: Concession,
) -> Result<(), LockError> {
    let facts = bucket.facts(CONCEDE_TIMEOUT).await.map_err(|e| e.into_lock_error())?;
    if !bucket.api.connection.is_connected() {
        return Err(LockError::new(LockErrorKind::Unavailable, "not connected to NATS"));
    }
    let subject = format!("{}{name}", listener::told_under(bucket, &facts));
    let headers = codec::concession_headers(&concession);
    let client = bucket.api.connection.client();
    let said = async {
        let published = client.publish_with_headers(subject, headers, Bytes::new()).await;
        published
            .map_err(|e| LockError::with_source(LockErrorKind::Unavailable, "cannot concede", e))?;
        let flushed = client.flush().await;
        flushed.map_err(|e| LockError::with_source(LockErrorKind::Unknown, "cannot concede", e))
    };
    tokio::time::timeout(CONCEDE_TIMEOUT, said).await.unwrap_or_else(|_| {
        let message = format!("concession in {name} did not leave in {CONCEDE_TIMEOUT:?}");
        Err(LockError::new(LockErrorKind::Unknown, message))
    })
}

impl Hub {
    /// What to hear; `None` where nobody listens any more, which ends the listener.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        let mut state = self.state();
        let mut names = state.routes.keys();
        match (names.next(), names.next()) {
            (Some(only), None) => Some(Wanted::One(only.clone())),
            (Some(_), Some(_)) => Some(Wanted::All),
            (None, _) => {
                state.listener = None;
                state.newcomers.clear();
                (state.coverage, state.hears) = (Coverage::None, None);
                None
            }
        }
    }

    /// Tells every election how much is heard of it from now on: nothing yet, if it joined after `hears` was subscribed to.
    pub(super) fn announce(&self, coverage: Coverage, hears: Option<&Wanted>) {
        let told: Vec<(HintSink, Coverage)> = {
            let mut state = self.state();
            if coverage == Coverage::None && state.coverage == Coverage::None && !state.deaf {
                return;
            }
            (state.coverage, state.hears, state.deaf) = (coverage, hears.cloned(), false);
            state.newcomers.clear(); // they are told with the others
            for route in state.routes.values_mut() {
                (route.heard, route.unheard) = (0, None);
            }
            let covered = |name: &str| hears.is_none_or(|hears| hears.covers(name));
            let routes = state.routes.iter();
            let sinks = |(name, route): (&Arc<str>, &Route)| {
                let coverage = if covered(name) { coverage } else { Coverage::None };
                route.sinks.to_vec().into_iter().map(move |sink| (sink, coverage))
            };
            routes.flat_map(sinks).collect()
        };
        for (sink, coverage) in told {
            sink.send(Hint::Coverage(coverage));
            // What happened before, nobody has told.
            if coverage > Coverage::None {
                sink.send(Hint::Look);
            }
        }
    }

    /// Tells those who have joined how much is heard.
    pub(super) fn greet(&self) {
        let (newcomers, coverage) = {
            let mut state = self.state();
            let mut newcomers = std::mem::take(&mut state.newcomers);
            let hears = state.hears.as_ref();
            newcomers.retain(|_, (name, _)| hears.is_some_and(|hears| hears.covers(name)));
            (newcomers, state.coverage)
        };
        for (_, sink) in newcomers.into_values() {
            sink.send(Hint::Coverage(coverage));
        }
    }

    /// Has everybody look, as something was not heard.
    pub(super) fn recheck(&self) {
        let sinks: Vec<HintSink> = {
            let state = self.state();
            state.routes.values().flat_map(|route| route.sinks.to_vec()).collect()
        };
        for sink in sinks {
            sink.send(Hint::Look);
        }
    }

    /// Whether writes go unheard.
    pub(super) fn is_deaf(&self) -> bool {
        self.state().deaf
    }

    pub(super) fn listens_to(&self, name: &str) -> bool {
        self.state().routes.contains_key(name)
    }

    /// Passes a hint on to those who listen to `name`.
    pub(super) fn tell(&self, name: &str, hint: Hint) {
        let sinks = {
            let mut state = self.state();
            let Some(route) = state.routes.get_mut(name) else { return };
            if let Hint::Stored { record, .. } = &hint {
                route.heard = route.heard.max(record.revision.0);
            }
            match &route.sinks {
                Sinks::One(_, sink) => {
                    let sink = sink.clone();
                    drop(state);
                    sink.send(hint);
                    return;
                }
                sinks => sinks.to_vec(),
            }
        };
        for sink in sinks {
            sink.send(hint.clone());
        }
    }

    /// Takes note of a write that was read. One that is still not told at a read much later shows that hints do not
    /// come: a subscription without the right to it is silent, as is one in an account that they do not reach.
    pub(super) fn was_read(&self, name: &str, revision: Revision) {
        let mut state = self.state();
        if state.coverage < Coverage::Full || state.deaf {
            return;
        }
        let Some(route) = state.routes.get_mut(name) else { return };
        let now = Instant::now();
        match route.unheard {
            _ if route.heard == 0 => route.heard = revision.0, // may be older than the subscription
            _ if revision.0 <= route.heard => route.unheard = None,
            Some((unheard, _)) if unheard <= route.heard => {
                route.unheard = Some((revision.0, now));
            }
            Some((_, since)) if now.saturating_duration_since(since) > HINT_DELAY => {
                state.deaf = true;
                self.changed.notify_one();
            }
            Some(_) => {}
            None => route.unheard = Some((revision.0, now)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It joined while the subscription to the first one was being made, and is in the next.
    #[test]
    fn an_election_that_is_not_heard_yet_is_not_told_that_it_is() {
        let hub = Hub::default();
        let told: Arc<Mutex<Vec<(&str, Hint)>>> = Arc::default();
        for name in ["first", "second"] {
            let told = Arc::clone(&told);
            let sink = HintSink::new(move |hint| told.lock().unwrap().push((name, hint)));
            let mut state = hub.state();
            state.routes.entry(Arc::from(name)).or_default().sinks.add(0, sink);
        }
        let told_of = |name| {
            let told = std::mem::take(&mut *told.lock().unwrap());
            let of = told.into_iter().filter(|(told, _)| *told == name);
            of.map(|(_, hint)| hint).collect::<Vec<_>>()
        };
        hub.announce(Coverage::Full, Some(&Wanted::One(Arc::from("first"))));
        assert_eq!(told_of("second"), [Hint::Coverage(Coverage::None)]);
        hub.announce(Coverage::Full, Some(&Wanted::All));
        assert_eq!(told_of("second"), [Hint::Coverage(Coverage::Full), Hint::Look]);
    }

    #[test]
    fn an_election_costs_little() {
        let entry = size_of::<(Arc<str>, Route)>() + size_of::<Guard>();
        assert!(entry <= 200, "{entry} bytes");
    }
}
