//! Membership of the group: members join, leave, and are removed.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Group;
use crate::backends::peer::protocol::member::{KnownMember, Member};
use crate::backends::peer::protocol::types::Change;
use crate::backends::peer::protocol::wire::{MemberState, Profile};
use crate::time::clock::Instant;

impl Group {
    /// Returns this member and all members that are not removed.
    pub fn members(&self) -> Vec<Member> {
        let others = self.members.values().filter(|known| known.is_present());
        let mut all: Vec<_> = others.map(|known| known.member.clone()).collect();
        all.push(self.me());
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    pub(super) fn me(&self) -> Member {
        Member {
            id: Arc::clone(&self.settings.id),
            weight: self.settings.weight,
            address: self.settings.source,
            channels: self.settings.channels.clone(),
            is_me: true,
        }
    }

    /// Restarts all members' timeouts after this member itself was suspended, when it could not
    /// receive hellos.
    pub(super) fn extend_after_suspension(&mut self, now: Instant) {
        let away = now.saturating_since(self.last_turn);
        if away > self.settings.timeout {
            for known in self.members.values_mut().filter(|known| known.is_present()) {
                known.last_received = now;
            }
        }
        self.last_turn = now;
    }

    /// Records the profile of a member. Returns whether the member is remembered.
    pub(super) fn record_profile(
        &mut self,
        now: Instant,
        id: &str,
        from: SocketAddr,
        multicast: bool,
        profile: Profile,
        comes: bool,
    ) -> bool {
        let Profile { weight, standing, channels, .. } = profile;
        let channels = channels.into_iter().collect();
        let Some(known) = self.members.get_mut(id) else {
            if !comes || standing == MemberState::Removed {
                return standing != MemberState::Removed;
            }
            if !self.evict_removed() {
                return false;
            }
            let address = Some(from);
            let member = Member { id: id.into(), weight, address, channels, is_me: false };
            self.report(Change::Added(member.clone()));
            let known =
                KnownMember { member, standing, last_received: now, removed: None, multicast };
            self.members.insert(id.into(), known);
            return true;
        };
        let was = known.standing;
        if was == MemberState::Removed && !comes {
            return true;
        }
        known.last_received = now;
        known.standing = standing;
        known.multicast |= multicast;
        let member = Member { weight, channels, address: Some(from), ..known.member.clone() };
        if member != known.member {
            known.member = member.clone();
            self.version += 1;
        }
        match (was, standing) {
            (MemberState::Removed, MemberState::Removed) => {}
            (MemberState::Removed, _) => {
                known.removed = None;
                self.report(Change::Added(member));
            }
            (_, MemberState::Removed) => {
                known.removed = Some(now);
                self.report(Change::Removed(member));
            }
            _ => {}
        }
        true
    }

    /// Forgets the member that was removed first, if the capacity is reached.
    fn evict_removed(&mut self) -> bool {
        if self.members.len() < self.settings.capacity {
            return true;
        }
        let gone = self.members.iter().filter_map(|(id, known)| Some((known.removed?, id.clone())));
        gone.min().is_some_and(|(_, id)| self.members.remove(&id).is_some())
    }

    /// Sends the next hello up to half an interval earlier, so hellos are at most twice as
    /// frequent.
    pub(super) fn send_hello_sooner(&mut self, now: Instant) {
        let half = self.settings.interval / 2;
        self.next_hello = self.next_hello.map(|next| next.min(now.max(next - half)));
    }

    /// Handles a vote: another member has received nothing from `candidate` for too long.
    pub(super) fn vote(&mut self, now: Instant, candidate: &str) {
        if *candidate == *self.settings.id {
            return self.send_hello_sooner(now); // the hello refutes the vote
        }
        // democracy removes a member on the first vote. This member also requires that a hello is
        // missing here.
        let missing = self.settings.interval + self.settings.interval / 2;
        let silent = |known: &KnownMember| {
            known.is_present() && now.saturating_since(known.last_received) > missing
        };
        if self.members.get(candidate).is_some_and(silent) {
            self.remove(now, candidate);
        }
    }

    pub(super) fn remove(&mut self, now: Instant, id: &str) {
        let Some(known) = self.members.get_mut(id) else { return };
        let led = known.leads();
        known.standing = MemberState::Removed;
        known.removed = Some(now);
        let member = known.member.clone();
        self.report(Change::Removed(member));
        if led {
            self.elect();
        }
    }
}
