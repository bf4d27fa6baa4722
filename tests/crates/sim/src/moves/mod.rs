//! What drivers do with the moves of their candidates: checks, requests to hand over, and the
//! requests of those that would rather lead.

mod calls;
mod faults;
mod promises;

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    CandidateInfo, CandidateRequest, HandoverAnswer, Nonce, Pause, Standing, Successor,
};
use incumbent::protocol::{Event, Health, MoveCall, MoveRole, MoveSettings, Moves};

use crate::event::SimEvent;
use crate::process_faults::millis;
use crate::world::World;
use calls::{Call, InFlight};
pub(crate) use faults::PendingFaults;
pub use faults::{MoveFault, MoveStep};
pub(crate) use promises::{Decision, Judge};

/// As the driver waits.
const ROLL_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// What wall clocks show when the world begins.
pub(crate) const EPOCH_MS: u64 = 1_700_000_000_000;
/// Results of a check that change the health.
const FAILURES: u32 = 2;

/// How the moves of one candidate are set up.
#[derive(Debug, Clone)]
pub struct MoveSetup {
    pub prefer_after_ms: Option<u16>,
    /// It begins by standing aside.
    pub aside: bool,
    /// How often its check runs, if it has one.
    pub check_ms: Option<u16>,
}

/// The same of one process.
#[derive(Debug)]
pub struct Mover {
    pub moves: Moves,
    health: Option<Health>,
    aside: bool,
    /// Since when it leads.
    began: Option<Instant>,
    call: Option<InFlight>,
}

/// Why a leader calls the roll, and who waits for the outcome.
#[derive(Debug)]
pub(crate) enum Why {
    /// Its own program, or an operator, wants it to hand over.
    Requested,
    /// It searches by itself: it is not ready, or one of higher priority has asked before.
    Alone,
    /// One of higher priority asks.
    Preferred(Call),
}

/// What happens to a candidate's moves.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Its check ends.
    Check,
    /// A call arrives.
    Called(Call),
    /// Its moment to answer has come.
    Answer(Call),
    /// An answer to its own call arrives.
    Answered {
        call: u64,
        info: CandidateInfo,
    },
    /// Its own call is over.
    Over {
        call: u64,
        failed: bool,
    },
    /// Its program wants it to hand over.
    HandOver,
    StandAside(bool),
}

/// What was seen, so that nothing can pass by not happening.
#[derive(Debug, Default, Clone, Copy)]
pub struct Moved {
    /// Terms that were handed over.
    pub handovers: u64,
    /// The same, which nobody had ordered.
    pub voluntary: u64,
    /// Handovers after which the named successor led next.
    pub succeeded: u64,
    /// Creates that had a pause to carry on.
    pub carried: u64,
    /// Handovers that a pause, or the age of the term, kept from happening.
    pub refused: u64,
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.handovers += other.handovers;
        self.voluntary += other.voluntary;
        self.succeeded += other.succeeded;
        self.carried += other.carried;
        self.refused += other.refused;
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handovers, voluntary, succeeded, carried, refused } = self;
        write!(
            f,
            "{handovers} handovers, {voluntary} of them voluntary, {succeeded} to the one that led \
             next; {refused} refused since it was too soon or paused; {carried} pauses carried on"
        )
    }
}

impl MoveSetup {
    fn health(&self) -> Option<Health> {
        self.check_ms.and(FAILURES.try_into().ok()).map(Health::new)
    }
}

impl Mover {
    /// Of a process that begins.
    pub fn new(setup: &MoveSetup, settings: MoveSettings, now: Instant) -> Self {
        let (health, aside) = (setup.health(), setup.aside);
        let moves = Moves::new(settings, now, standing(health.as_ref(), aside));
        Self { moves, health, aside, began: None, call: None }
    }

    /// It leads from now on, or no longer does.
    pub fn leads(&mut self, began: Option<Instant>) {
        self.began = began;
    }
}

/// Milliseconds since the Unix epoch at the origin of a candidate's clock, by its wall clock.
pub(crate) fn origin_unix_ms(origin: Duration, wall_ms: i16) -> u64 {
    EPOCH_MS.saturating_add_signed(i64::from(wall_ms)) - origin.as_millis() as u64
}

fn standing(health: Option<&Health>, aside: bool) -> Standing {
    match health {
        Some(health) if !health.is_healthy() => Standing::Sick,
        _ if aside => Standing::Aside,
        _ => Standing::Ready,
    }
}

impl World {
    /// With the role that it has now.
    fn mover(&mut self, who: usize) -> Option<(Instant, &mut Mover)> {
        let now = self.candidates[who].local(self.now);
        let candidate = &mut self.candidates[who];
        let (machine, mover) = (candidate.machine.as_ref()?, candidate.mover.as_deref_mut()?);
        let role = match mover.began {
            Some(began) => MoveRole::Leads(began),
            None => MoveRole::standby(machine.leader()),
        };
        mover.moves.set_role(now, role, machine.pause_ends(now));
        Some((now, mover))
    }

    /// A process begins.
    pub(super) fn begin_moves(&mut self, who: usize) {
        self.judge.forgets(who);
        let checks =
            self.candidates[who].setup.moves.as_ref().is_some_and(|it| it.check_ms.is_some());
        if checks {
            let (after, life) = (self.millis(0..100), self.candidates[who].life);
            self.after(after, SimEvent::Moves { who, life, step: Step::Check });
        }
    }

    /// Does what is due.
    pub(super) fn advance_moves(&mut self, who: usize) {
        let Some((now, mover)) = self.mover(who) else { return };
        match mover.moves.advance(now) {
            Some(MoveCall::Ready) => self.call_ready(who, Why::Alone),
            Some(MoveCall::Leader(request)) => self.call(who, request, ANSWER_WITHIN, None),
            None => {}
        }
    }

    fn call_ready(&mut self, who: usize, why: Why) {
        self.call(who, CandidateRequest::Identify, ROLL_WITHIN, Some(why));
        self.move_comes_to(MoveStep::Calls, who, None);
    }

    pub(super) fn step_moves(&mut self, who: usize, life: u32, step: Step) {
        let candidate = &self.candidates[who];
        if candidate.life != life || candidate.machine.is_none() {
            return;
        }
        match step {
            Step::Check => self.check(who),
            // What was stuck as the faults ceased would move the leadership for a past reason.
            Step::Called(call) if self.calm && call.stormy => {}
            Step::Called(call) => self.called(who, &call),
            Step::Answer(call) => self.answer(who, &call, None),
            Step::Answered { call, info } => self.answered(who, call, info),
            Step::Over { call, failed } => self.call_is_over(who, call, failed),
            Step::HandOver => self.hand_over(who, Successor::Any, None),
            Step::StandAside(aside) => {
                if let Some((_, mover)) = self.mover(who) {
                    mover.aside = aside;
                }
                self.update_standing(who);
            }
        }
        self.advance_moves(who);
        self.set_wake(who);
    }

    fn check(&mut self, who: usize) {
        let fails = self.now < self.candidates[who].faults.ill_until;
        let Some(every) = self.candidates[who].setup.moves.as_ref().and_then(|it| it.check_ms)
        else {
            return;
        };
        if let Some((_, Mover { health: Some(health), .. })) = self.mover(who) {
            health.record(if fails { Err("ill".into()) } else { Ok(()) });
        }
        self.update_standing(who);
        let life = self.candidates[who].life;
        let after = millis(every);
        self.after(after, SimEvent::Moves { who, life, step: Step::Check });
    }

    fn update_standing(&mut self, who: usize) {
        let Some((_, mover)) = self.mover(who) else { return };
        let own = standing(mover.health.as_ref(), mover.aside);
        let machine = self.candidates[who].machine.as_ref();
        if machine.is_some_and(|machine| machine.settings().standing != own) {
            self.feed(who, Event::Standing(own));
        }
    }

    /// By its check, and by whether the lock refuses its writes.
    pub(crate) fn standing_of_machine(&mut self, who: usize) {
        let after = self.candidates[who].machine.as_ref().map(|machine| machine.standing());
        if let (Some(after), Some((now, mover))) = (after, self.mover(who))
            && mover.moves.standing() != after
        {
            mover.moves.set_standing(now, after);
            self.log(|| format!("c{who} is {}", after.as_str()));
        }
    }

    /// Its own program, or an operator, wants it to hand over. `call`: who waits for the outcome.
    fn hand_over(&mut self, who: usize, to: Successor, call: Option<&Call>) {
        let Some((_, mover)) = self.mover(who) else { return };
        match mover.moves.request(to) {
            Ok(()) => self.call_ready(who, Why::Requested),
            Err(why) => self.refuse(who, call, &why),
        }
    }

    /// A candidate of this priority would rather lead.
    fn prefer(&mut self, who: usize, call: &Call, priority: u8) {
        let Some((now, mover)) = self.mover(who) else { return };
        match mover.moves.prefer(now, priority) {
            Ok(()) => self.call_ready(who, Why::Preferred(call.clone())),
            Err(why) => self.refuse(who, Some(call), &why),
        }
    }

    fn refuse(&mut self, who: usize, call: Option<&Call>, why: &incumbent::protocol::Refusal) {
        use incumbent::protocol::Refusal::{Paused, TooSoon};
        self.moved.refused += u64::from(matches!(why, Paused | TooSoon));
        self.log(|| format!("c{who} does not hand over: {why}"));
        if let Some(call) = call {
            let refused = HandoverAnswer::Refused(why.to_string().into());
            self.answer(who, call, Some(refused));
        }
    }

    /// The leader has the answers to its call.
    fn roll_is_over(&mut self, who: usize, why: Why, answers: Option<Vec<CandidateInfo>>) {
        let lease = self.candidates[who].timing.lease();
        let unix_ms = self.candidates[who].unix_ms(self.now);
        let stated = self.pause_stated_by(who);
        let priority = self.candidates[who].setup.priority;
        let Some((now, mover)) = self.mover(who) else { return };
        let (began, own) = (mover.began, mover.moves.standing());
        let Some(answers) = answers else {
            return mover.moves.on_roll_failed(now);
        };
        let chosen = mover.moves.on_roll(now, &answers);
        let call = match &why {
            Why::Preferred(call) => Some(call),
            Why::Requested | Why::Alone => None,
        };
        match chosen {
            Err(refusal) => self.refuse(who, call, &refusal),
            Ok(chosen) => {
                let to = chosen.nonce;
                let decision =
                    Decision { to, why: &why, began, now, lease, own, priority, unix_ms, stated };
                if let Err(wrong) = self.judge.decides(who, &decision, &answers) {
                    self.checker.fail(format!("candidate {who} {wrong}"));
                }
                self.log(|| format!("c{who} hands over to {} ({why:?})", chosen.identity));
                if let Some(call) = call {
                    self.answer(who, call, Some(HandoverAnswer::To(chosen.identity.clone())));
                }
                self.move_comes_to(MoveStep::Chooses, who, Some(to));
                self.feed(who, Event::HandOver { to, identity: chosen.identity });
            }
        }
    }

    /// The candidate of this nonce, if it lives.
    pub(super) fn of_nonce(&self, nonce: Nonce) -> Option<usize> {
        self.candidates.iter().position(|it| it.machine.is_some() && it.nonce() == nonce)
    }

    /// A pause that begins now, as an operator's wall clock shows.
    fn pause_for(&self, span: Duration) -> Pause {
        Pause { until_unix_ms: EPOCH_MS + (self.now + span).as_millis() as u64 }
    }
}
