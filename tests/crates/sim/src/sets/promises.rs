//! What must hold of a set.

use std::time::Duration;

use incumbent::lock::{CandidateInfo, MemberLoad, Role, Standing, TakeRequest};
use incumbent::protocol::Chosen;
use incumbent::protocol::set::Holder;

use super::calls::Why;
use super::world::SetWorld;
use crate::moves::MoveStep;
use crate::server::Time;

/// A term that is one too many is given back within this time, unless its process is paused.
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(100);

impl SetWorld {
    /// A member agrees to give a shard away.
    pub(super) fn judge_giver(&mut self, who: usize, shard: u32, request: &TakeRequest) {
        let Some(up) = self.members[who].up.as_deref() else { return };
        let led = up.seats.iter().filter(|seat| seat.began.is_some()).count() as u32;
        let giving = up.seats.iter().filter(|seat| seat.gives).count() as u32;
        let weight = self.members[who].setup.weight;
        let load = (led + 1).saturating_sub(giving);
        let left = MemberLoad { load, ..MemberLoad::new(self.set.shards, weight) };
        if giving > self.set.moves_at_once {
            self.fail(format!("m{who} gives away more shards than move at once"));
        }
        if !left.should_give_to(&request.load) {
            self.fail(format!("m{who} gives shard {shard} away, which makes nothing more even"));
        }
    }

    /// A leader hands over to this one.
    pub(super) fn judge_choice(
        &mut self,
        who: usize,
        shard: u32,
        why: &Why,
        chosen: &Chosen,
        answers: &[CandidateInfo],
    ) {
        let (now, unix_ms) = {
            let member = &self.members[who];
            (member.clock.local(self.now), member.unix_ms(self.now))
        };
        let lease = self.members[who].timing.lease();
        let Some((up, index)) = self.seat(who, shard) else { return };
        let seat = &up.seats[index];
        let voluntary = matches!(why, Why::Taken(..));
        let answered = answers.iter().any(|info| {
            info.nonce == chosen.nonce
                && info.role == Role::Standby
                && (info.standing == Standing::Ready
                    || !voluntary && info.standing == Standing::Aside)
        });
        let pause = seat.machine.pause(now);
        let paused = pause.is_some_and(|pause| pause.until_unix_ms > unix_ms);
        let wrong = match (why, seat.began) {
            (_, None) => "hands over a term that it does not have",
            _ if !answered => "hands over to one that did not say it was ready",
            (Why::Taken(_, request), _) if request.by != chosen.nonce => {
                "hands over to another one than the one that asked"
            }
            (Why::Taken(..), Some(began)) if now < began + lease => {
                "moves a term voluntarily that is younger than a lease"
            }
            (Why::Taken(..), _) if paused => "moves voluntarily in a pause",
            _ => return,
        };
        self.fail(format!("m{who}/{shard} {wrong}"));
    }

    /// A term ends, as it is handed over.
    pub(super) fn hands_over(&mut self, who: usize, _shard: u32) {
        self.figures.handovers += u64::from(!self.calm);
        self.figures.moves += u64::from(self.calm);
        self.move_comes_to(MoveStep::Ends, who, None);
    }

    /// A term begins.
    pub(super) fn taken(&mut self, who: usize, _shard: u32) {
        self.move_comes_to(MoveStep::Succeeds, who, None);
    }

    /// A term ends that was one too many.
    pub(super) fn gave_back(&mut self, who: usize, since: Time) {
        let resumed = self.members[who].faults.paused_until;
        if self.now > since.max(resumed) + GIVEN_BACK_WITHIN {
            self.fail(format!("m{who} leads more than it may for long"));
        }
        if self.calm {
            self.other_ends += 1;
        }
    }

    pub fn all_are_up(&self) -> bool {
        self.members.iter().all(|member| member.up.as_ref().is_some_and(|up| !up.stopping))
    }

    fn leader_of(&self, shard: u32) -> Option<usize> {
        (0..self.members.len()).find(|who| self.leads(*who, shard))
    }

    /// So many shards each member leads.
    pub fn loads(&self) -> Vec<u32> {
        let led = |who| (0..self.set.shards).filter(|shard| self.leads(who, *shard)).count() as u32;
        (0..self.members.len()).map(led).collect()
    }

    /// Whether each shard is led, unless no member has room.
    pub fn all_are_led(&self) -> Result<(), String> {
        let loads = self.loads();
        let over = self.members.iter().position(|member| {
            let seats = member.up.iter().flat_map(|up| &up.seats);
            let held = seats.filter(|seat| seat.holder() == Holder::Me).count();
            member.setup.max_load.is_some_and(|max| held > max as usize)
        });
        if let Some(who) = over {
            return Err(format!("m{who} holds more than it may lead"));
        }
        let room = (0..loads.len()).find(|who| self.members[*who].has_room(loads[*who]));
        let vacant = (0..self.set.shards).find(|shard| self.leader_of(*shard).is_none());
        match (vacant, room) {
            (Some(shard), Some(who)) => {
                Err(format!("nobody leads shard {shard}, and m{who} has room: {loads:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether no shard should move, among the members that hear each other.
    pub fn is_even(&self) -> Result<(), String> {
        let loads = self.loads();
        let load = |who: usize| {
            let weight = self.members[who].setup.weight;
            MemberLoad { load: loads[who], ..MemberLoad::new(self.set.shards, weight) }
        };
        let hears = |who: usize| !self.members[who].setup.mute;
        for from in (0..loads.len()).filter(|who| loads[*who] > 0) {
            for to in (0..loads.len()).filter(|to| *to != from && hears(*to)) {
                let takes = self.is_ready(to) && self.members[to].has_room(loads[to]);
                let is_asked = hears(from) && load(from).should_give_to(&load(to));
                let gives = is_asked || !self.is_ready(from);
                if takes && gives {
                    return Err(format!("m{from} leads too much beside m{to}: {loads:?}"));
                }
            }
        }
        Ok(())
    }
}
