//! What must hold of a set.

use std::time::Duration;

use incumbent::lock::{MemberLoad, Readiness, TakeRequest};
use incumbent::protocol::set::Holder;

use crate::moves::Why;
use crate::server::Time;
use crate::world::World;

/// A term that is one too many is given back within this time, unless its process is paused.
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(100);

impl World {
    fn load(&self, process: usize, load: u32) -> MemberLoad {
        let weight = self.member_setup(process).weight;
        MemberLoad { load, ..MemberLoad::new(self.servers.len() as u32, weight) }
    }

    /// A member agrees to give a shard away.
    pub(crate) fn judge_giver(&mut self, who: usize, request: &TakeRequest) {
        let process = self.candidates[who].process;
        let Some(member) = self.processes[process].member.as_deref() else { return };
        let giving = member.shards.iter().filter(|shard| shard.gives).count() as u32;
        let movers =
            self.candidates[self.of_process(process)].iter().filter_map(|it| it.mover.as_ref());
        let led = movers.filter(|mover| mover.began.is_some()).count() as u32;
        let left = self.load(process, (led + 1).saturating_sub(giving));
        if self.scenario.set.as_ref().is_some_and(|set| giving > set.moves_at_once) {
            self.checker.fail(format!("m{process} gives away more shards than move at once"));
        }
        if !left.should_give_to(&request.load) {
            self.checker.fail(format!("c{who} is given away, which makes nothing more even"));
        }
    }

    /// A term ends that was one too many.
    pub(super) fn gave_back(&mut self, who: usize, since: Time) {
        let resumed = self.process(who).faults.paused_until;
        if self.time.now > since.max(resumed) + GIVEN_BACK_WITHIN {
            self.checker.fail(format!("c{who} leads for long, though it is one too many"));
        }
        self.other_ends += u64::from(self.time.calm);
    }

    pub(super) fn all_are_up(&self) -> bool {
        self.processes.iter().all(|it| it.member.is_some() && it.stopping_since.is_none())
    }

    /// So many shards each member leads.
    pub(super) fn loads(&self) -> Vec<u32> {
        let led = |process| {
            let candidates = self.of_process(process);
            candidates.filter(|who| self.checker.is_leading(*who)).count() as u32
        };
        (0..self.processes.len()).map(led).collect()
    }

    fn has_room(&self, process: usize, load: u32) -> bool {
        self.member_setup(process).max_load.is_none_or(|max| load < max)
    }

    /// Whether each shard is led, unless no member has room.
    pub(super) fn all_are_led(&self) -> Result<(), String> {
        let loads = self.loads();
        let over = (0..loads.len()).find(|process| {
            let candidates = self.of_process(*process);
            let held = candidates.filter(|who| self.holder(*who) == Holder::Me).count();
            self.member_setup(*process).max_load.is_some_and(|max| held > max as usize)
        });
        if let Some(process) = over {
            return Err(format!("m{process} holds more than it may lead"));
        }
        let room = (0..loads.len()).find(|process| self.has_room(*process, loads[*process]));
        let vacant = (0..self.servers.len()).find(|key| self.leader_of(*key).is_none());
        match (vacant, room) {
            (Some(shard), Some(process)) => {
                Err(format!("nobody leads shard {shard}, and m{process} has room: {loads:?}"))
            }
            _ => Ok(()),
        }
    }

    fn is_ready(&self, process: usize) -> bool {
        let process = &self.processes[process];
        process.member.is_some() && process.readiness() == Readiness::Ready
    }

    /// Whether no shard should move, among the members that hear each other.
    pub(super) fn is_even(&self) -> Result<(), String> {
        let loads = self.loads();
        let load = |process: usize| self.load(process, loads[process]);
        let hears = |process: usize| !self.member_setup(process).mute;
        for from in (0..loads.len()).filter(|from| loads[*from] > 0) {
            for to in (0..loads.len()).filter(|to| *to != from && hears(*to)) {
                let takes = self.is_ready(to) && self.has_room(to, loads[to]);
                let is_asked = hears(from) && load(from).should_give_to(&load(to));
                let gives = is_asked || !self.is_ready(from);
                if takes && gives {
                    return Err(format!("m{from} leads too much beside m{to}: {loads:?}"));
                }
            }
        }
        Ok(())
    }

    /// Whether nothing is on its way.
    pub(super) fn nothing_moves(&self) -> bool {
        // One that answers no call asks in vain.
        let moves = |why: &Why| match why {
            Why::Taken(call, _) => call.by.is_some_and(|(by, _)| !self.is_mute(by)),
            Why::GivesAway | Why::Requested(_) => true,
            _ => false,
        };
        self.candidates.iter().all(|candidate| {
            let calls = candidate.mover.iter().flat_map(|mover| &mover.calls);
            candidate.drain.until().is_none() && !calls.into_iter().any(|call| moves(&call.why))
        })
    }
}
