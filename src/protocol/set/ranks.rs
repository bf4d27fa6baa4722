//! In which order the members acquire vacant shards.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SetMember;
use super::plan::{Party, distribute};
use super::view::{Holder, Member, SetAction};
use crate::lock::Readiness;
use crate::protocol::types::Rank;

impl SetMember {
    /// The members that may lead next, and this one if it may. A member that does not answer counts
    /// by what it leads.
    pub(super) fn parties(&self) -> Vec<Party<'_>> {
        let others = self.members.iter().filter(|(_, member)| {
            let may = member.readiness == Readiness::Ready;
            let there = member.load > 0 || member.answered.is_some();
            may && there && self.load_of(member).has_room()
        });
        let party = |(identity, member): (_, &Member)| {
            let load = self.load_of(member);
            Party { identity, hash: member.hash, load }
        };
        let (identity, load) = (&self.settings.identity, self.own_load());
        let me = Party { identity, hash: self.hash, load };
        let may = self.readiness == Readiness::Ready && load.has_room();
        others.map(party).chain(may.then_some(me)).collect()
    }

    /// Decides which vacant shards this member acquires first. A shard goes to a member other than
    /// its last leader, as if all that this one led were vacant.
    pub(super) fn update_ranks(&mut self) {
        if !self.begun || !std::mem::take(&mut self.stale) {
            return;
        }
        let mut ranks = vec![Rank::Second; self.shards.len()];
        if !self.own_load().has_room() || self.others_shards.is_some() {
            ranks.fill(Rank::Never);
        } else {
            let parties = self.parties();
            let mut groups = BTreeMap::<Option<&Arc<str>>, Vec<u32>>::new();
            for (shard, state) in (0..).zip(&self.shards) {
                if state.holder != Holder::Me {
                    groups.entry(state.last.as_ref()).or_default().push(shard);
                }
            }
            for (last, shards) in groups {
                let others = parties.len() > 1;
                let may = |party: &&Party<'_>| !others || Some(party.identity) != last;
                let mut left: Vec<_> = parties.iter().filter(may).cloned().collect();
                distribute(shards, &mut left, |shard, to| {
                    if *to == self.settings.identity
                        && let Some(rank) = ranks.get_mut(shard as usize)
                    {
                        *rank = Rank::First;
                    }
                });
            }
        }
        for ((shard, state), rank) in (0..).zip(&mut self.shards).zip(ranks) {
            // An entry of this member's own whose term is over is acquired again: on a lock that
            // frees none, all may wait for it else.
            let own = state.holder == Holder::Me && self.others_shards.is_none();
            let rank = match rank {
                _ if state.incoming.is_some() => Rank::Next,
                _ if own => Rank::First,
                rank => rank,
            };
            if std::mem::replace(&mut state.rank, rank) != rank {
                self.actions.push_back(SetAction::Rank { shard, rank });
            }
        }
    }
}
