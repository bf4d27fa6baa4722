//! Subscribers of one election.

use crate::lock::{Hint, HintSink};

/// The subscribers of an election: most elections have one per process.
#[derive(Clone, Default)]
pub(super) enum Sinks {
    #[default]
    None,
    One(u64, HintSink),
    Many(Vec<(u64, HintSink)>),
}

impl Sinks {
    pub fn add(&mut self, id: u64, sink: HintSink) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(id, sink),
            Self::One(first_id, first) => Self::Many(vec![(first_id, first), (id, sink)]),
            Self::Many(mut all) => {
                all.push((id, sink));
                Self::Many(all)
            }
        };
    }

    /// Removes a subscriber, and returns whether none is left.
    pub fn remove(&mut self, id: u64) -> bool {
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

    /// Sends a hint to all. Call it on a clone, without the lock on the hub: a sink may do
    /// anything.
    pub fn send(&self, hint: &Hint) {
        match self {
            Self::None => {}
            Self::One(_, sink) => sink.send(hint.clone()),
            Self::Many(all) => all.iter().for_each(|(_, sink)| sink.send(hint.clone())),
        }
    }
}
