//! What drivers do with the moves of shards, and members with their standing.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{
    CandidateInfo, CandidateRequest, HandoverAnswer, Nonce, Standing, Successor, TakeRequest,
};
use incumbent::protocol::set::{Holder, SetAction, TakeOutcome};
use incumbent::protocol::{Event, Refusal};

use super::calls::{Call, Open, Why};
use super::member::{move_within, standing};
use super::world::{Inner, SetEvent, SetWorld};
use crate::moves::MoveStep;
use crate::process_faults::millis;
use crate::scenario::Fault;

/// As the drivers wait.
const SET_ROLL_WITHIN: Duration = Duration::from_millis(500);
pub const ROLL_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Candidates answer within this part of the time for answers.
const SPREAD: f64 = 0.8;

/// What happens to the moves of a process.
#[derive(Debug, Clone)]
pub enum Step {
    Check,
    StandAside(bool),
    /// A call arrives.
    Called(Call),
    /// Its moment to answer has come.
    Answer(Call),
    /// An answer to its own call arrives.
    Answered {
        call: u64,
        info: CandidateInfo,
    },
    Over {
        call: u64,
        failed: bool,
    },
}

/// What waits for a move.
#[derive(Debug, Default)]
pub struct PendingFaults {
    pub crash: Option<(MoveStep, bool, u16)>,
}

impl SetWorld {
    pub(super) fn perform_of_set(&mut self, who: usize, action: SetAction) {
        match action {
            SetAction::Rank { shard, rank } => {
                // As they were sent, one after the other.
                let after = Duration::from_micros(200);
                self.later(after, who, Inner::Own { shard, event: Event::Rank(rank) });
            }
            SetAction::CallRoll => {
                self.call(who, 0, CandidateRequest::Identify, SET_ROLL_WITHIN, Why::Roll);
            }
            SetAction::Take { shard, load } => {
                self.figures.asked += 1;
                let member = &mut self.members[who];
                let until = member.clock.local(self.now) + move_within(&self.set, member.timing);
                let Some(up) = member.up.as_deref_mut() else { return };
                let Holder::Other(from) = up.seats[shard as usize].holder() else { return };
                up.asked.insert(shard, (from, until));
                let asks = up.asked.len();
                let by = up.seats[shard as usize].nonce;
                let request = TakeRequest { by, identity: up.identity.clone(), load };
                if asks > self.set.moves_at_once as usize {
                    self.fail(format!("m{who} asks for more shards than move at once"));
                }
                let request = CandidateRequest::Take(request);
                self.call(who, shard, request, ANSWER_WITHIN, Why::Take);
            }
            SetAction::GiveAway { shard, to } => {
                self.hand_over(who, shard, Successor::Identity(to), Why::GivesAway);
            }
        }
    }

    pub(super) fn step(&mut self, who: usize, step: Step) {
        let deaf = self.now < self.members[who].faults.cut_in_until;
        match step {
            Step::Check => self.check(who),
            Step::StandAside(aside) => {
                if let Some(up) = &mut self.members[who].up {
                    up.aside = aside;
                }
                self.update_standing(who);
            }
            Step::Called(_) | Step::Answered { .. } if deaf => {}
            // What was stuck as the faults ceased would move shards for a reason that is past.
            Step::Called(call) if self.calm && call.stormy => {}
            Step::Called(call) => self.called(who, call),
            Step::Answer(call) => self.answer(who, &call, None),
            Step::Answered { call, info } => self.answered(who, call, info),
            Step::Over { call, failed } => self.call_is_over(who, call, failed),
        }
    }

    pub(super) fn begin_checks(&mut self, who: usize) {
        if self.members[who].setup.check_ms.is_some() {
            let after = self.millis(0..100);
            self.later(after, who, Inner::Step(Step::Check));
        }
    }

    fn check(&mut self, who: usize) {
        let member = &mut self.members[who];
        let Some(every) = member.setup.check_ms else { return };
        let fails = self.now < member.faults.ill_until;
        if let Some(health) = member.up.as_mut().and_then(|up| up.health.as_mut()) {
            health.record(if fails { Err("ill".into()) } else { Ok(()) });
        }
        self.update_standing(who);
        let after = millis(every);
        self.later(after, who, Inner::Step(Step::Check));
    }

    fn update_standing(&mut self, who: usize) {
        let now = self.members[who].clock.local(self.now);
        let Some(up) = self.members[who].up.as_deref_mut() else { return };
        let after = standing(up.health.as_ref(), up.aside);
        if std::mem::replace(&mut up.standing, after) == after || up.stopping {
            return;
        }
        up.set.set_standing(now, after);
        for seat in &mut up.seats {
            seat.moves(now).set_standing(now, after);
        }
        self.log(|| format!("m{who} is {}", after.as_str()));
        for shard in 0..self.set.shards {
            self.own(who, shard, Event::Standing(after));
        }
        self.poke(who);
    }

    /// A call arrives at a candidate.
    fn called(&mut self, who: usize, call: Call) {
        let Some((up, index)) = self.seat(who, call.shard) else { return };
        let seat = &mut up.seats[index];
        let leads = seat.began.is_some();
        match &call.request {
            CandidateRequest::Identify => {}
            CandidateRequest::Succeed(Successor::Identity(to)) if *to == up.identity && !leads => {}
            CandidateRequest::Succeed(Successor::Candidate(to)) if *to == seat.nonce && !leads => {}
            CandidateRequest::Succeed(Successor::Any) if !leads => {}
            CandidateRequest::Pause(pause) => {
                if seat.machine.leader().is_some_and(|leader| leader.is_me) {
                    self.feed(who, call.shard, Event::Pause(*pause));
                }
                return;
            }
            CandidateRequest::HandOver(to) if leads => {
                let to = to.clone();
                return self.hand_over(who, call.shard, to, Why::Requested(call));
            }
            CandidateRequest::Take(request) if leads => {
                let request = request.clone();
                return self.asked_for(who, call, request);
            }
            _ => return,
        }
        let after = call.within.mul_f64(SPREAD * self.random.f64());
        self.later(after, who, Inner::Step(Step::Answer(call)));
    }

    /// A member that leads less asks for a shard.
    fn asked_for(&mut self, who: usize, call: Call, request: TakeRequest) {
        let now = self.members[who].clock.local(self.now);
        let Some((up, index)) = self.seat(who, call.shard) else { return };
        let seat = &mut up.seats[index];
        if seat.gives {
            return self.refuse(who, &call, &Refusal::Busy);
        }
        let given = up.share.give(&request);
        seat.gives = given.is_ok();
        let asked = given.and_then(|()| {
            let taken = seat.moves(now).take(now, request.clone());
            taken.inspect_err(|_| seat.keep(&mut up.share))
        });
        match asked {
            Ok(()) => {
                self.judge_giver(who, call.shard, &request);
                self.call_ready(who, call.shard, Why::Taken(call, request));
            }
            Err(refusal) => self.refuse(who, &call, &refusal),
        }
    }

    fn hand_over(&mut self, who: usize, shard: u32, to: Successor, why: Why) {
        let now = self.members[who].clock.local(self.now);
        let Some(seat) = self.members[who].seat(shard) else { return };
        match seat.moves(now).request(to) {
            Ok(()) => self.call_ready(who, shard, why),
            Err(refusal) => self.reply(who, shard, &why, Err(refusal)),
        }
    }

    fn call_ready(&mut self, who: usize, shard: u32, why: Why) {
        let Some(seat) = self.members[who].seat(shard) else { return };
        let request = CandidateRequest::Succeed(seat.moves.wanted());
        self.call(who, shard, request, ROLL_WITHIN, why);
        self.move_comes_to(MoveStep::Calls, who, None);
    }

    fn refuse(&mut self, who: usize, call: &Call, why: &Refusal) {
        self.log(|| format!("m{who} keeps {}: {why}", call.shard));
        self.answer(who, call, Some(HandoverAnswer::Refused(why.to_string().into())));
    }

    fn reply(&mut self, who: usize, shard: u32, why: &Why, outcome: Result<Arc<str>, Refusal>) {
        match (why, outcome) {
            (Why::Taken(call, _) | Why::Requested(call), Ok(to)) => {
                self.answer(who, call, Some(HandoverAnswer::To(to)));
            }
            (Why::Taken(call, _) | Why::Requested(call), Err(why)) => {
                self.refuse(who, call, &why);
            }
            (Why::GivesAway, outcome) => {
                let (accepted, refused) = (TakeOutcome::Accepted, TakeOutcome::Refused);
                let outcome = outcome.map_or(refused, |_| accepted);
                self.outcome(who, shard, outcome);
            }
            (Why::Roll | Why::Take, _) => {}
        }
    }

    pub(super) fn outcome(&mut self, who: usize, shard: u32, outcome: TakeOutcome) {
        let now = self.members[who].clock.local(self.now);
        if let Some(up) = &mut self.members[who].up {
            if outcome != TakeOutcome::Accepted {
                up.asked.remove(&shard);
            }
            up.set.on_outcome(now, shard, outcome);
            self.poke(who);
        }
    }

    /// The leader has the answers to its call.
    pub(super) fn roll_is_over(
        &mut self,
        who: usize,
        shard: u32,
        why: &Why,
        answers: Option<Vec<CandidateInfo>>,
    ) {
        let now = self.members[who].clock.local(self.now);
        let Some((up, index)) = self.seat(who, shard) else { return };
        let seat = &mut up.seats[index];
        let moves = seat.moves(now);
        let chosen = match &answers {
            Some(answers) => moves.on_roll(now, answers),
            None => {
                moves.on_roll_failed(now);
                Err(Refusal::NotLeading)
            }
        };
        match chosen {
            Err(refusal) => {
                if seat.drain.until().is_none() {
                    seat.keep(&mut up.share);
                }
                self.reply(who, shard, why, Err(refusal));
            }
            Ok(chosen) => {
                let answers = answers.unwrap_or_default();
                self.judge_choice(who, shard, why, &chosen, &answers);
                self.log(|| format!("m{who}/{shard} hands over to {}", chosen.identity));
                self.reply(who, shard, why, Ok(chosen.identity.clone()));
                self.move_comes_to(MoveStep::Chooses, who, Some(chosen.nonce));
                let event = Event::HandOver { to: chosen.nonce, identity: chosen.identity };
                self.feed(who, shard, event);
            }
        }
    }

    /// A move of the member `who` comes to this point: a fault may wait for it there.
    pub(super) fn move_comes_to(&mut self, at: MoveStep, who: usize, to: Option<Nonce>) {
        let Some((step, of_successor, back_ms)) = self.pending_faults.crash else { return };
        let of_nonce = |nonce: Nonce| {
            let has = |up: &super::member::Process| up.seats.iter().any(|it| it.nonce == nonce);
            self.members.iter().position(|member| member.up.as_deref().is_some_and(has))
        };
        let who = if of_successor { to.and_then(of_nonce) } else { Some(who) };
        if let Some(who) = who.filter(|_| step == at) {
            self.pending_faults.crash = None;
            let crash = Fault::Crash { who, back_ms };
            self.after(Duration::ZERO, SetEvent::Fault(crash));
        }
    }

    /// Whether nothing is on its way.
    pub(super) fn nothing_moves(&self) -> bool {
        self.members.iter().filter_map(|member| member.up.as_deref()).all(|up| {
            // One that answers no call asks in vain.
            let moves = |open: &Open| match &open.why {
                Why::Roll | Why::Take => false,
                Why::Taken(call, _) => call.by.is_some_and(|(by, _)| !self.members[by].setup.mute),
                Why::GivesAway | Why::Requested(_) => true,
            };
            !up.open.values().any(moves) && up.seats.iter().all(|it| it.drain.until().is_none())
        })
    }

    pub(super) fn is_ready(&self, who: usize) -> bool {
        self.members[who].up.as_deref().is_some_and(|up| up.standing == Standing::Ready)
    }
}
