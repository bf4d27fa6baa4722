//! Roll calls, requests for shards and their answers, on a network that delays, loses and repeats
//! each message.

use std::time::Duration;

use incumbent::lock::{CandidateInfo, CandidateRequest, HandoverAnswer, Role, TakeRequest};
use incumbent::protocol::set::TakeOutcome;

use super::moves::{ROLL_WITHIN, Step};
use super::world::{Inner, SetEvent, SetWorld};

/// How often a message of a roll call is lost.
const LOSS: f64 = 0.12;

/// A roll call.
#[derive(Debug, Clone)]
pub struct Call {
    pub id: u64,
    pub shard: u32,
    /// Whose it is; `None`: an operator's, or a forged one.
    pub by: Option<(usize, u32)>,
    pub request: CandidateRequest,
    pub within: Duration,
    /// Whether it was made while there were faults.
    pub stormy: bool,
}

/// A call of a process, whose answers it awaits.
#[derive(Debug)]
pub struct Open {
    shard: u32,
    answers: Vec<CandidateInfo>,
    pub why: Why,
}

/// Why it calls.
#[derive(Debug, Clone)]
pub enum Why {
    /// The member wants to know who is there.
    Roll,
    /// The member asks for the shard.
    Take,
    /// The leader asks who is ready, as a member asks for the shard.
    Taken(Call, TakeRequest),
    /// The same, as its own member gives the shard away.
    GivesAway,
    /// The same, as an operator wants it.
    Requested(Call),
}

impl SetWorld {
    pub(super) fn call(
        &mut self,
        who: usize,
        shard: u32,
        request: CandidateRequest,
        within: Duration,
        why: Why,
    ) {
        self.calls += 1;
        let id = self.calls;
        let member = &mut self.members[who];
        let cut = self.now < member.faults.cut_out_until;
        let failed = cut && member.faults.knows_cut;
        let by = Some((who, member.life));
        let Some(up) = &mut member.up else { return };
        up.open.insert(id, Open { shard, answers: Vec::new(), why });
        let after = if failed { Duration::from_millis(1) } else { within };
        self.later(after, who, Inner::Step(Step::Over { call: id, failed }));
        if !cut {
            let stormy = !self.calm;
            self.deliver_call(&Call { id, shard, by, request, within, stormy });
        }
    }

    /// An operator calls, or somebody in the name of a member.
    pub(super) fn others_call(&mut self, shard: u32, request: CandidateRequest) {
        self.calls += 1;
        let (id, within, stormy) = (self.calls, ROLL_WITHIN, !self.calm);
        self.deliver_call(&Call { id, shard, by: None, request, within, stormy });
    }

    fn deliver_call(&mut self, call: &Call) {
        for who in 0..self.members.len() {
            if self.members[who].setup.mute {
                continue;
            }
            for _ in 0..self.copies() {
                if let Some(after) = self.passage(LOSS) {
                    self.later(after, who, Inner::Step(Step::Called(call.clone())));
                }
            }
        }
    }

    /// It answers with what it is at this moment.
    pub(super) fn answer(&mut self, who: usize, call: &Call, handover: Option<HandoverAnswer>) {
        let Some((caller, life)) = call.by else { return };
        let cut = self.now < self.members[who].faults.cut_out_until;
        let Some((up, index)) = self.seat(who, call.shard) else { return };
        let seat = &up.seats[index];
        let mut info = CandidateInfo::new(up.identity.clone(), seat.nonce);
        info.role = match seat.began {
            Some(_) if seat.drain.until().is_some() => Role::Draining,
            Some(_) => Role::Leader,
            None if seat.machine.cool_down().is_some() => Role::CoolingDown,
            None => Role::Standby,
        };
        info.standing = up.standing;
        info.handover = handover;
        info.load = Some(up.share.load());
        for _ in 0..if cut { 0 } else { self.copies() } {
            if let Some(after) = self.passage(LOSS) {
                let what = Inner::Step(Step::Answered { call: call.id, info: info.clone() });
                self.after(after, SetEvent::In { who: caller, life, what });
            }
        }
    }

    /// The last answer of each candidate counts.
    pub(super) fn answered(&mut self, who: usize, call: u64, info: CandidateInfo) {
        let Some(up) = self.members[who].up.as_deref_mut() else { return };
        let Some(open) = up.open.get_mut(&call) else { return };
        let settles = matches!(open.why, Why::Take) && info.handover.is_some();
        match open.answers.iter_mut().find(|known| known.nonce == info.nonce) {
            Some(known) => *known = info,
            None => open.answers.push(info),
        }
        if settles {
            self.call_is_over(who, call, false);
        }
    }

    pub(super) fn call_is_over(&mut self, who: usize, call: u64, failed: bool) {
        let now = self.members[who].clock.local(self.now);
        let Some(up) = self.members[who].up.as_deref_mut() else { return };
        let Some(Open { shard, answers, why }) = up.open.remove(&call) else { return };
        match &why {
            Why::Roll => {
                up.set.on_roll(now, (!failed).then_some(&answers[..]));
                self.poke(who);
            }
            Why::Take => {
                let outcome = match answers.into_iter().find_map(|info| info.handover) {
                    Some(HandoverAnswer::To(_)) => TakeOutcome::Accepted,
                    Some(HandoverAnswer::Refused(_)) => TakeOutcome::Refused,
                    _ => TakeOutcome::NoAnswer,
                };
                self.figures.accepted += u64::from(outcome == TakeOutcome::Accepted);
                self.log(|| format!("m{who} asked for {shard}: {outcome:?}"));
                self.outcome(who, shard, outcome);
            }
            _ => self.roll_is_over(who, shard, &why, (!failed).then_some(answers)),
        }
    }
}
