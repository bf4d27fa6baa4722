//! What drivers do with the moves of their candidates: checks, requests to hand over, and the
//! requests of those that would rather lead.

mod calls;
mod promises;

use std::sync::Arc;

use incumbent::clock::Instant;
use incumbent::lock::{
    CandidateInfo, CandidateRequest, HandoverAnswer, Nonce, RollCall, Successor, TakeRequest,
};
use incumbent::protocol::{Event, Moves, Refusal};

use crate::faults::MoveStep;
use crate::process::millis;
use crate::world::{Inner, World};
pub(crate) use calls::Why;
use calls::{Call, InFlight};
pub(crate) use promises::{Decision, Judge};

/// How the moves of one candidate are set up.
#[derive(Debug, Clone)]
pub struct MoveSetup {
    pub prefer_after_ms: Option<u16>,
    /// Its process begins by standing aside.
    pub aside: bool,
    /// How often the check of its process runs, if there is one.
    pub check_ms: Option<u16>,
}

/// Its moves, in one process.
#[derive(Debug)]
pub struct Mover {
    pub moves: Moves,
    /// Since when it leads.
    pub began: Option<Instant>,
    pub(crate) calls: Vec<InFlight>,
}

/// What happens to a candidate's moves.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The check of its process ends.
    Check,
    /// A call arrives.
    Called(Call),
    /// Its moment to answer has come.
    Answer(Call),
    /// An answer to its own call arrives.
    Answered { call: u64, info: CandidateInfo },
    /// Its own call is over.
    Over { call: u64, failed: bool },
    /// Its program wants it to hand over.
    HandOver,
    /// Its program cordons its process, or ends that.
    StandAside(bool),
}

impl World {
    /// With the role that it has now.
    pub(crate) fn mover(&mut self, who: usize) -> Option<(Instant, &mut Mover)> {
        let now = self.local(who);
        let candidate = &mut self.candidates[who];
        let (machine, mover) = (candidate.machine.as_ref()?, candidate.mover.as_deref_mut()?);
        let pause_ends = machine.pause_ends(now);
        match mover.began {
            Some(began) => mover.moves.leads(now, began, pause_ends),
            None => mover.moves.stands_by(now, machine.leader(), pause_ends),
        }
        Some((now, mover))
    }

    /// Does what is due.
    pub(super) fn advance_moves(&mut self, who: usize) {
        let Some((now, mover)) = self.mover(who) else { return };
        match mover.moves.advance(now) {
            Some(request @ CandidateRequest::Prefer { .. }) => {
                self.call(who, request, RollCall::HANDOVER_WITHIN, Why::Asks);
            }
            Some(request) => self.call_ready(who, request, Why::Alone),
            None => {}
        }
    }

    fn call_ready(&mut self, who: usize, request: CandidateRequest, why: Why) {
        let request = match why {
            Why::Requested(_) | Why::Alone | Why::Preferred(_) if self.scenario.set.is_none() => {
                CandidateRequest::Identify
            }
            _ => request,
        };
        self.call(who, request, RollCall::SUCCESSORS_WITHIN, why);
        self.move_comes_to(MoveStep::Calls, who, None);
    }

    pub(super) fn step_moves(&mut self, who: usize, step: Step) {
        if self.candidates[who].machine.is_none() {
            return;
        }
        let deaf = self.time.now < self.process(who).faults.cut_in_until;
        match step {
            Step::Check => self.check(who),
            Step::Called(_) | Step::Answered { .. } if deaf => {}
            // What was stuck as the faults ceased would move the leadership for a past reason.
            Step::Called(call) if self.time.calm && call.stormy => {}
            Step::Called(call) => self.called(who, call),
            Step::Answer(call) => self.answer(who, &call, None),
            Step::Answered { call, info } => self.answered(who, call, info),
            Step::Over { call, failed } => self.call_is_over(who, call, failed),
            Step::HandOver => self.hand_over(who, Successor::Any, Why::Requested(None)),
            Step::StandAside(aside) => {
                let process = self.candidates[who].process;
                self.processes[process].aside = aside;
                self.update_readiness(process);
            }
        }
        self.advance_moves(who);
        self.set_wake(who);
    }

    fn check(&mut self, who: usize) {
        let setup = self.candidates[who].setup.moves.as_ref();
        let Some(every) = setup.and_then(|setup| setup.check_ms) else { return };
        let process = self.candidates[who].process;
        let fails = self.time.now < self.processes[process].faults.ill_until;
        if let Some(health) = &mut self.processes[process].health {
            health.record(if fails { Err("ill".into()) } else { Ok(()) });
        }
        self.update_readiness(process);
        self.later(who, millis(every), Inner::Moves(Step::Check));
    }

    fn update_readiness(&mut self, process: usize) {
        let own = self.processes[process].readiness();
        for who in self.of_process(process) {
            let machine = self.candidates[who].machine.as_ref();
            if machine.is_some_and(|machine| machine.settings().readiness != own) {
                self.feed(who, Event::Readiness(own));
            }
        }
        self.member_stands(process, own);
    }

    /// By its check, and by whether the lock refuses its writes.
    pub(crate) fn readiness_of_machine(&mut self, who: usize) {
        let after = self.candidates[who].machine.as_ref().map(|machine| machine.readiness());
        if let (Some(after), Some((now, mover))) = (after, self.mover(who))
            && mover.moves.readiness() != after
        {
            mover.moves.set_readiness(now, after);
            self.time.log(|| format!("c{who} is {}", after.as_str()));
        }
    }

    /// Its own program or an operator wants it to hand over.
    fn hand_over(&mut self, who: usize, to: Successor, why: Why) {
        let Some((_, mover)) = self.mover(who) else { return };
        match mover.moves.request(to) {
            Ok(request) => self.call_ready(who, request, why),
            Err(refusal) => self.reply(who, &why, Err(refusal)),
        }
    }

    /// Its own member gives the term to another one.
    pub(crate) fn give_away(&mut self, who: usize, to: Arc<str>) {
        let Some((now, mover)) = self.mover(who) else { return };
        match mover.moves.give(now, to) {
            Ok(request) => self.call_ready(who, request, Why::GivesAway),
            Err(refusal) => self.reply(who, &Why::GivesAway, Err(refusal)),
        }
    }

    /// A candidate of this priority would rather lead.
    fn prefer(&mut self, who: usize, priority: u8, why: Why) {
        let Some((now, mover)) = self.mover(who) else { return };
        match mover.moves.prefer(now, priority) {
            Ok(request) => self.call_ready(who, request, why),
            Err(refusal) => self.reply(who, &why, Err(refusal)),
        }
    }

    /// A member that leads less asks for the term.
    fn asked_for(&mut self, who: usize, call: Call, request: TakeRequest) {
        let why = Why::Taken(call, request.clone());
        if let Err(refusal) = self.member_gives(who, &request) {
            return self.reply(who, &why, Err(refusal));
        }
        let Some((now, mover)) = self.mover(who) else { return };
        match mover.moves.take(now, request.clone()) {
            Ok(call) => {
                self.judge_giver(who, &request);
                self.call_ready(who, call, why);
            }
            Err(refusal) => {
                self.member_keeps(who);
                self.reply(who, &why, Err(refusal));
            }
        }
    }

    /// Whoever waits for the outcome of a move learns it.
    fn reply(&mut self, who: usize, why: &Why, outcome: Result<Arc<str>, Refusal>) {
        if let Err(refusal) = &outcome {
            let awaited = matches!(refusal, Refusal::Paused | Refusal::TooSoon);
            self.moved.refused += u64::from(awaited);
            self.time.log(|| format!("c{who} does not hand over: {refusal}"));
        }
        match why {
            Why::Requested(Some(call)) | Why::Preferred(call) | Why::Taken(call, _) => {
                let answer = match outcome {
                    Ok(to) => HandoverAnswer::To(to),
                    Err(refusal) => HandoverAnswer::Refused(refusal.to_string().into()),
                };
                self.answer(who, call, Some(answer));
            }
            Why::GivesAway => self.member_has_given(who, &outcome),
            Why::Requested(None) | Why::Alone | Why::Asks | Why::Roll => {}
        }
    }

    /// The leader has the answers to its call, unless that failed.
    fn roll_is_over(&mut self, who: usize, why: &Why, answers: Option<&[CandidateInfo]>) {
        let lease = self.candidates[who].timing.lease();
        let unix_ms = self.process(who).unix_ms(self.time.now);
        let stated = self.pause_stated_by(who);
        let priority = self.candidates[who].setup.priority;
        let Some((now, mover)) = self.mover(who) else { return };
        let (began, own) = (mover.began, mover.moves.readiness());
        let chosen = match answers {
            Some(answers) => mover.moves.on_roll(now, answers),
            None => {
                mover.moves.on_roll_failed(now);
                Err(Refusal::NotLeading)
            }
        };
        match chosen {
            Err(refusal) => {
                if self.candidates[who].drain.until().is_none() {
                    self.member_keeps(who);
                }
                self.reply(who, why, Err(refusal));
            }
            Ok(chosen) => {
                let to = chosen.nonce;
                let decision =
                    Decision { to, why, began, now, lease, own, priority, unix_ms, stated };
                self.judge_decision(who, &decision, answers.unwrap_or_default());
                self.time.log(|| format!("c{who} hands over to {} ({why:?})", chosen.identity));
                self.reply(who, why, Ok(chosen.identity.clone()));
                self.move_comes_to(MoveStep::Chooses, who, Some(to));
                self.feed(who, Event::HandOver { to, identity: chosen.identity });
            }
        }
    }

    /// The candidate of this nonce, if it lives.
    pub(super) fn of_nonce(&self, nonce: Nonce) -> Option<usize> {
        self.candidates.iter().position(|it| it.machine.is_some() && it.nonce() == nonce)
    }
}
