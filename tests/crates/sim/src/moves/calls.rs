//! Roll calls, on a network that delays, loses and repeats each message. Anybody may answer.

use std::time::Duration;

use incumbent::lock::{
    CallId, CandidateInfo, CandidateRequest, Coverage, HandoverAnswer, Hint, Nonce, Role, RollCall,
    Successor,
};

use incumbent::protocol::Event;

use super::{MoveStep, Step, Why};
use crate::event::SimEvent;
use crate::world::World;

/// Candidates answer within this part of the time for answers.
const SPREAD: f64 = 0.8;
/// How often a message of a roll call is lost.
const LOSS: f64 = 0.12;

/// A roll call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    id: u64,
    /// The candidate that calls, and which of its processes; `None`: an operator, who decides
    /// nothing by the answers.
    by: Option<(usize, u32)>,
    pub request: CandidateRequest,
    within: Duration,
    /// Whether it was made while there were faults.
    pub stormy: bool,
}

/// The call that a candidate waits for.
#[derive(Debug)]
pub(crate) struct InFlight {
    id: u64,
    answers: Vec<CandidateInfo>,
    /// `None`: it waits for the answer of the leader.
    why: Option<Why>,
}

impl World {
    /// A candidate calls the roll.
    pub(super) fn call(
        &mut self,
        who: usize,
        request: CandidateRequest,
        within: Duration,
        why: Option<Why>,
    ) {
        let life = self.candidates[who].life;
        let id = self.next_call();
        self.log(|| format!("c{who} calls: {request:?}"));
        if let Some(mover) = &mut self.candidates[who].mover {
            mover.call = Some(InFlight { id, answers: Vec::new(), why });
        }
        let candidate = &self.candidates[who];
        let cut = self.now < candidate.faults.cut_out_until;
        let failed = cut && candidate.faults.knows_cut;
        let over = Step::Over { call: id, failed };
        let after = if failed { Duration::from_millis(1) } else { within };
        self.after(after, SimEvent::Moves { who, life, step: over });
        if !cut {
            let stormy = !self.calm;
            self.deliver_call(&Call { id, by: Some((who, life)), request, within, stormy });
        }
    }

    /// An operator calls the roll.
    pub(super) fn operator_calls(&mut self, request: CandidateRequest) {
        let (id, stormy) = (self.next_call(), !self.calm);
        let within = Duration::from_secs(3);
        self.deliver_call(&Call { id, by: None, request, within, stormy });
    }

    /// The lock notifies the candidate that a release names. Nothing waits for the answer.
    pub(crate) fn notify_successor(&mut self, to: Nonce) {
        let call = RollCall {
            id: CallId(self.next_call()),
            within: Duration::ZERO,
            request: CandidateRequest::Succeed(Successor::Candidate(to)),
        };
        let Some(who) = self.of_nonce(to) else { return };
        if self.candidates[who].setup.coverage == Coverage::None {
            return;
        }
        for _ in 0..self.copies() {
            if let Some(after) = self.passage(LOSS) {
                let (life, hint) = (self.candidates[who].life, Hint::RollCall(call.clone()));
                self.after(after, SimEvent::Hint { who, life, hint });
            }
        }
    }

    fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    fn deliver_call(&mut self, call: &Call) {
        for who in 0..self.candidates.len() {
            if self.candidates[who].setup.coverage == Coverage::None {
                continue; // calls come with the hints
            }
            for _ in 0..self.copies() {
                if let Some(after) = self.passage(LOSS) {
                    let (life, call) = (self.candidates[who].life, call.clone());
                    self.after(after, SimEvent::Moves { who, life, step: Step::Called(call) });
                }
            }
        }
        for info in self.forged_answers(&call.request) {
            if let (Some((who, life)), Some(after)) = (call.by, self.passage(LOSS)) {
                let step = Step::Answered { call: call.id, info };
                self.after(after, SimEvent::Moves { who, life, step });
            }
        }
    }

    /// A call arrives at a candidate.
    pub(super) fn called(&mut self, who: usize, call: &Call) {
        if self.now < self.candidates[who].faults.cut_in_until {
            return;
        }
        let Some((_, mover)) = self.mover(who) else { return };
        let leads = mover.began.is_some();
        match &call.request {
            CandidateRequest::Identify => {}
            CandidateRequest::Pause(pause) => {
                let machine = self.candidates[who].machine.as_ref();
                if machine.and_then(|it| it.leader()).is_some_and(|leader| leader.is_me) {
                    let pause = *pause;
                    self.judge.pauses(who, pause);
                    self.log(|| format!("c{who} is to state a pause: {pause:?}"));
                    self.feed(who, Event::Pause(pause));
                }
                return;
            }
            CandidateRequest::HandOver(to) => {
                if leads {
                    self.hand_over(who, to.clone(), Some(call));
                }
                return;
            }
            CandidateRequest::Prefer { priority, .. } if leads => {
                return self.prefer(who, call, *priority);
            }
            _ => return,
        }
        let after = call.within.mul_f64(SPREAD * self.random.f64());
        let life = self.candidates[who].life;
        self.after(after, SimEvent::Moves { who, life, step: Step::Answer(call.clone()) });
    }

    /// It answers with what it is at this moment.
    pub(super) fn answer(&mut self, who: usize, call: &Call, handover: Option<HandoverAnswer>) {
        let Some((caller, life)) = call.by else { return };
        let draining = self.candidates[who].drain.until().is_some();
        let candidate = &self.candidates[who];
        let (Some(machine), Some(mover)) = (&candidate.machine, &candidate.mover) else { return };
        let settings = machine.settings();
        let mut info = CandidateInfo::new(settings.identity.clone(), settings.nonce);
        info.role = match mover.began {
            Some(_) if draining => Role::Draining,
            Some(_) => Role::Leader,
            None if machine.cool_down().is_some() => Role::CoolingDown,
            None => Role::Standby,
        };
        info.priority = settings.priority;
        info.standing = mover.moves.standing();
        info.handover = handover;
        if self.now < candidate.faults.cut_out_until {
            return;
        }
        for _ in 0..self.copies() {
            if let Some(after) = self.passage(LOSS) {
                let step = Step::Answered { call: call.id, info: info.clone() };
                self.after(after, SimEvent::Moves { who: caller, life, step });
            }
        }
    }

    /// An answer arrives. The last one of each candidate counts.
    pub(super) fn answered(&mut self, who: usize, call: u64, info: CandidateInfo) {
        if self.now < self.candidates[who].faults.cut_in_until {
            return;
        }
        let Some(mover) = &mut self.candidates[who].mover else { return };
        let Some(open) = mover.call.as_mut().filter(|open| open.id == call) else { return };
        let settles = open.why.is_none() && info.handover.is_some();
        match open.answers.iter_mut().find(|known| known.nonce == info.nonce) {
            Some(known) => *known = info,
            None => open.answers.push(info),
        }
        if settles {
            self.call_is_over(who, call, false);
        }
    }

    pub(super) fn call_is_over(&mut self, who: usize, call: u64, failed: bool) {
        let Some(mover) = &mut self.candidates[who].mover else { return };
        let Some(InFlight { answers, why, .. }) = mover.call.take_if(|open| open.id == call) else {
            return;
        };
        self.log(|| {
            let told = answers.iter().map(|it| (&it.identity, it.role, it.standing, &it.handover));
            format!("c{who} has answers: {:?}", told.collect::<Vec<_>>())
        });
        let Some(why) = why else {
            if let Some((now, mover)) = self.mover(who) {
                mover.moves.on_answer(now, &answers);
            }
            return;
        };
        self.roll_is_over(who, why, (!failed).then_some(answers));
    }

    /// A move of the candidate `who` comes to this point: a fault may wait for it there.
    pub(super) fn move_comes_to(&mut self, step: MoveStep, who: usize, to: Option<Nonce>) {
        let successor = to.and_then(|to| self.of_nonce(to));
        self.crash_in_move(step, who, successor);
    }
}
