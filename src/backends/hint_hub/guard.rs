//! Subscriptions of a hub, each for as long as its guard lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Handle, Id};

use super::{Listen, ListenerTask};
use crate::lock::{Coverage, Hint, HintSink, Subscription};

/// Ends one subscription.
struct Guard<L: Listen> {
    of: Arc<L>,
    name: Arc<str>,
    id: u64,
    runtime: Id,
    wants_all: AtomicBool,
}

impl<L: Listen> Guard<L> {
    fn want_all(&self, wanted: bool) {
        if self.wants_all.swap(wanted, Ordering::Relaxed) == wanted {
            return;
        }
        let hub = self.of.hub();
        let mut state = hub.state();
        if let Some(route) = state.routes.get_mut(&self.name) {
            let others = route.want_all - u32::from(!wanted);
            route.want_all = others + u32::from(wanted);
            if others == 0 && state.coverage == Coverage::Sampled {
                hub.elections.notify_one();
            }
        }
    }
}

impl<L: Listen> Drop for Guard<L> {
    fn drop(&mut self) {
        self.want_all(false);
        let hub = self.of.hub();
        let mut state = hub.state();
        let state = &mut *state;
        state.new_sinks.remove(&self.id);
        if let Some(route) = state.routes.get_mut(&self.name)
            && route.sinks.remove(self.id)
        {
            state.routes.remove(&self.name);
            self.of.forget(&self.name);
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

/// Subscribes to an election for as long as the subscription lives. Outside of a runtime the
/// coverage is `None`.
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
        state.new_sinks.insert(id, (Arc::clone(&name), sink));
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
        ListenerTask::spawn(of, id, &runtime);
    }
    hub.changed.notify_one();
    let (of, runtime, wants_all) = (Arc::clone(of), runtime.id(), AtomicBool::new(false));
    Subscription::sampled(Guard { of, name, id, runtime, wants_all }, Guard::want_all)
}

/// Returns the size in bytes of one election with one subscriber.
#[cfg(all(test, feature = "nats"))]
pub(crate) const fn size_of_election<L: Listen>() -> usize {
    size_of::<(Arc<str>, super::Route<L::Note>)>() + size_of::<Guard<L>>()
}
