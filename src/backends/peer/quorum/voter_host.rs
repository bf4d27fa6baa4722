//! A voter in its member's task: pending requests, and subscribers to hints.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::proposal::{Outcome, QuorumError};
use super::voter::Voter;
use crate::lock::{Coverage, Hint, HintSink};

type Answer = oneshot::Sender<Result<Outcome, QuorumError>>;

pub(in crate::backends::peer) struct VoterHost {
    pub voter: Voter,
    tickets: u64,
    waiting: BTreeMap<u64, Answer>,
    listeners: BTreeMap<u64, (Arc<str>, HintSink)>,
}

impl VoterHost {
    pub fn new(voter: Voter) -> Self {
        Self { voter, tickets: 0, waiting: BTreeMap::new(), listeners: BTreeMap::new() }
    }

    pub fn register(&mut self, answer: Answer) -> u64 {
        self.tickets += 1;
        self.waiting.insert(self.tickets, answer);
        self.tickets
    }

    pub fn answer(&mut self, ticket: u64, answer: Result<Outcome, QuorumError>) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            let _ = waiting.send(answer); // an error means that the request was dropped
        }
    }

    pub fn subscribe(&mut self, id: u64, name: Arc<str>, sink: HintSink) {
        sink.send(Hint::Coverage(Coverage::Full));
        self.listeners.insert(id, (name, sink));
    }

    pub fn unsubscribe(&mut self, id: u64) {
        self.listeners.remove(&id);
    }

    pub fn hint(&self, name: &str, hint: &Hint) {
        for (of, sink) in self.listeners.values() {
            if **of == *name {
                sink.send(hint.clone());
            }
        }
    }
}

impl Drop for VoterHost {
    fn drop(&mut self) {
        for (_, sink) in self.listeners.values() {
            sink.send(Hint::Coverage(Coverage::None));
        }
    }
}
