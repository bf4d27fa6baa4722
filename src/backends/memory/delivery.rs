//! Delivery of hints to subscribers, in order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use crate::lock::{Hint, HintSink};

/// The recipient of one subscription's hints.
pub(super) type Listener = HintSink;

/// The subscriptions of every election, and the hints that wait for delivery.
///
/// Hints wait here in the order of their changes. One thread at a time delivers them, after the
/// state was unlocked. When a subscription ends, its listener and its waiting hints are dropped.
#[derive(Debug, Default)]
pub(super) struct Hints {
    listeners: HashMap<Arc<str>, Vec<Weak<Listener>>>,
    waiting: VecDeque<(Weak<Listener>, Hint)>,
    /// The turn of the delivering thread. It also ends with a panic in a sink.
    turn: Weak<()>,
}

/// The turn to deliver, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping a turn ends it"]
pub(super) struct Turn(#[allow(dead_code, reason = "held for its Drop")] Arc<()>);

impl Hints {
    /// Adds a listener. Its hints end when the returned value is dropped.
    pub(super) fn subscribe(&mut self, name: &str, sink: HintSink) -> Arc<Listener> {
        let listener = Arc::new(sink);
        self.listeners.entry(name.into()).or_default().push(Arc::downgrade(&listener));
        listener
    }

    /// Removes a listener.
    pub(super) fn unsubscribe(&mut self, name: &str, listener: &Arc<Listener>) {
        if let Some(listeners) = self.listeners.get_mut(name) {
            listeners.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(listener)));
            if listeners.is_empty() {
                self.listeners.remove(name);
            }
        }
    }

    /// Queues a hint for the subscribers of an election.
    pub(super) fn queue(&mut self, name: &str, hint: &Hint) {
        let listeners = self.listeners.get(name).into_iter().flatten();
        self.waiting.extend(listeners.map(|listener| (listener.clone(), hint.clone())));
    }

    /// Queues a hint for all subscribers.
    pub(super) fn queue_for_all(&mut self, hint: &Hint) {
        let listeners = self.listeners.values().flatten();
        self.waiting.extend(listeners.map(|listener| (listener.clone(), hint.clone())));
    }

    /// Queues a hint for one listener.
    pub(super) fn queue_for_one(&mut self, listener: &Arc<Listener>, hint: Hint) {
        self.waiting.push_back((Arc::downgrade(listener), hint));
    }

    /// Returns the turn to deliver, unless no hint waits or another thread has the turn.
    pub(super) fn take_turn(&mut self) -> Option<Turn> {
        if self.waiting.is_empty() || self.turn.strong_count() > 0 {
            return None;
        }
        let turn = Arc::new(());
        self.turn = Arc::downgrade(&turn);
        Some(Turn(turn))
    }

    /// Returns the next hint to deliver. `None` ends the turn, so that a later caller can take
    /// another.
    pub(super) fn next(&mut self, _turn: &Turn) -> Option<(Arc<Listener>, Hint)> {
        loop {
            let Some((listener, hint)) = self.waiting.pop_front() else {
                self.turn = Weak::new();
                return None;
            };
            if let Some(listener) = listener.upgrade() {
                return Some((listener, hint));
            }
        }
    }
}
