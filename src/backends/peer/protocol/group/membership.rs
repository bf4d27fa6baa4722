//! Who is in the group: who has come, who has left, and who is counted out.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Group;
use crate::backends::peer::protocol::member::{Known, Member};
use crate::backends::peer::protocol::types::Change;
use crate::backends::peer::protocol::wire::{MemberState, Profile};
use crate::time::clock::Instant;

impl Group {
    /// This member and all others that are not counted out.
    pub fn members(&self) -> Vec<Member> {
        let others = self.members.values().filter(|known| known.stands());
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

    /// Nobody is counted out for what this member could not hear because it stood still itself.
    pub(super) fn notice_absence(&mut self, now: Instant) {
        let away = now.saturating_since(self.last_turn);
        if away > self.settings.timeout {
            for known in self.members.values_mut().filter(|known| known.stands()) {
                known.heard = now;
            }
        }
        self.last_turn = now;
    }

    /// Remembers what a member says of itself. Whether it is one of those who are remembered.
    pub(super) fn note(
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
            if !self.make_room() {
                return false;
            }
            let address = Some(from);
            let member = Member { id: id.into(), weight, address, channels, is_me: false };
            self.tell(Change::Added(member.clone()));
            let known = Known { member, standing, heard: now, removed: None, multicast };
            self.members.insert(id.into(), known);
            return true;
        };
        let was = known.standing;
        if was == MemberState::Removed && !comes {
            return true;
        }
        known.heard = now;
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
                self.tell(Change::Added(member));
            }
            (_, MemberState::Removed) => {
                known.removed = Some(now);
                self.tell(Change::Removed(member));
            }
            _ => {}
        }
        true
    }

    /// Forgets whoever was counted out first, if need be.
    fn make_room(&mut self) -> bool {
        if self.members.len() < self.settings.capacity {
            return true;
        }
        let gone = self.members.iter().filter_map(|(id, known)| Some((known.removed?, id.clone())));
        gone.min().is_some_and(|(_, id)| self.members.remove(&id).is_some())
    }

    /// Says the next hello sooner; not more often than it would anyway, twice.
    pub(super) fn speak_sooner(&mut self, now: Instant) {
        let half = self.settings.interval / 2;
        self.next_hello = self.next_hello.map(|next| next.min(now.max(next - half)));
    }

    /// Somebody else has not heard from `candidate` for too long.
    pub(super) fn vote(&mut self, now: Instant, candidate: &str) {
        if *candidate == *self.settings.id {
            return self.speak_sooner(now); // whoever says so hears that it is not so
        }
        // democracy counts a member out on the first vote. Here one's own ears are believed as well: a hello is missing.
        let missing = self.settings.interval + self.settings.interval / 2;
        let silent = |known: &Known| known.stands() && now.saturating_since(known.heard) > missing;
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
        self.tell(Change::Removed(member));
        if led {
            self.elect();
        }
    }
}
