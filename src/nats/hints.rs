//! Who wants to hear about which election, and the door to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::bucket::Inner;
use super::{listen, wire};
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
    listener: Option<JoinHandle<()>>,
    coverage: Coverage,
    /// Whether the subscription hears every key, so that a new election need not wait.
    hears_all: bool,
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

/// Ends one subscription.
struct Guard {
    bucket: Arc<Inner>,
    name: Arc<str>,
    id: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let hub = &self.bucket.hub;
        let mut state = hub.state();
        let state = &mut *state;
        if let Some(route) = state.routes.get_mut(&self.name)
            && route.sinks.remove(self.id)
        {
            state.routes.remove(&self.name);
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
    let (name, id, coverage) = {
        let mut state = hub.state();
        let state = &mut *state;
        let id = state.next_id;
        state.next_id = id.wrapping_add(1);
        let name = match state.routes.get_key_value(name) {
            Some((known, _)) => known.clone(),
            None => Arc::from(name),
        };
        let route = state.routes.entry(name.clone()).or_default();
        route.sinks.add(id, sink.clone());
        // A listener whose runtime has ended is finished, too.
        let running = state.listener.as_ref().is_some_and(|listener| !listener.is_finished());
        if !running {
            (state.coverage, state.hears_all) = (Coverage::None, false);
            state.listener = Some(runtime.spawn(listen::listen(bucket.clone())));
        }
        let coverage = if state.hears_all { state.coverage } else { Coverage::None };
        (name, id, coverage)
    };
    if coverage > Coverage::None {
        sink.send(Hint::Coverage(coverage));
    } else {
        hub.changed.notify_one();
    }
    Subscription::new(Guard { bucket: bucket.clone(), name, id })
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
    let subject = format!("{}{name}", listen::told_under(bucket, &facts));
    let headers = wire::concession_headers(&concession);
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
                (state.coverage, state.hears_all) = (Coverage::None, false);
                None
            }
        }
    }

    /// Tells every election how much is heard from now on.
    pub(super) fn announce(&self, coverage: Coverage, hears_all: bool) {
        let sinks: Vec<HintSink> = {
            let mut state = self.state();
            if coverage == Coverage::None && state.coverage == Coverage::None && !state.deaf {
                return;
            }
            (state.coverage, state.hears_all, state.deaf) = (coverage, hears_all, false);
            for route in state.routes.values_mut() {
                (route.heard, route.unheard) = (0, None);
            }
            state.routes.values().flat_map(|route| route.sinks.to_vec()).collect()
        };
        for sink in sinks {
            sink.send(Hint::Coverage(coverage));
            // What happened before, nobody has told.
            if coverage > Coverage::None {
                sink.send(Hint::Look);
            }
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

    #[test]
    fn an_election_costs_little() {
        let entry = size_of::<(Arc<str>, Route)>() + size_of::<Guard>();
        assert!(entry <= 200, "{entry} bytes");
    }
}
