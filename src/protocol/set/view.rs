//! What a member of a set is configured with, sees and does.

use std::sync::Arc;
use std::time::Duration;

use super::plan::member_hash;
use crate::lock::{MemberLoad, Readiness};
use crate::protocol::types::Rank;
use crate::time::clock::Instant;

/// The longest time between two requests for a shard, and between two roll calls that fail.
pub(super) const MAX_RETRY: Duration = Duration::from_secs(600);

/// Configuration of a member.
#[derive(Debug, Clone)]
pub struct SetSettings {
    /// Distinguishes the member from the others.
    pub identity: Arc<str>,
    /// How many shards the set has.
    pub shards: u32,
    /// The number of shards that it excludes too.
    pub resizing: Option<u32>,
    /// Its part of the load, compared with the weights of others.
    pub weight: u32,
    /// The most shards that it may lead.
    pub max_load: Option<u32>,
    /// For how long no member has come or gone before shards move.
    pub settle: Duration,
    /// How many shards move at once.
    pub moves_at_once: u32,
    /// For how long a move may take: longer than the drain.
    pub move_within: Duration,
    /// The lease of the elections.
    pub lease: Duration,
    /// How ready the member is when it begins.
    pub readiness: Readiness,
    /// What all randomness is drawn from.
    pub seed: u64,
}

impl SetSettings {
    /// The load of a member that leads nothing.
    pub fn load(&self) -> MemberLoad {
        MemberLoad {
            max: self.max_load,
            resizing: self.resizing,
            ..MemberLoad::new(self.shards, self.weight)
        }
    }
}

/// Who holds the entry of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Holder {
    /// Nothing has been received from the lock yet.
    #[default]
    Unknown,
    /// It is vacant.
    Nobody,
    /// This member.
    Me,
    /// The member of this identity.
    Other(Arc<str>),
}

/// What a member is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetAction {
    /// From now on the candidate of this shard ranks so.
    Rank {
        /// The shard.
        shard: u32,
        /// Its rank.
        rank: Rank,
    },
    /// Call the roll of the set: pass the answers to [`on_roll`](super::SetMember::on_roll).
    CallRoll,
    /// Ask the leader of this shard to hand it over: pass its answer to
    /// [`on_outcome`](super::SetMember::on_outcome).
    Take {
        /// The shard.
        shard: u32,
        /// What to state of this member.
        load: MemberLoad,
    },
    /// Hand over this shard, as this member is not ready to lead: likewise.
    GiveAway {
        /// The shard.
        shard: u32,
        /// To the member of this identity.
        to: Arc<str>,
    },
}

/// What became of a request for a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOutcome {
    /// The leader hands over.
    Accepted,
    /// The leader continues to lead.
    Refused,
    /// No leader answered; or not the member that was to get the shard, as one that is ready.
    NoAnswer,
}

/// What is known of another member.
#[derive(Debug)]
pub(super) struct Member {
    pub hash: u64,
    /// How many shards it is seen to hold.
    pub load: u32,
    pub weight: u32,
    /// The most shards that it may lead.
    pub max: Option<u32>,
    pub readiness: Readiness,
    /// When it last answered a roll call.
    pub answered: Option<Instant>,
    /// It lost its last shard while a roll call is under way: its answer may be older.
    pub emptied: bool,
}

impl Member {
    /// One that is seen to hold a shard: nothing else is known of it.
    pub fn leading_one(identity: &Arc<str>) -> Self {
        Self { load: 1, ..Self::idle(identity) }
    }

    /// One that holds none.
    pub fn idle(identity: &Arc<str>) -> Self {
        let hash = member_hash(identity);
        let (readiness, answered) = (Readiness::Ready, None);
        Self { hash, load: 0, weight: 1, max: None, readiness, answered, emptied: false }
    }
}

/// A shard, as this member sees it.
#[derive(Debug)]
pub(super) struct ShardState {
    pub holder: Holder,
    /// The member that held it last.
    pub last: Option<Arc<str>>,
    pub rank: Rank,
    /// It is on its way to this member: until when, and from whom.
    pub incoming: Option<(Instant, Arc<str>)>,
    /// It is on its way to another member: until when, and to whom.
    pub outgoing: Option<(Instant, Arc<str>)>,
    /// When it may be asked for again, or given away.
    pub not_before: Instant,
    /// Requests in a row that moved nothing.
    pub failures: u32,
    /// It was given away, and nobody has led it since.
    pub gave: bool,
}

impl ShardState {
    pub fn new(now: Instant) -> Self {
        Self {
            holder: Holder::Unknown,
            last: None,
            rank: Rank::Never,
            incoming: None,
            outgoing: None,
            not_before: now,
            failures: 0,
            gave: false,
        }
    }

    /// Until when it is on its way, if it is.
    pub fn moves_until(&self) -> Option<Instant> {
        self.incoming.as_ref().or(self.outgoing.as_ref()).map(|(until, _)| *until)
    }

    /// A request moved nothing: the time until the next one doubles so often.
    pub fn retry_later(&mut self, now: Instant, lease: Duration, often: u32, random: f64) {
        let pause = lease.saturating_mul(1 << self.failures.min(often)).min(MAX_RETRY);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause.mul_f64(0.5 + random / 2.0);
    }
}
