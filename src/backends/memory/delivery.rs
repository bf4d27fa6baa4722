//! Who hears of what, and in which order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use crate::lock::{Hint, HintSink};

/// Where the hints of one subscription go.
pub(super) type Listener = HintSink;

/// The subscriptions of every election, and the hints on their way to them.
///
/// Hints wait here in the order of what they tell, and are delivered after the state was let go, by one thread at a
/// time. A listener whose subscription has ended is gone, and what waits for it with it.
#[derive(Debug, Default)]
pub(super) struct Hints {
    listeners: HashMap<Arc<str>, Vec<Weak<Listener>>>,
    waiting: VecDeque<(Weak<Listener>, Hint)>,
    /// Ends with the turn of whoever is delivering, a panic in a sink included.
    turn: Weak<()>,
}

/// The right to deliver, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping a turn ends it"]
pub(super) struct Turn(#[allow(dead_code, reason = "held for its Drop")] Arc<()>);

impl Hints {
    /// Adds a listener. The hints end when what is returned is dropped.
    pub(super) fn listen(&mut self, name: &str, sink: HintSink) -> Arc<Listener> {
        let listener = Arc::new(sink);
        self.listeners.entry(name.into()).or_default().push(Arc::downgrade(&listener));
        listener
    }

    /// Takes a listener away.
    pub(super) fn forget(&mut self, name: &str, listener: &Arc<Listener>) {
        if let Some(listeners) = self.listeners.get_mut(name) {
            listeners.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(listener)));
            if listeners.is_empty() {
                self.listeners.remove(name);
            }
        }
    }

    /// Has a hint wait for everybody who listens to an election.
    pub(super) fn tell(&mut self, name: &str, hint: &Hint) {
        let listeners = self.listeners.get(name).into_iter().flatten();
        self.waiting.extend(listeners.map(|listener| (listener.clone(), hint.clone())));
    }

    /// Has a hint wait for everybody.
    pub(super) fn tell_everybody(&mut self, hint: &Hint) {
        let listeners = self.listeners.values().flatten();
        self.waiting.extend(listeners.map(|listener| (listener.clone(), hint.clone())));
    }

    /// Has a hint wait for one listener.
    pub(super) fn tell_one(&mut self, listener: &Arc<Listener>, hint: Hint) {
        self.waiting.push_back((Arc::downgrade(listener), hint));
    }

    /// The right to deliver, unless nothing waits or somebody has it.
    pub(super) fn take_turn(&mut self) -> Option<Turn> {
        if self.waiting.is_empty() || self.turn.strong_count() > 0 {
            return None;
        }
        let turn = Arc::new(());
        self.turn = Arc::downgrade(&turn);
        Some(Turn(turn))
    }

    /// The next hint to deliver. None ends the turn, so that whoever comes next takes another.
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
