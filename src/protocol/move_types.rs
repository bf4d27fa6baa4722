//! What is decided upon in moves, and what is to be done.

use std::sync::Arc;
use std::time::Duration;

use super::types::Leader;
use crate::lock::{CandidateRequest, Nonce, Successor, TakeRequest, Token};
use crate::time::clock::Instant;

/// What does not change while a candidate runs.
#[derive(Debug, Clone, Copy)]
pub struct MoveSettings {
    /// The candidate.
    pub nonce: Nonce,
    /// Its priority.
    pub priority: u8,
    /// Its lease: no term that lasted shorter is moved voluntarily.
    pub lease: Duration,
    /// For how long it is ready before it asks a leader of lower priority to hand over; `None`: it
    /// never asks.
    pub prefer_after: Option<Duration>,
    /// Whether the election is a shard of a set, whose members decide when it moves.
    pub in_set: bool,
}

/// What a candidate is in the election as it decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveRole {
    /// It leads since this instant.
    Leads(Instant),
    /// It stands by, and sees this leader.
    StandsBy(Option<SeenLeader>),
}

/// The leader that a standby sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenLeader {
    /// Its term; `None` where it is of another program.
    pub token: Option<Token>,
    /// Its priority, as its entry states it.
    pub priority: Option<u8>,
}

impl MoveRole {
    /// A standby, which sees this leader.
    pub fn standby(leader: Option<&Leader>) -> Self {
        let leader = leader.filter(|leader| !leader.is_me);
        Self::StandsBy(
            leader.map(|leader| SeenLeader { token: leader.token, priority: leader.priority }),
        )
    }
}

/// A roll call to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveCall {
    /// Asks who is ready: pass the answers to [`Moves::on_roll`](super::Moves::on_roll).
    Ready,
    /// Asks the leader to hand over: pass its answer to
    /// [`Moves::on_answer`](super::Moves::on_answer).
    Leader(CandidateRequest),
}

/// The candidate that a leader hands over to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Distinguishes it from every other.
    pub nonce: Nonce,
    /// What people read.
    pub identity: Arc<str>,
}

/// Why the leadership is to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// An operator, or the leader's own program.
    Requested(Successor),
    /// The leader is not ready.
    Standing,
    /// A candidate of higher priority.
    Preferred,
    /// A member of the set that leads less.
    Taken(TakeRequest),
}

impl Reason {
    /// Whether it was not ordered.
    pub(super) fn is_voluntary(&self) -> bool {
        !matches!(self, Self::Requested(_))
    }
}
