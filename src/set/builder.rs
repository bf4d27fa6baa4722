//! Describing a member of a set, and starting it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use thiserror::Error;

use super::calls::ShardCallbacks;
use super::change::ShardChange;
use super::driver::{self, SetParts};
use super::handle::{Set, changes_of};
use super::resizing::{lock_of_both, name_of};
use super::shared::SetShared;
use crate::builder::{ElectionBuilder, StartError, check_span, default_identity, new_election};
use crate::driver::health::HealthCheck;
use crate::driver::move_state::readiness;
use crate::driver::set_part::SharedLedger;
use crate::election::handle::Election;
use crate::election::leadership::Leadership;
use crate::election::loss::{DrainNotice, Loss};
use crate::lock::{Lock, MemberLoad};
use crate::protocol::Rank;
use crate::protocol::set::{LoadLedger, SetMember, SetSettings};
use crate::time::clock::{BootClock, Clock};
use crate::util::changes::Changes;

/// The most shards of a set.
const MAX_SHARDS: u32 = 100_000;
/// The greatest weight.
const MAX_WEIGHT: u32 = 1_000;
/// The longest settling time.
const MAX_SETTLE: Duration = Duration::from_secs(24 * 3600);

/// Refuses numbers of shards that a set cannot have. `resizing`: the number that it had before, or
/// gets.
#[doc(hidden)]
pub fn check_shards(shards: u32, resizing: Option<u32>) -> Result<(), SetError> {
    let allowed = 1..=MAX_SHARDS;
    if !allowed.contains(&shards) {
        return Err(SetError::Shards(shards));
    }
    let fits =
        |other: u32| allowed.contains(&other) && other > shards && other.is_multiple_of(shards);
    match resizing {
        Some(other) if !fits(other) => Err(SetError::Resizing { shards, other }),
        _ => Ok(()),
    }
}

/// Begins to describe a member of the set `name` on `lock`: many elections, evenly held.
///
/// Nothing happens before [`start`](SetBuilder::start): see [`SetBuilder`] for an example. The lock
/// must [carry roll calls](crate::lock::Messages::carries_calls).
pub fn new_set(name: impl Into<String>, lock: impl Lock) -> SetBuilder {
    SetBuilder {
        name: name.into(),
        lock: Arc::new(lock),
        shards: 0,
        resizing: None,
        max_load: None,
        identity: None,
        weight: 1,
        settle: None,
        moves_at_once: None,
        drain: Duration::ZERO,
        check: None,
        aside: false,
        clock: Arc::new(BootClock),
        each: None,
        callbacks: ShardCallbacks::default(),
    }
}

type Each = Arc<dyn Fn(u32, ElectionBuilder) -> ElectionBuilder + Send + Sync>;

/// Configuration of a member of a set.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent::{memory::MemoryLock, new_set};
///
/// let set = new_set("indexers", MemoryLock::new())
///     .shards(16)
///     .identity("c1.example.net")
///     .on_won(|shard, leadership| async move {
///         println!("leads shard {shard} with token {}", leadership.token());
///         leadership.ended().await; // the work on this shard, until the term ends
///     })
///     .start()?;
/// set.stop().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a set begins with start()"]
pub struct SetBuilder {
    name: String,
    lock: Arc<dyn Lock>,
    shards: u32,
    resizing: Option<u32>,
    max_load: Option<u32>,
    identity: Option<String>,
    weight: u32,
    settle: Option<Duration>,
    moves_at_once: Option<u32>,
    drain: Duration,
    check: Option<HealthCheck>,
    aside: bool,
    clock: Arc<dyn Clock>,
    each: Option<Each>,
    callbacks: ShardCallbacks,
}

/// Why a member of a set cannot start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetError {
    /// The number of shards was not set, or is too great.
    #[error("{0} shards: give 1 to 100000, the same number for each member of the set")]
    Shards(u32),
    /// The numbers of shards between which a set changes do not go together.
    #[error(
        "resizing between {shards} and {other} shards: give the lower number as the shards, and a multiple of it"
    )]
    Resizing {
        /// The number of shards.
        shards: u32,
        /// The other one.
        other: u32,
    },
    /// A weight that is zero or too great.
    #[error("a weight of {0}: give 1 to 1000")]
    Weight(u32),
    /// The lock holds a single election.
    #[error(
        "this lock keeps every election in one object: set none, so that each shard has its own"
    )]
    OneElection,
    /// The lock carries no messages between members.
    #[error(
        "this lock carries no messages, by which the members of a set know each other: use a lock on NATS, PostgreSQL (listening), a Kubernetes Lease or in memory"
    )]
    NoMessages,
    /// The election of a shard cannot start.
    #[error(transparent)]
    Election(#[from] StartError),
}

impl SetBuilder {
    /// How many shards the set has: 1 to 100,000, the same for each member. No default.
    pub fn shards(mut self, shards: u32) -> Self {
        self.shards = shards;
        self
    }

    /// While the number of shards changes between this set's and `other`, a multiple of it: has
    /// this member lead a shard only while no member with `other` shards leads any of its keys.
    ///
    /// To grow from 64 to 128, or to shrink from 128 to 64, replace every member by one with
    /// `.shards(64).resizing(128)`. Only when all are replaced, replace these by members with the
    /// new number. A key belongs to the shard that [`shard_of`](crate::shard_of) names.
    pub fn resizing(mut self, other: u32) -> Self {
        self.resizing = Some(other);
        self
    }

    /// Makes it an election with this many leaders: each holds one seat, numbered from 0. This is
    /// [`shards`](Self::shards), with at [most](Self::max_shards) one per member.
    pub fn seats(self, seats: u32) -> Self {
        self.shards(seats).max_shards(1)
    }

    /// The most shards that this member leads at once. Shards for which no member has room have no
    /// leader. Default: any number.
    pub fn max_shards(mut self, max: u32) -> Self {
        self.max_load = Some(max);
        self
    }

    /// What people read as the holder's name. It must be unique in the set: members know each other
    /// by it. Default: the host's name and a random number.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// How much this member leads, compared with the others: 1 to 1000. Default: 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// For how long no member has come or gone before shards move to members that lead less.
    /// Default: two leases; at most a day.
    ///
    /// Members that come and go all the time delay it four times at most. It holds nothing
    /// back that has no leader.
    pub fn settle(mut self, settle: Duration) -> Self {
        self.settle = Some(settle);
        self
    }

    /// How many shards of the set move at once, at least one. Default: a tenth of them.
    pub fn moves_at_once(mut self, moves: u32) -> Self {
        self.moves_at_once = Some(moves);
        self
    }

    /// How long the work on a shard may take to come to its end before the shard moves, or the
    /// member stops: see [`ElectionBuilder::drain`].
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Checks whether this member can do the work: one check for all shards. While it fails, the
    /// member hands over what it leads to members that are ready, and leads only what no other one
    /// does. Default: it always can.
    pub fn check(mut self, check: HealthCheck) -> Self {
        self.check = Some(check);
        self
    }

    /// Whether this member begins by standing aside: see [`Set::stand_aside`].
    pub fn stand_aside(mut self, aside: bool) -> Self {
        self.aside = aside;
        self
    }

    /// Another clock than [`BootClock`]: for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets further options of each shard's election, such as its lease: all but the callbacks, the
    /// identity, the clock and the drain, which the set sets. Give a check to the set: a shard
    /// whose own check fails does not move to another member.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let lock = incumbent::memory::MemoryLock::new();
    /// let set = incumbent::new_set("indexers", lock)
    ///     .shards(16)
    ///     .each(|_shard, election| election.lease(Duration::from_secs(10)));
    /// ```
    pub fn each<F>(mut self, each: F) -> Self
    where
        F: Fn(u32, ElectionBuilder) -> ElectionBuilder + Send + Sync + 'static,
    {
        self.each = Some(Arc::new(each));
        self
    }

    /// The work on a shard: see [`ElectionBuilder::on_won`].
    pub fn on_won<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(u32, Leadership) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let callback = move |shard, leadership| callback(shard, leadership).boxed();
        self.callbacks.won = Some(Arc::new(callback));
        self
    }

    /// Called at the end of each term, after its work has stopped: see
    /// [`ElectionBuilder::on_lost`].
    pub fn on_lost<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(u32, Loss) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.lost = Some(Arc::new(move |shard, loss| callback(shard, loss).boxed()));
        self
    }

    /// Called once when a term begins to drain: see [`ElectionBuilder::on_drain`].
    pub fn on_drain<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(u32, DrainNotice) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.drain = Some(Arc::new(move |shard, notice| callback(shard, notice).boxed()));
        self
    }

    /// Checks the configuration, and spawns the member on the current tokio runtime. Does no I/O:
    /// the lock may be unreachable.
    ///
    /// # Errors
    /// [`SetError`]. Nothing has been started then.
    pub fn start(self) -> Result<Set, SetError> {
        self.start_with_changes().map(|(set, _)| set)
    }

    /// Starts as [`start`](Self::start) does, and returns every change from the first on.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_changes(self) -> Result<(Set, Changes<ShardChange>), SetError> {
        check_shards(self.shards, self.resizing)?;
        if !(1..=MAX_WEIGHT).contains(&self.weight) {
            return Err(SetError::Weight(self.weight));
        }
        check_span("settling time", self.settle.unwrap_or_default(), MAX_SETTLE)?;
        if !self.lock.holds_many() {
            return Err(SetError::OneElection);
        }
        if !self.lock.carries_calls() {
            return Err(SetError::NoMessages);
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let seed = getrandom::u64().map_err(|_| StartError::NoRandomness)?;
        let identity: Arc<str> = match self.identity {
            Some(identity) => identity.into(),
            None => format!("{}-{:08x}", default_identity(&self.lock), seed >> 32).into(),
        };
        let health = self.check.as_ref().map(HealthCheck::unchecked);
        let readiness = readiness(health.as_ref(), self.aside);
        let moves_at_once = self.moves_at_once.unwrap_or(self.shards / 10).max(1);
        let load = MemberLoad {
            max: self.max_load,
            resizing: self.resizing,
            ..MemberLoad::new(self.shards, self.weight)
        };
        let share = SharedLedger::new(LoadLedger::new(load, moves_at_once));
        let (shared, inputs) =
            SetShared::new(self.name.into(), Arc::clone(&identity), self.max_load, readiness);
        let changes = changes_of(&shared);
        let mut timing = None;
        let mut start = |shard| {
            let lock = match self.resizing {
                None => Arc::clone(&self.lock),
                Some(other) => lock_of_both(&self.lock, &shared.name, shard, (self.shards, other)),
            };
            let election = new_election(name_of(&shared.name, shard), lock);
            let election = match &self.each {
                Some(each) => each(shard, election),
                None => election,
            };
            let election = election
                .identity(&*identity)
                .shared_clock(Arc::clone(&self.clock))
                .drain(self.drain)
                .shard(share.clone(), readiness, Rank::Never);
            timing = Some(election.lease_of_lock()?);
            self.callbacks.install(election, shard, &shared).start()
        };
        let elections: Result<Arc<[Election]>, StartError> =
            (0..self.shards).map(&mut start).collect();
        let elections = elections?;
        let lease = timing.unwrap_or(Duration::from_secs(5));
        let settle = self.settle.unwrap_or(lease.saturating_mul(2));
        let settings = SetSettings {
            identity,
            shards: self.shards,
            resizing: self.resizing,
            weight: self.weight,
            max_load: self.max_load,
            settle,
            moves_at_once,
            move_within: self.drain + lease.saturating_mul(3),
            lease,
            readiness,
            seed,
        };
        let set = Set::new(Arc::clone(&shared), Arc::clone(&elections));
        let member = SetMember::new(settings, self.clock.now());
        let (clock, check, aside) = (self.clock, self.check, self.aside);
        let parts = SetParts { member, elections, shared, share, clock, check, aside };
        driver::spawn(&runtime, parts, inputs);
        Ok((set, changes))
    }
}

partial_debug!(
    SetBuilder, self, name: self.name, shards: self.shards, lock: self.lock,
    identity: self.identity
);
