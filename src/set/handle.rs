//! The handle on a member of a set.

use std::sync::Arc;
use std::time::Duration;

use super::change::ShardChange;
use super::shared::{SetInput, SetShared};
use crate::election::handle::Election;
use crate::lock::{CandidateInfo, LockError, Readiness, Token};
use crate::protocol::Leader;
use crate::time::clock::Instant;
use crate::util::changes::Changes;

/// A handle on a member of a set, which runs by itself. Cheap to clone.
///
/// When the last clone is dropped, the member stops as by [`stop`](Self::stop), without anybody
/// waiting for it.
#[derive(Clone)]
#[must_use = "dropping the last handle stops the member"]
pub struct Set {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<SetShared>,
    elections: Arc<[Election]>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.send(SetInput::Stop);
    }
}

/// A shard that a member leads at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedShard {
    /// The shard.
    pub shard: u32,
    /// The term's fencing token.
    pub token: Token,
    /// When the right to lead ends, unless it is renewed before.
    pub deadline: Instant,
}

/// Who leads a shard, as this member sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStatus {
    /// The shard.
    pub shard: u32,
    /// Its leader; `None` while there is none, or nothing is known.
    pub leader: Option<Leader>,
    /// The fencing token, if this member leads it at this moment.
    pub token: Option<Token>,
}

impl Set {
    pub(super) fn new(shared: Arc<SetShared>, elections: Arc<[Election]>) -> Self {
        Self { handle: Arc::new(Handle { shared, elections }) }
    }

    fn shared(&self) -> &SetShared {
        &self.handle.shared
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// The identity of this member.
    pub fn identity(&self) -> &str {
        &self.shared().identity
    }

    /// The shards that this member leads at this moment, with their tokens: a comparison of the
    /// clock with each deadline.
    pub fn shards(&self) -> Vec<LedShard> {
        let elections = (0..).zip(&*self.handle.elections);
        let led = |(shard, election): (u32, &Election)| {
            let (token, deadline) = election.token().zip(election.deadline())?;
            Some(LedShard { shard, token, deadline })
        };
        elections.filter_map(led).collect()
    }

    /// Who leads each shard, as this member sees it.
    pub fn status(&self) -> Vec<ShardStatus> {
        let elections = (0..).zip(&*self.handle.elections);
        let status = |(shard, election): (u32, &Election)| ShardStatus {
            shard,
            leader: election.leader(),
            token: election.token(),
        };
        elections.map(status).collect()
    }

    /// The election of a shard, for its status, its [`step`](Election::step)s and its changes;
    /// `None` if the set has fewer shards.
    pub fn election(&self, shard: u32) -> Option<&Election> {
        self.handle.elections.get(usize::try_from(shard).ok()?)
    }

    /// Every change of what this member leads, from now on, oldest first. What came before this
    /// call is not among them: see
    /// [`SetBuilder::start_with_changes`](crate::SetBuilder::start_with_changes).
    pub fn changes(&self) -> Changes<ShardChange> {
        changes_of(self.shared())
    }

    /// Calls the roll of the set: who its members are, and how much each
    /// [leads](CandidateInfo::load). See [`Election::roll_call`].
    ///
    /// # Errors
    /// As [`Election::roll_call`].
    pub async fn roll_call(&self, within: Duration) -> Result<Vec<CandidateInfo>, LockError> {
        match self.election(0) {
            Some(election) => election.roll_call(within).await,
            None => Ok(Vec::new()),
        }
    }

    /// Has this member stand aside, or take part as usual again. One that stands aside hands over
    /// what it leads, as many shards at once as the set moves, and leads only what no other member
    /// does. Returns at once.
    pub fn stand_aside(&self, aside: bool) {
        self.shared().send(SetInput::StandAside(aside));
    }

    /// How ready this member is to lead.
    pub fn readiness(&self) -> Readiness {
        *self.shared().readiness.borrow()
    }

    /// Stops the member: the work of each shard drains where that is set, and stops, the losses are
    /// reported, the entries are released, then this returns. See [`Election::stop`].
    pub async fn stop(&self) {
        self.shared().send(SetInput::Stop);
        let mut finished = self.shared().finished.subscribe();
        let _ = finished.wait_for(|finished| *finished).await; // an error: the task is gone
    }
}

partial_debug!(
    Set, self, name: self.name(), identity: self.identity(), shards: self.shards().len()
);

pub(super) fn changes_of(shared: &SetShared) -> Changes<ShardChange> {
    Changes::of(Some(shared.subscribe()), ShardChange::Missed)
}
