//! What a driver keeps of the moves of its candidate.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::health::HealthCheck;
use super::set_part::SharedLedger;
use crate::election::inbox::HandOverReply;
use crate::lock::{CandidateInfo, LockError, Readiness, RollCall};
use crate::protocol::{Health, Moves, Rank};

/// Where the outcome of a handover goes.
pub(super) enum ReplyTo {
    /// To this process.
    Caller(HandOverReply),
    /// To the caller on this lock.
    Call(usize, RollCall),
    /// Nowhere: the candidate moves by itself.
    None,
    /// To this candidate: it is the answer of the leader that it asked.
    Asking,
}

/// The answers to a call to the candidates that is under way.
type Answers = BoxFuture<'static, Result<Vec<CandidateInfo>, LockError>>;

/// The moves of this candidate, its health, and its call.
pub(super) struct DriverMoves {
    pub machine: Moves,
    pub health: Option<Health>,
    pub aside: bool,
    /// How ready the member of a set is that it belongs to.
    pub of_member: Readiness,
    /// Why the checkpoint of the election could not be claimed, since it last was.
    pub unclaimed: Option<Arc<str>>,
    pub call: Option<(Answers, ReplyTo)>,
}

/// What the builder sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct MoveOptions {
    pub prefer_after: Option<Duration>,
    pub aside: bool,
    pub check: Option<HealthCheck>,
    /// Of the set that the election is a shard of.
    pub share: Option<SharedLedger>,
    /// How ready the member of that set is.
    pub of_member: Readiness,
    pub rank: Rank,
}

impl MoveOptions {
    /// How ready a candidate is when it begins.
    pub fn readiness(&self) -> Readiness {
        readiness(self.health().as_ref(), self.aside).max(self.of_member)
    }

    pub(super) fn health(&self) -> Option<Health> {
        self.check.as_ref().map(HealthCheck::unchecked)
    }

    pub(super) fn is_default(&self) -> bool {
        self.prefer_after.is_none() && self.check.is_none() && self.readiness() == Readiness::Ready
    }
}

/// How ready to lead something of this health is.
pub(crate) fn readiness(health: Option<&Health>, aside: bool) -> Readiness {
    match health {
        Some(health) if !health.is_healthy() => Readiness::Unhealthy,
        _ if aside => Readiness::Cordoned,
        _ => Readiness::Ready,
    }
}
