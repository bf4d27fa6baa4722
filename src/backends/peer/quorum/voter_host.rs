//! A voter in its member's task, and the pending requests of locks.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::proposal::{Outcome, QuorumError};
use super::voter::Voter;

type Answer = oneshot::Sender<Result<Outcome, QuorumError>>;

pub(in crate::backends::peer) struct VoterHost {
    pub voter: Voter,
    tickets: u64,
    waiting: BTreeMap<u64, Answer>,
}

impl VoterHost {
    pub fn new(voter: Voter) -> Self {
        Self { voter, tickets: 0, waiting: BTreeMap::new() }
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
}
