//! A process that is a member of a set: the production machine of the member, beside the candidates
//! of its process in each election.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    CandidateInfo, CandidateRequest, HandoverAnswer, Readiness, RollCall, TakeRequest,
};
use incumbent::protocol::set::{
    Holder, LoadLedger, SetAction, SetMember, SetSettings, TakeOutcome,
};
use incumbent::protocol::{Elector, Event, Refusal, State};

use super::{MemberSetup, SetSetup};
use crate::faults::MoveStep;
use crate::moves::Why;
use crate::process::millis;
use crate::server::Time;
use crate::world::{Inner, World};

/// As the member waits for the answers to its roll call.
const ROLL_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Member {
    pub identity: Arc<str>,
    set: SetMember,
    wake: u64,
    /// Something has changed that it is to take in.
    poked: bool,
    pub share: LoadLedger,
    /// The shards on which it works, within the most that it may lead.
    admitted: BTreeSet<usize>,
    /// The shards that are on their way to it: from whom, and until when at the latest.
    asked: BTreeMap<usize, (Arc<str>, Instant)>,
    pub shards: Vec<Shard>,
}

/// What it knows of a shard.
#[derive(Debug, Clone, Default)]
pub struct Shard {
    /// It leads, though it leads as much as it may without this one: since when.
    excess_since: Option<Time>,
    /// It counts as led, and as on its way to another member.
    leads: bool,
    pub gives: bool,
}

/// The holder of an entry, as the driver reports it to the member.
fn holder(machine: Option<&Elector>) -> Holder {
    match machine.map(|machine| (machine.leader(), machine.state())) {
        Some((Some(leader), _)) if leader.is_me => Holder::Me,
        Some((Some(leader), _)) => Holder::Other(Arc::clone(&leader.identity)),
        Some((None, State::Unknown)) => Holder::Unknown,
        Some((None, _)) | None => Holder::Nobody,
    }
}

impl World {
    fn set(&self) -> &SetSetup {
        self.scenario.set.as_ref().expect("only worlds with a set have members")
    }

    pub(super) fn member_setup(&self, process: usize) -> &MemberSetup {
        &self.set().members[process]
    }

    /// The member of a candidate's process, and which shard the candidate is of.
    fn member(&mut self, who: usize) -> Option<(&mut Member, usize)> {
        let candidate = &self.candidates[who];
        let member = self.processes[candidate.process].member.as_deref_mut()?;
        Some((member, candidate.key))
    }

    pub(super) fn holder(&self, who: usize) -> Holder {
        holder(self.candidates[who].machine.as_ref())
    }

    /// For how long a move may take.
    fn move_within(&self) -> Duration {
        millis(self.set().drain_ms) + self.candidates[0].timing.lease() * 3
    }

    pub(crate) fn is_mute(&self, who: usize) -> bool {
        let members = self.scenario.set.as_ref().map(|set| &set.members);
        members.is_some_and(|members| members[self.candidates[who].process].mute)
    }

    /// Whether it leads, though its member leads as much as it may without it.
    pub(crate) fn is_one_too_many(&mut self, who: usize) -> bool {
        self.member(who).is_some_and(|(member, shard)| member.shards[shard].excess_since.is_some())
    }

    pub(crate) fn member_starts(&mut self, process: usize) {
        let Some(set) = &self.scenario.set else { return };
        let life = self.processes[process].life;
        let identity: Arc<str> = match set.keeps_names {
            true => format!("m{process}").into(),
            false => format!("m{process}-{life}").into(),
        };
        let settings = SetSettings {
            identity: Arc::clone(&identity),
            shards: set.shards,
            resizing: None,
            weight: set.members[process].weight,
            max_load: set.members[process].max_load,
            settle: millis(set.settle_ms),
            moves_at_once: set.moves_at_once,
            move_within: self.move_within(),
            lease: self.candidates[0].timing.lease(),
            readiness: self.processes[process].readiness(),
            seed: self.scenario.seed ^ ((process as u64 + 1) << 40) ^ (u64::from(life) << 8),
        };
        let clock = self.processes[process].clock;
        self.processes[process].member = Some(Box::new(Member {
            share: LoadLedger::new(settings.load(), set.moves_at_once),
            set: SetMember::new(settings, clock.local(self.time.now)),
            wake: 0,
            poked: false,
            admitted: BTreeSet::new(),
            asked: BTreeMap::new(),
            shards: vec![Shard::default(); set.shards as usize],
            identity,
        }));
    }

    /// Something has changed for the member's task.
    pub(crate) fn poke_member(&mut self, process: usize) {
        let first = self.of_process(process).start;
        if let Some(member) = &mut self.processes[process].member
            && !std::mem::replace(&mut member.poked, true)
        {
            let after = Duration::from_micros(self.time.random.u64(1..1000));
            self.later(first, after, Inner::MemberAdvances);
        }
    }

    pub(crate) fn member_wakes(&mut self, who: usize, wake: u64) {
        if self.member(who).is_some_and(|(member, _)| member.wake == wake) {
            self.member_advances(who);
        }
    }

    /// The member takes in what has changed, and does what is due. `who` is its first candidate.
    pub(crate) fn member_advances(&mut self, who: usize) {
        let (now, process) = (self.local(who), self.candidates[who].process);
        let candidates = self.of_process(process);
        let stops = self.processes[process].stopping_since.is_some();
        let Some(member) = &mut self.processes[process].member else { return };
        member.poked = false;
        if stops {
            return;
        }
        for (shard, candidate) in self.candidates[candidates].iter().enumerate() {
            let holder = holder(candidate.machine.as_ref());
            let leaves = |from: &Arc<str>| match &holder {
                Holder::Me => false,
                Holder::Other(other) => other == from,
                Holder::Nobody | Holder::Unknown => true,
            };
            let asked = member.asked.get(&shard);
            if asked.is_some_and(|(from, until)| now >= *until || !leaves(from)) {
                member.asked.remove(&shard);
            }
            member.set.set_holder(now, shard as u32, holder);
        }
        member.set.advance(now);
        let mut actions = Vec::new();
        while let Some(action) = member.set.poll_action() {
            actions.push(action);
        }
        let next = member.set.next_wake(now);
        member.wake += 1;
        let wake = member.wake;
        for action in actions {
            self.member_performs(process, action);
        }
        if let Some(at) = next {
            let after = self.until_timer(who, at);
            self.later(who, after, Inner::MemberWake { wake });
        }
    }

    fn member_performs(&mut self, process: usize, action: SetAction) {
        let first = self.of_process(process).start;
        let of = |shard: u32| first + shard as usize;
        if !matches!(action, SetAction::CallRoll) {
            self.time.log(|| format!("m{process}: {action:?}"));
        }
        match action {
            SetAction::Rank { shard, rank } => {
                // As they were sent, one after the other.
                let after = Duration::from_micros(200);
                self.later(of(shard), after, Inner::Own(Event::Rank(rank)));
            }
            SetAction::CallRoll => {
                self.call(first, CandidateRequest::Identify, ROLL_WITHIN, Why::Roll);
            }
            SetAction::Take { shard, load } => {
                self.figures.asked += 1;
                let who = of(shard);
                let (until, by) =
                    (self.local(who) + self.move_within(), self.candidates[who].nonce());
                let Holder::Other(from) = self.holder(who) else { return };
                let at_once = self.set().moves_at_once as usize;
                let Some((member, shard)) = self.member(who) else { return };
                member.asked.insert(shard, (from, until));
                let request = TakeRequest { by, identity: member.identity.clone(), load };
                if member.asked.len() > at_once {
                    self.checker.fail(format!("m{process} asks for more shards than move at once"));
                }
                let request = CandidateRequest::Take(request);
                self.call(who, request, RollCall::HANDOVER_WITHIN, Why::Asks);
            }
            SetAction::GiveAway { shard, to } => {
                self.give_away(of(shard), to);
            }
        }
    }

    /// Its roll call is over; `None`: it has failed.
    pub(crate) fn member_has_roll(&mut self, who: usize, answers: Option<&[CandidateInfo]>) {
        let now = self.local(who);
        if let Some((member, _)) = self.member(who) {
            member.set.on_roll(now, answers);
            self.poke_member(self.candidates[who].process);
        }
    }

    /// The leader of a shard for which it has asked has answered, or has not.
    pub(crate) fn leader_answers_member(&mut self, who: usize, answers: &[CandidateInfo]) {
        let outcome = match answers.iter().find_map(|info| info.handover.as_ref()) {
            Some(HandoverAnswer::To(_)) => TakeOutcome::Accepted,
            Some(HandoverAnswer::Refused(_)) => TakeOutcome::Refused,
            _ => TakeOutcome::NoAnswer,
        };
        self.figures.accepted += u64::from(outcome == TakeOutcome::Accepted);
        self.time.log(|| format!("c{who} asked for its shard: {outcome:?}"));
        self.outcome(who, outcome);
    }

    /// What it wanted to give away moves, or stays.
    pub(crate) fn member_has_given(&mut self, who: usize, moves: &Result<Arc<str>, Refusal>) {
        let outcome = match moves {
            Ok(_) => TakeOutcome::Accepted,
            Err(Refusal::NobodyReady(_)) => TakeOutcome::NoAnswer,
            Err(_) => TakeOutcome::Refused,
        };
        self.outcome(who, outcome);
    }

    fn outcome(&mut self, who: usize, outcome: TakeOutcome) {
        let now = self.local(who);
        if let Some((member, shard)) = self.member(who) {
            if outcome != TakeOutcome::Accepted {
                member.asked.remove(&shard);
            }
            member.set.on_outcome(now, shard as u32, outcome);
            self.poke_member(self.candidates[who].process);
        }
    }

    /// It agrees to give a shard away, unless it gives this one already or too many.
    pub(crate) fn member_gives(
        &mut self,
        who: usize,
        request: &TakeRequest,
    ) -> Result<(), Refusal> {
        let Some((member, shard)) = self.member(who) else { return Err(Refusal::NotLeading) };
        if member.shards[shard].gives {
            return Err(Refusal::Busy);
        }
        member.share.give(request)?;
        member.shards[shard].gives = true;
        Ok(())
    }

    /// A shard is no longer on its way.
    pub(crate) fn member_keeps(&mut self, who: usize) {
        if let Some((member, shard)) = self.member(who)
            && std::mem::take(&mut member.shards[shard].gives)
        {
            member.share.settled();
        }
    }

    pub(crate) fn member_stands(&mut self, process: usize, readiness: Readiness) {
        let now = self.processes[process].clock.local(self.time.now);
        if let Some(member) = &mut self.processes[process].member {
            member.set.set_readiness(now, readiness);
            self.poke_member(process);
        }
    }

    /// A term begins. One that is one too many is given back.
    pub(crate) fn member_leads(&mut self, who: usize) {
        let (now, process) = (self.time.now, self.candidates[who].process);
        let Some((member, shard)) = self.member(who) else { return };
        if !std::mem::replace(&mut member.shards[shard].leads, true) {
            member.share.begin();
        }
        let (led, is_admitted) = (member.admitted.len(), member.admitted.contains(&shard));
        let full = self.member_setup(process).max_load.is_some_and(|max| led >= max as usize);
        let Some((member, _)) = self.member(who) else { return };
        if full && !is_admitted {
            member.shards[shard].excess_since = Some(now);
            self.figures.given_back += 1;
            self.time.log(|| format!("c{who} is one too many"));
            let after = self.time.millis(0..3);
            return self.later(who, after, Inner::GivesBack);
        }
        member.admitted.insert(shard);
        self.move_comes_to(MoveStep::Succeeds, who, None);
    }

    pub(crate) fn member_leads_no_more(&mut self, who: usize, hands_over: bool) {
        let calm = self.time.calm;
        let Some((member, shard)) = self.member(who) else { return };
        if std::mem::take(&mut member.shards[shard].leads) {
            member.share.end();
        }
        let excess = member.shards[shard].excess_since.take();
        self.member_keeps(who);
        match excess {
            _ if hands_over => {
                self.figures.handovers += u64::from(!calm);
                self.figures.moves += u64::from(calm);
            }
            Some(since) => self.gave_back(who, since),
            None => self.other_ends += 1,
        }
    }

    /// The work of a term has ended.
    pub(crate) fn member_has_stopped(&mut self, who: usize) {
        if let Some((member, shard)) = self.member(who) {
            member.admitted.remove(&shard);
        }
    }
}
