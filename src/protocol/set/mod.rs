//! The part of one member in a set: which shards it is to lead, and which it takes from others.
//!
//! Nobody coordinates. Each member sees who leads which shard, as a standby of all of them, so it
//! knows what the others lead. It decides two things: in which order it and the others acquire a
//! vacant shard ([`Rank`](super::Rank)), and which shard it asks of a member that leads more than
//! it does. Who leads a shard is decided by the shard's own election alone.

mod load_ledger;
mod moving;
mod plan;
mod ranks;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use self::load_ledger::LoadLedger;
pub(crate) use self::plan::member_hash;
pub use self::view::{Holder, SetAction, SetSettings, TakeOutcome};
use self::view::{MAX_RETRY, Member, ShardState};
use crate::lock::{CandidateInfo, MemberLoad, Readiness};
use crate::time::clock::Instant;

/// A fleet of any size sends about this many answers to roll calls per second, at most.
const ANSWERS_PER_SECOND: f64 = 50.0;
/// A member that leads nothing is believed to be there for this many roll calls.
const BELIEVED: u32 = 3;
/// Members of a large fleet that call the roll for shards that wait do so at most this many leases
/// apart.
const MAX_URGENT_LEASES: u32 = 4;
/// A set in which members come and go all the time settles after this many settling times.
const MAX_UNSETTLED: u32 = 4;
/// How long after it has heard from the lock a member calls the roll first: others that begin with
/// it are to be heard, too.
const FIRST_CALL: Duration = Duration::from_millis(50);
/// So often the time until the next request for a shard doubles: after refusals, as what they
/// depend on changes within a few leases; and where no leader answers.
const REFUSED: u32 = 2;
const UNANSWERED: u32 = 8;

/// The part of one member in a set. Pure, like an [`Elector`](super::Elector).
#[derive(Debug)]
pub struct SetMember {
    settings: SetSettings,
    hash: u64,
    shards: Vec<ShardState>,
    /// The other members, by identity.
    members: BTreeMap<Arc<str>, Member>,
    load: u32,
    readiness: Readiness,
    /// The ranks are to be decided anew.
    stale: bool,
    /// Since when no member has come or gone, and since when that has been unsettled.
    settling: Instant,
    unsettled: Instant,
    /// When a shard last came to another member.
    moved: Instant,
    called: Option<Instant>,
    /// When to call the roll next for want of anything else.
    call_at: Instant,
    calling: bool,
    call_failures: u32,
    /// Members have answered a roll call, or cannot: until then it acquires nothing.
    begun: bool,
    /// The number of shards of a member that this one does not exclude, and for how many roll calls
    /// more that member is believed to be there: it acquires nothing beside it.
    others_shards: Option<(u32, u32)>,
    random: fastrand::Rng,
    actions: VecDeque<SetAction>,
}

impl SetMember {
    /// A member that begins at `now`.
    pub fn new(settings: SetSettings, now: Instant) -> Self {
        let random = fastrand::Rng::with_seed(settings.seed);
        Self {
            hash: member_hash(&settings.identity),
            shards: (0..settings.shards).map(|_| ShardState::new(now)).collect(),
            members: BTreeMap::new(),
            load: 0,
            readiness: settings.readiness,
            stale: true,
            settling: now,
            unsettled: now,
            moved: now,
            called: None,
            call_at: now + settings.lease, // unless the lock is heard from before
            calling: false,
            call_failures: 0,
            begun: false,
            others_shards: None,
            random,
            actions: VecDeque::new(),
            settings,
        }
    }

    /// The next thing to do; `None` when all is done for now.
    pub fn poll_action(&mut self) -> Option<SetAction> {
        self.actions.pop_front()
    }

    /// How many members are known, this one among them.
    pub fn known_members(&self) -> usize {
        self.members.len() + 1
    }

    /// The number of shards of another member that this one does not exclude.
    pub fn others_shards(&self) -> Option<u32> {
        self.others_shards.map(|(shards, _)| shards)
    }

    /// The holder of a shard's entry has changed.
    pub fn set_holder(&mut self, now: Instant, shard: u32, holder: Holder) {
        let Some(state) = self.shards.get_mut(shard as usize) else { return };
        if state.holder == holder {
            return;
        }
        let before = std::mem::replace(&mut state.holder, holder.clone());
        if before == Holder::Unknown && !self.begun && !self.calling {
            self.call_at = self.call_at.min(now + FIRST_CALL);
        }
        self.stale = true;
        state.gave |= state.outgoing.is_some() && before == Holder::Me;
        match &before {
            Holder::Me => self.load = self.load.saturating_sub(1),
            Holder::Other(other) => {
                if let Some(member) = self.members.get_mut(other) {
                    member.load = member.load.saturating_sub(1);
                    if member.load == 0 {
                        // It may be gone: a roll call shows it.
                        (member.answered, member.emptied) = (None, self.calling);
                        self.call_soon(now);
                    }
                }
            }
            Holder::Unknown | Holder::Nobody => {}
        }
        let Some(state) = self.shards.get_mut(shard as usize) else { return };
        match holder {
            Holder::Me => {
                self.load += 1;
                (state.incoming, state.last) = (None, Some(Arc::clone(&self.settings.identity)));
                if std::mem::take(&mut state.gave) {
                    // The other member did not lead it, as one that leads enough.
                    let (lease, random) = (self.settings.lease, self.random.f64());
                    state.retry_later(now, lease, UNANSWERED, random);
                } else {
                    state.failures = 0;
                    self.moved = now;
                }
            }
            Holder::Other(other) => {
                state.incoming = state.incoming.take().filter(|(_, from)| *from == other);
                if state.last.as_ref() != Some(&other) {
                    (state.failures, state.gave) = (0, false);
                    self.moved = now;
                }
                state.last = Some(Arc::clone(&other));
                if let Some(member) = self.members.get_mut(&other) {
                    member.load += 1;
                } else if other != self.settings.identity {
                    // else of an earlier process of this member, which is no other member
                    let max = self.settings.max_load; // until it answers
                    let member = Member { max, ..Member::leading_one(&other) };
                    self.members.insert(other, member);
                    self.unsettle(now);
                    self.call_soon(now);
                }
            }
            Holder::Unknown | Holder::Nobody => {}
        }
    }

    /// How ready this member is to lead.
    pub fn set_readiness(&mut self, now: Instant, readiness: Readiness) {
        if readiness != self.readiness {
            self.readiness = readiness;
            self.unsettle(now);
            self.stale = true;
            // Who could take what it leads. Others may have changed with it.
            let spread = self.rolls_take().mul_f64(0.1).min(self.settings.lease);
            self.call_at = self.call_at.min(now + spread.mul_f64(self.random.f64()));
        }
    }

    /// The answers to [`SetAction::CallRoll`]; `None`: the call failed, as it has without any
    /// answer: this member hears its own calls, too.
    pub fn on_roll(&mut self, now: Instant, answers: Option<&[CandidateInfo]>) {
        (self.calling, self.stale) = (false, true);
        let Some(answers) = answers.filter(|answers| !answers.is_empty()) else {
            self.call_failures = self.call_failures.saturating_add(1);
            // Who leads a shard may have another number of them. But a set whose messages are lost
            // is to be led, too.
            let is_led = |state: &ShardState| !matches!(state.holder, Holder::Nobody | Holder::Me);
            self.begun |= self.call_failures >= BELIEVED || !self.shards.iter().any(is_led);
            let doublings = if self.begun { self.call_failures.min(7) } else { 0 };
            let pause = self.settings.lease.saturating_mul(1 << doublings);
            self.call_at = self.call_at.min(now + pause.min(MAX_RETRY));
            return;
        };
        (self.begun, self.call_failures) = (true, 0);
        self.called = Some(now);
        let not_seen = self.others_shards.map(|(shards, rolls)| (shards, rolls.saturating_sub(1)));
        self.others_shards = not_seen.filter(|(_, rolls)| *rolls > 0);
        let mut others = false;
        for info in answers {
            let Some(load) = info.load.filter(|_| info.identity != self.settings.identity) else {
                continue;
            };
            if !load.excludes(&self.settings.load()) {
                self.others_shards = Some((load.shards, BELIEVED));
            }
            others |= !self.members.contains_key(&info.identity);
            let member = self.members.entry(Arc::clone(&info.identity));
            let member = member.or_insert_with(|| Member::idle(&info.identity));
            (member.weight, member.max) = (load.weight.max(1), load.max);
            member.readiness = info.readiness;
            member.answered = Some(now).filter(|_| !member.emptied);
        }
        let believed = self.spacing().saturating_mul(BELIEVED);
        self.members.retain(|_, member| {
            let answered = member.answered.is_some_and(|at| now < at + believed);
            // The next call, which is soon, shows whether it is there.
            member.emptied || member.load > 0 || answered
        });
        if others {
            self.unsettle(now);
        }
        let lease = self.settings.lease;
        let pause = match self.readiness {
            Readiness::Ready if self.others_shards.is_none() => self.spacing(),
            // Shards wait for it: what it leads is to move, or it is to acquire again.
            _ => self.rolls_take().clamp(lease, lease.saturating_mul(MAX_URGENT_LEASES)),
        };
        self.call_at = self.call_at.min(now + pause.mul_f64(0.75 + self.random.f64() / 2.0));
    }

    /// What became of [`SetAction::Take`] or [`SetAction::GiveAway`].
    pub fn on_outcome(&mut self, now: Instant, shard: u32, outcome: TakeOutcome) {
        let random = self.random.f64();
        let lease = self.settings.lease;
        let Some(state) = self.shards.get_mut(shard as usize) else { return };
        if state.incoming.is_none() && state.outgoing.is_none() {
            return; // its time is over, or another one leads it by now
        }
        let longest = match outcome {
            TakeOutcome::Accepted => return, // until another one holds it, or its time is over
            TakeOutcome::NoAnswer if state.outgoing.is_none() => UNANSWERED,
            TakeOutcome::Refused | TakeOutcome::NoAnswer => REFUSED,
        };
        let given_to = state.outgoing.take().map(|(_, to)| to);
        (state.incoming, self.stale) = (None, true);
        state.retry_later(now, lease, longest, random);
        if outcome == TakeOutcome::NoAnswer
            && let Some(member) = given_to.and_then(|to| self.members.get_mut(&to))
        {
            member.answered = None; // others are tried, until it answers again
        }
    }

    /// Decides what is due at `now`.
    pub fn advance(&mut self, now: Instant) {
        for state in &mut self.shards {
            state.outgoing.take_if(|_| state.holder != Holder::Me);
            if state.moves_until().is_some_and(|until| now >= until) {
                (state.incoming, state.outgoing, self.stale) = (None, None, true);
                state.retry_later(now, self.settings.lease, UNANSWERED, self.random.f64());
            }
        }
        if !self.calling && (now >= self.call_at || self.wants_fresh_roll(now)) {
            // What happens during the call may need another one.
            (self.calling, self.call_at) = (true, now + Duration::MAX);
            self.members.values_mut().for_each(|member| member.emptied = false);
            self.actions.push_back(SetAction::CallRoll);
        }
        match self.readiness {
            Readiness::Ready => self.take(now),
            Readiness::Cordoned | Readiness::Unhealthy => self.give_away(now),
        }
        self.update_ranks();
    }

    /// When to call [`advance`](Self::advance) at the latest.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        let call = Some(self.call_at).filter(|_| !self.calling);
        let ends = self.shards.iter().filter_map(ShardState::moves_until);
        let moves = (self.wants_move() && !self.calling).then(|| {
            let retry = self.shards.iter().map(|state| state.not_before).filter(|at| *at > now);
            let settled = Some(self.settled_at()).filter(|at| *at > now);
            let stuck = Some(self.stuck_at()).filter(|at| *at > now);
            retry.chain(settled).chain(stuck).min()
        });
        call.into_iter().chain(ends).chain(moves.flatten()).min()
    }

    fn unsettle(&mut self, now: Instant) {
        if now >= self.settled_at() {
            self.unsettled = now;
        }
        self.settling = now;
    }

    fn settled_at(&self) -> Instant {
        let settle = self.settings.settle;
        let longest = self.unsettled + settle.saturating_mul(MAX_UNSETTLED);
        (self.settling + settle).min(longest)
    }

    /// How long the answers take, if every member calls the roll once.
    fn rolls_take(&self) -> Duration {
        let members = f64::from(u32::try_from(self.members.len() + 1).unwrap_or(u32::MAX));
        Duration::from_secs_f64((members * members / ANSWERS_PER_SECOND).min(1e6))
    }

    /// The time between two roll calls of this member.
    fn spacing(&self) -> Duration {
        self.settings.lease.saturating_mul(10).max(self.rolls_take())
    }

    /// A member has come or gone: each of the others calls the roll in its own moment.
    fn call_soon(&mut self, now: Instant) {
        let spread = self.spacing().mul_f64(0.1);
        let at = now + spread.mul_f64(0.1 + 0.9 * self.random.f64());
        self.call_at = self.call_at.min(at);
    }

    /// What is to move is decided by answers that are newer than the last change of the members.
    fn wants_fresh_roll(&self, now: Instant) -> bool {
        now >= self.settled_at()
            && self.call_failures == 0
            && !self.roll_is_fresh(now)
            && self.wants_move()
    }

    fn roll_is_fresh(&self, now: Instant) -> bool {
        self.called.is_some_and(|at| at >= self.settled_at() && now <= at + self.spacing())
    }

    /// This member's load, with what is on its way to it.
    fn own_load(&self) -> MemberLoad {
        let incoming = self.shards.iter().filter(|state| state.incoming.is_some()).count();
        let load = self.load.saturating_add(u32::try_from(incoming).unwrap_or(u32::MAX));
        MemberLoad { load, ..self.settings.load() }
    }

    fn load_of(&self, member: &Member) -> MemberLoad {
        MemberLoad {
            load: member.load,
            max: member.max,
            ..MemberLoad::new(self.settings.shards, member.weight)
        }
    }
}

#[cfg(test)]
mod tests;
