//! Which shards move to this member, and which ones it gives away.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SetMember;
use super::plan::{self, Party, distribute, preference};
use super::view::{Holder, Member, SetAction};
use crate::lock::{MemberLoad, Readiness};
use crate::time::clock::Instant;

impl SetMember {
    /// Whether shards are to move to this member, or from it.
    pub(super) fn wants_move(&self) -> bool {
        match self.readiness {
            Readiness::Ready => {
                let own = self.own_load();
                own.has_room()
                    && self.members.values().any(|m| self.load_of(m).should_give_to(&own))
            }
            Readiness::Cordoned | Readiness::Unhealthy => self.load > 0,
        }
    }

    /// Asks members that lead more for their shards, as long as the load becomes more even.
    pub(super) fn take(&mut self, now: Instant) {
        if !self.roll_is_fresh(now) || !self.wants_move() {
            return;
        }
        let targets = self.targets();
        let target = |identity: &Arc<str>| targets.get(identity).copied();
        let own_target = target(&self.settings.identity).unwrap_or(0);
        let stuck = now >= self.stuck_at();
        loop {
            let own = self.own_load();
            let incoming = self.shards.iter().filter(|state| state.incoming.is_some()).count();
            let enough = !stuck && own.load >= own_target;
            if enough || !own.has_room() || incoming >= self.moves_of_this_member(now, &targets) {
                return;
            }
            let gives = |from: &Arc<str>, load| stuck || target(from).is_none_or(|to| load > to);
            let Some(shard) = self.next_to_take(now, &own, gives) else { return };
            let until = now + self.settings.move_within;
            let Some(state) = self.shards.get_mut(shard as usize) else { return };
            let Holder::Other(from) = &state.holder else { return };
            state.incoming = Some((until, Arc::clone(from)));
            self.stale = true;
            self.actions.push_back(SetAction::Take { shard, load: own });
        }
    }

    /// How much each member is to lead, of those that are ready: only what is more moves.
    fn targets(&self) -> BTreeMap<Arc<str>, u32> {
        let parties = self.parties();
        let leads = |sum: u32, load: u32| sum.saturating_add(load);
        let all = self.members.values().map(|member| member.load).fold(self.own_load().load, leads);
        let of_parties = parties.iter().map(|party| party.load.load).fold(0, leads);
        let total = self.settings.shards.saturating_sub(all.saturating_sub(of_parties));
        let identities = parties.iter().map(|party| Arc::clone(party.identity));
        identities.zip(plan::targets(total, &parties)).collect()
    }

    /// Of the member that leads the most for its weight, and has one that may be asked for.
    fn next_to_take(
        &self,
        now: Instant,
        own: &MemberLoad,
        gives: impl Fn(&Arc<str>, u32) -> bool,
    ) -> Option<u32> {
        let mut left: BTreeMap<_, _> =
            self.members.iter().map(|(from, member)| (from, self.load_of(member))).collect();
        for (_, from) in self.shards.iter().filter_map(|state| state.incoming.as_ref()) {
            if let Some(load) = left.get_mut(from) {
                load.load = load.load.saturating_sub(1);
            }
        }
        let askable = (0..)
            .zip(&self.shards)
            .filter(|(_, state)| state.incoming.is_none() && now >= state.not_before);
        let offered = askable.filter_map(|(shard, state): (u32, _)| {
            let Holder::Other(from) = &state.holder else { return None };
            let load = left.get(from)?;
            (load.should_give_to(own) && gives(from, load.load)).then_some((shard, load))
        });
        let best = offered.max_by(|(shard_a, a), (shard_b, b)| {
            let preferred = |shard| preference(shard, self.hash);
            plan::by_next_load(a, b).then_with(|| preferred(*shard_a).cmp(&preferred(*shard_b)))
        });
        best.map(|(shard, _)| shard)
    }

    /// Its part of the moves that are made at once: it is shared among all that lead too little, in
    /// the order of their hashes. Where these move nothing, it may make one all the same: another
    /// member may be at its limit, or be refused.
    fn moves_of_this_member(&self, now: Instant, targets: &BTreeMap<Arc<str>, u32>) -> usize {
        let stuck = usize::from(now >= self.stuck_at());
        let giver = self.members.values().map(|member| self.load_of(member));
        let Some(giver) = giver.max_by(plan::by_next_load) else { return 0 };
        let lacks = |(identity, member): &(&Arc<str>, &Member)| {
            let there = member.answered.is_some() && member.readiness == Readiness::Ready;
            // A member at its target takes no shard: nobody waits for it.
            let too_little = targets.get(*identity).is_none_or(|to| member.load < *to);
            there && too_little && giver.should_give_to(&self.load_of(member))
        };
        let wanting = self.members.iter().filter(lacks);
        let (before, all) = wanting.fold((0, 1), |(before, all), (_, member)| {
            (before + usize::from(member.hash < self.hash), all + 1)
        });
        let moves = self.settings.moves_at_once as usize;
        (moves / all + usize::from(before < moves % all)).max(stuck)
    }

    /// From when on it does not wait for others that are to take first.
    pub(super) fn stuck_at(&self) -> Instant {
        self.moved.max(self.settled_at()) + self.settings.move_within
    }

    /// Hands its shards over to members that are ready, as many at once as may move.
    pub(super) fn give_away(&mut self, now: Instant) {
        let outgoing = self.shards.iter().filter(|state| state.outgoing.is_some()).count();
        let room = (self.settings.moves_at_once as usize).saturating_sub(outgoing);
        if self.calling || room == 0 || self.called.is_none_or(|at| at < self.settling) {
            return;
        }
        // One that did not answer last may be gone.
        let answered = |party: &Party<'_>| {
            self.members.get(party.identity).is_some_and(|member| member.answered == self.called)
        };
        let mut parties: Vec<_> = self.parties().into_iter().filter(answered).collect();
        let mine = (0..).zip(&self.shards).filter(|(_, state)| {
            state.holder == Holder::Me && state.outgoing.is_none() && now >= state.not_before
        });
        let mine = mine.map(|(shard, _): (u32, _)| shard).take(room);
        let mut moves = Vec::new();
        distribute(mine, &mut parties, |shard, to| moves.push((shard, Arc::clone(to))));
        for (shard, to) in moves {
            if let Some(state) = self.shards.get_mut(shard as usize) {
                state.outgoing = Some((now + self.settings.move_within, Arc::clone(&to)));
                self.actions.push_back(SetAction::GiveAway { shard, to });
            }
        }
    }
}
