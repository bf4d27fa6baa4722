//! Roll calls, requests to the leader and their answers, on a network that delays, loses and
//! repeats each message. Anybody may answer.

use std::time::Duration;

use incumbent::lock::{
    CallId, CandidateInfo, CandidateRequest, Coverage, HandoverAnswer, Hint, Nonce, Role, RollCall,
    Successor, TakeRequest,
};
use incumbent::protocol::Event;

use super::Step;
use crate::world::{Inner, SimEvent, World};

/// Candidates answer within this part of the time for answers.
const SPREAD: f64 = 0.8;
/// How often a message of a roll call is lost.
const LOSS: f64 = 0.12;

/// A roll call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    id: u64,
    /// In which election.
    key: usize,
    /// The candidate that calls, and which of its processes; `None`: an operator, who decides
    /// nothing by the answers, or somebody in the name of a candidate.
    pub by: Option<(usize, u32)>,
    pub request: CandidateRequest,
    within: Duration,
    /// Whether it was made while there were faults.
    pub stormy: bool,
}

/// A call of a candidate, whose answers it awaits.
#[derive(Debug)]
pub(crate) struct InFlight {
    id: u64,
    answers: Vec<CandidateInfo>,
    pub why: Why,
}

/// Why it calls, and who waits for the outcome.
#[derive(Debug, Clone)]
pub(crate) enum Why {
    /// The leader's program, or an operator, wants it to hand over.
    Requested(Option<Call>),
    /// The leader searches by itself: it is not ready, or one of higher priority has asked before.
    Alone,
    /// One of higher priority asks the leader.
    Preferred(Call),
    /// A member that leads less asks it.
    Taken(Call, TakeRequest),
    /// Its own member gives the term away.
    GivesAway,
    /// It does not lead, and asks the leader.
    Asks,
    /// A member wants to know who is there.
    Roll,
}

impl Why {
    /// Whether nobody has ordered a move.
    pub fn is_voluntary(&self) -> bool {
        !matches!(self, Self::Requested(_))
    }
}

impl World {
    /// A candidate calls the roll.
    pub(crate) fn call(
        &mut self,
        who: usize,
        request: CandidateRequest,
        within: Duration,
        why: Why,
    ) {
        let (life, key) = (self.life(who), self.candidates[who].key);
        let id = self.next_call();
        self.time.log(|| format!("c{who} calls: {request:?}"));
        if let Some(mover) = &mut self.candidates[who].mover {
            if self.scenario.set.is_none() {
                mover.calls.clear();
            }
            mover.calls.push(InFlight { id, answers: Vec::new(), why });
        }
        let faults = &self.process(who).faults;
        let cut = self.time.now < faults.cut_out_until;
        let failed = cut && faults.knows_cut;
        let after = if failed { Duration::from_millis(1) } else { within };
        self.later(who, after, Inner::Moves(Step::Over { call: id, failed }));
        if !cut {
            let (by, stormy) = (Some((who, life)), !self.time.calm);
            self.deliver_call(&Call { id, key, by, request, within, stormy });
        }
    }

    /// An operator calls the roll, or somebody in the name of a candidate.
    pub(crate) fn others_call(&mut self, key: usize, request: CandidateRequest) {
        let (id, stormy) = (self.next_call(), !self.time.calm);
        let within = Duration::from_secs(3);
        self.deliver_call(&Call { id, key, by: None, request, within, stormy });
    }

    /// The lock notifies the candidate that a release names. Nothing waits for the answer.
    pub(crate) fn notify_successor(&mut self, to: Nonce) {
        let call = RollCall {
            id: CallId(self.next_call()),
            within: Duration::ZERO,
            request: CandidateRequest::WhoCanSucceed(Successor::Candidate(to)),
        };
        let Some(who) = self.of_nonce(to).filter(|who| self.hears_calls(*who)) else { return };
        for after in self.time.passages(LOSS) {
            self.later(who, after, Inner::Hint(Hint::RollCall(call.clone())));
        }
    }

    fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Calls come with the hints; a program that knows of none answers none.
    fn hears_calls(&self, who: usize) -> bool {
        self.candidates[who].setup.coverage != Coverage::None && !self.is_mute(who)
    }

    fn deliver_call(&mut self, call: &Call) {
        for who in self.of_election(call.key) {
            if !self.hears_calls(who) {
                continue;
            }
            for after in self.time.passages(LOSS) {
                self.later(who, after, Inner::Moves(Step::Called(call.clone())));
            }
        }
        for info in self.forged_answers(&call.request) {
            if let (Some((who, life)), Some(after)) = (call.by, self.time.passage(LOSS)) {
                let what = Inner::Moves(Step::Answered { call: call.id, info });
                self.time.after(after, SimEvent::In { who, life, what });
            }
        }
    }

    /// A call arrives at a candidate.
    pub(super) fn called(&mut self, who: usize, call: Call) {
        let Some((_, mover)) = self.mover(who) else { return };
        let leads = mover.began.is_some();
        match &call.request {
            CandidateRequest::Identify => {}
            CandidateRequest::WhoCanSucceed(to) if !leads && self.is_meant(who, to) => {}
            CandidateRequest::Pause(pause) => {
                let machine = self.candidates[who].machine.as_ref();
                if machine.and_then(|it| it.leader()).is_some_and(|leader| leader.is_me) {
                    let pause = *pause;
                    self.judge_pauses(who, pause);
                    self.time.log(|| format!("c{who} is to state a pause: {pause:?}"));
                    self.feed(who, Event::Pause(pause));
                }
                return;
            }
            CandidateRequest::HandOver(to) if leads => {
                return self.hand_over(who, to.clone(), Why::Requested(Some(call)));
            }
            CandidateRequest::Prefer { priority, .. } if leads => {
                return self.prefer(who, *priority, Why::Preferred(call));
            }
            CandidateRequest::Take(request) if leads => {
                let request = request.clone();
                return self.asked_for(who, call, request);
            }
            _ => return,
        }
        let after = call.within.mul_f64(SPREAD * self.time.random.f64());
        self.later(who, after, Inner::Moves(Step::Answer(call)));
    }

    fn is_meant(&self, who: usize, to: &Successor) -> bool {
        match to {
            Successor::Any => true,
            Successor::Identity(to) => **to == *self.name(who),
            Successor::Candidate(to) => *to == self.candidates[who].nonce(),
            _ => false,
        }
    }

    /// It answers with what it is at this moment.
    pub(super) fn answer(&mut self, who: usize, call: &Call, handover: Option<HandoverAnswer>) {
        let Some((caller, life)) = call.by else { return };
        let candidate = &self.candidates[who];
        let draining = candidate.drain.until().is_some();
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
        info.readiness = mover.moves.readiness();
        info.handover = handover;
        info.load = self.process(who).member.as_ref().map(|member| member.share.load());
        if self.time.now < self.process(who).faults.cut_out_until {
            return;
        }
        for after in self.time.passages(LOSS) {
            let what = Inner::Moves(Step::Answered { call: call.id, info: info.clone() });
            self.time.after(after, SimEvent::In { who: caller, life, what });
        }
    }

    /// An answer arrives. The last one of each candidate counts.
    pub(super) fn answered(&mut self, who: usize, call: u64, info: CandidateInfo) {
        let Some(mover) = &mut self.candidates[who].mover else { return };
        let Some(open) = mover.calls.iter_mut().find(|open| open.id == call) else { return };
        let settles = matches!(open.why, Why::Asks) && info.handover.is_some();
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
        let Some(open) = mover.calls.iter().position(|open| open.id == call) else { return };
        let InFlight { answers, why, .. } = mover.calls.remove(open);
        self.time.log(|| {
            let told = answers.iter().map(|it| (&it.identity, it.role, it.readiness, &it.handover));
            format!("c{who} has answers: {:?}", told.collect::<Vec<_>>())
        });
        let heard = (!failed).then_some(&answers[..]);
        match &why {
            Why::Roll => self.member_has_roll(who, heard),
            Why::Asks if self.process(who).member.is_some() => {
                self.leader_answers_member(who, &answers);
            }
            Why::Asks => {
                if let Some((now, mover)) = self.mover(who) {
                    mover.moves.on_answer(now, &answers);
                }
            }
            why => self.roll_is_over(who, why, heard),
        }
    }
}
