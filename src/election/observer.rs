//! The handle on a view of an election.

use std::sync::Arc;
use std::time::Duration;

use super::change::Change;
use super::hand_over::HandOverError;
use super::handle::Election;
use super::watch::StatusWatch;
use crate::lock::{CandidateInfo, LockError, Successor};
use crate::protocol::{Leader, LockFailure, State};
use crate::util::changes::Changes;

/// A view of an election without taking part in it. Dropping it ends the watch.
#[derive(Debug, Clone)]
#[must_use = "dropping the last handle ends the watch"]
pub struct Observer {
    election: Election,
}

impl Observer {
    pub(crate) fn new(election: Election) -> Self {
        Self { election }
    }

    /// As [`Election::leader`].
    pub fn leader(&self) -> Option<Leader> {
        self.election.leader()
    }

    /// As [`Election::fresh_leader`].
    pub fn fresh_leader(&self) -> Option<Leader> {
        self.election.fresh_leader()
    }

    /// As [`Election::leader_age`].
    pub fn leader_age(&self) -> Option<Duration> {
        self.election.leader_age()
    }

    /// [`State::Candidate`] once the lock has responded.
    pub fn state(&self) -> State {
        self.election.state()
    }

    /// What keeps requests to the lock from succeeding, while something does.
    pub fn lock_failure(&self) -> Option<LockFailure> {
        self.election.lock_failure()
    }

    /// As [`Election::watch`].
    pub fn watch(&self) -> StatusWatch {
        self.election.watch()
    }

    /// As [`Election::roll_call`]. An observer is not among the candidates.
    ///
    /// # Errors
    /// As there.
    pub async fn roll_call(&self, within: Duration) -> Result<Vec<CandidateInfo>, LockError> {
        self.election.roll_call(within).await
    }

    /// As [`Election::move_leader`].
    ///
    /// # Errors
    /// As there.
    pub async fn move_leader(&self, to: impl Into<Successor>) -> Result<Arc<str>, HandOverError> {
        self.election.move_leader(to).await
    }

    /// As [`Election::pause`].
    ///
    /// # Errors
    /// As there.
    pub async fn pause(&self, span: Duration) -> Result<Vec<CandidateInfo>, LockError> {
        self.election.pause(span).await
    }

    /// Every change from now on, oldest first.
    pub fn changes(&self) -> Changes<Change> {
        self.election.changes()
    }

    /// Ends the watch. It ends even if the returned future is dropped.
    pub async fn stop(&self) {
        self.election.stop().await;
    }
}
