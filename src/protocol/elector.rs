//! The elector: takes in what happened, and passes it to the phase that it is in. The only
//! dispatcher.

use std::sync::Arc;
use std::time::Duration;

use super::context::{Context, Source, Transition};
use super::crash_release::RegisteredTerm;
use super::holding::Holding;
use super::observations::{KnownStepDown, PreviousTerm};
use super::sampling::HintRate;
use super::standby::{Standby, read_spread};
use super::stepping_down::SteppingDown;
use super::types::{
    Action, Cause, Event, Leader, LockFailure, Rank, Response, Settings, State, WaitReason,
};
use crate::lock::{
    CandidateRequest, Capabilities, Coverage, Hint, Nonce, Pause, Readiness, Record, Revision,
    RollCall, StepDownNotice, Successor, Token,
};
use crate::time::clock::Instant;
use crate::time::timing::with_drift;

/// What a candidate is doing. Each phase owns its data. Most candidates stand by: what others need
/// takes no room in them.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Idle,
    Standby(Standby),
    Holding(Box<Holding>),
    SteppingDown(Box<SteppingDown>),
    Finished,
}

/// One candidate's part in one election.
// A copy would be a twin: only the model check makes one.
#[cfg_attr(feature = "_model", derive(Clone))]
pub struct Elector {
    pub(super) cx: Context,
    pub(super) phase: Phase,
}

partial_debug!(
    Elector, self, settings: self.cx.settings, phase: self.phase, requests: self.cx.requests,
    vacancy: self.cx.observed.vacancy(), coverage: self.cx.coverage
);

impl Elector {
    /// An elector that has not begun.
    pub fn new(settings: Settings, capabilities: Capabilities) -> Self {
        Self { cx: Context::new(settings, capabilities), phase: Phase::Idle }
    }

    /// Takes in what happened at `now`, which must not be before the `now` of an earlier call.
    pub fn handle(&mut self, now: Instant, event: Event) {
        self.expire_if_due(now);
        self.time_out_request(now, &event);
        match event {
            Event::Start => self.start(now),
            Event::Wake => {}
            Event::Hint(hint) => self.on_hint(now, hint),
            Event::Response { id, response } => self.on_response(now, id, response),
            Event::TermEnded { work_stopped } => {
                if let Phase::SteppingDown(stepping_down) = &mut self.phase {
                    stepping_down.on_term_ended(&mut self.cx, now, work_stopped);
                }
            }
            Event::WorkEnded { panicked } => {
                let cause = if panicked { Cause::WorkPanicked } else { Cause::WorkEnded };
                self.step_down(now, cause);
            }
            Event::Resign => self.step_down(now, Cause::Resigned),
            Event::HandOver { to, identity } => self.hand_over(now, to, identity),
            Event::Readiness(readiness) => self.set_readiness(now, readiness),
            Event::Rank(rank) => self.set_rank(now, rank),
            Event::Stop => self.stop(now),
            Event::Capabilities(capabilities) => self.cx.capabilities = capabilities,
            Event::Advertise(advertisement) => self.cx.advertise(advertisement),
            Event::Pause(pause) => self.set_pause(now, pause),
            Event::Drains => {
                if let Phase::Holding(holding) = &mut self.phase {
                    holding.drains();
                }
            }
        }
        self.advance(now);
    }

    /// The next thing to do; `None` when all is done for now.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.cx.actions.pop_front()
    }

    /// When to send [`Event::Wake`] at the latest, if nothing else happens.
    pub fn next_wake(&self) -> Option<Instant> {
        let times_out = self.cx.requests.times_out_at();
        match &self.phase {
            Phase::Idle | Phase::Finished => None,
            Phase::Standby(standby) => {
                Some(times_out.unwrap_or(standby.next_wake(self.cx.health.check_at())))
            }
            Phase::Holding(holding) => {
                let grace = self.cx.settings.timing.grace();
                let at = holding.next_wake(grace, times_out.is_some());
                Some(times_out.map_or(at, |times_out| at.min(times_out)))
            }
            Phase::SteppingDown(stepping_down) => times_out.or(stepping_down.next_wake()),
        }
    }

    /// The state of this candidate. Whether it may lead is a comparison of the clock with
    /// [`deadline`](Self::deadline).
    pub fn state(&self) -> State {
        match self.term() {
            Some(_) => State::Leader,
            None if self.cx.heard_from_lock => State::Candidate,
            None => State::Unknown,
        }
    }

    /// When this candidate's right to lead ends; `None` unless it leads.
    pub fn deadline(&self) -> Option<Instant> {
        self.term().map(|(_, deadline)| deadline)
    }

    /// Whether its last write was refused, as by a missing permission, and it does not lead.
    pub fn is_refused(&self) -> bool {
        self.term().is_none() && self.cx.health.denies_writes()
    }

    /// How ready it is to lead: sick while it [is refused](Self::is_refused).
    pub fn readiness(&self) -> Readiness {
        if self.is_refused() { Readiness::Unhealthy } else { self.cx.settings.readiness }
    }

    /// When this candidate will lead, if it keeps the entry until then, and what it waits for;
    /// `None` unless it holds the entry and does not lead yet.
    pub fn cool_down(&self) -> Option<(Instant, WaitReason)> {
        match &self.phase {
            Phase::Holding(holding) => holding.cool_down(),
            _ => None,
        }
    }

    /// The shortest time that a request took.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.cx.latency.round_trip()
    }

    /// What the lock can do, as last reported.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.cx.capabilities
    }

    /// The holder of the election, as last seen.
    pub fn leader(&self) -> Option<&Leader> {
        self.cx.leader.as_ref()
    }

    /// The pause of the election at `now`, as far as is known.
    pub fn pause(&self, now: Instant) -> Option<Pause> {
        self.cx.pause(now)
    }

    /// When that pause ends.
    pub fn pause_ends(&self, now: Instant) -> Option<Instant> {
        self.cx.pause_ends(now)
    }

    /// How the term before ended, as far as this candidate has seen it since another one led.
    pub(crate) fn previous_term(&self) -> Option<PreviousTerm> {
        self.cx.previous_term
    }

    /// What keeps requests from succeeding.
    pub fn lock_failure(&self) -> Option<&LockFailure> {
        self.cx.health.failure()
    }

    /// The term whose entry may be released once this process is dead: one that began, until its
    /// entry is released or given up. A holder that still cools down has none: its entry keeps
    /// others out for an earlier leader.
    pub fn releasable(&self) -> Option<RegisteredTerm> {
        let token = match &self.phase {
            Phase::Holding(holding) => holding.term().map(|(token, _)| token),
            Phase::SteppingDown(stepping_down) => stepping_down.releasable(),
            _ => None,
        };
        let create = self.cx.requests.create;
        Some(RegisteredTerm { nonce: self.cx.settings.nonce, token: token?, create })
    }

    /// The settings it runs with.
    pub fn settings(&self) -> &Settings {
        &self.cx.settings
    }

    fn start(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Idle) {
            // Hints are being set up: a read before they come would have to be repeated.
            self.enter(now, Transition::StandBy { at: now + Duration::from_millis(20) });
        }
    }

    fn advance(&mut self, now: Instant) {
        let next = match &mut self.phase {
            Phase::Idle | Phase::Finished => Transition::Stay,
            Phase::Standby(standby) => standby.advance(&mut self.cx, now),
            Phase::Holding(holding) => holding.advance(&mut self.cx, now),
            Phase::SteppingDown(stepping_down) => stepping_down.advance(&mut self.cx, now),
        };
        self.enter(now, next);
    }

    /// Changes the phase. One that [`advance`](Self::advance) enters advances with the next event,
    /// any other one in the same call.
    fn enter(&mut self, now: Instant, next: Transition) {
        let cx = &mut self.cx;
        self.phase = match next {
            Transition::Stay => return,
            Transition::StandBy { at } => {
                // Of the time in which it received all of them nothing is learned.
                cx.hint_rate = cx.hint_rate.take().map(|_| Box::new(HintRate::new(now)));
                Phase::Standby(Standby::new(at))
            }
            Transition::Hold(stored) => {
                let holding = Holding::new(cx, now, stored);
                if cx.stopping {
                    return self.enter(now, holding.ends(Cause::Stopped, true));
                }
                Phase::Holding(Box::new(holding))
            }
            Transition::StepDown(term) => {
                Phase::SteppingDown(Box::new(SteppingDown::after_term(cx, now, term)))
            }
            Transition::StopStandby => {
                Phase::SteppingDown(Box::new(SteppingDown::after_standby(cx, now)))
            }
            Transition::Finish => {
                cx.requests.drop_in_flight();
                cx.act(Action::Finished);
                Phase::Finished
            }
        };
    }

    fn expire_if_due(&mut self, now: Instant) {
        if let Phase::Holding(holding) = &self.phase {
            self.enter(now, holding.expire_if_due(now));
        }
    }

    fn time_out_request(&mut self, now: Instant, event: &Event) {
        if let Some((id, response)) = self.cx.requests.timed_out(now, event) {
            self.on_response(now, id, response);
        }
    }

    fn step_down(&mut self, now: Instant, cause: Cause) {
        if let Phase::Holding(holding) = &self.phase {
            self.enter(now, holding.ends(cause, true));
        }
    }

    fn set_pause(&mut self, now: Instant, pause: Pause) {
        let before = self.cx.pause(now);
        self.cx.set_pause(now, Some(pause));
        if let Phase::Holding(holding) = &mut self.phase
            && self.cx.pause(now) != before
        {
            holding.state_soon(now);
        }
    }

    fn set_readiness(&mut self, now: Instant, readiness: Readiness) {
        self.cx.settings.readiness = readiness;
        if let Phase::Standby(standby) = &mut self.phase {
            standby.turn_changes(&mut self.cx, now);
        }
    }

    fn set_rank(&mut self, now: Instant, rank: Rank) {
        let before = std::mem::replace(&mut self.cx.settings.rank, rank);
        if let Phase::Standby(standby) = &mut self.phase {
            if before == Rank::Never && rank != Rank::Never {
                standby.becomes_eligible(now); // what it knows may be old
            } else {
                standby.turn_changes(&mut self.cx, now);
            }
        }
    }

    fn hand_over(&mut self, now: Instant, to: Nonce, identity: Arc<str>) {
        if let Phase::Holding(holding) = &self.phase {
            self.enter(now, holding.hand_over(to, identity));
        }
    }

    fn stop(&mut self, now: Instant) {
        self.cx.stopping = true;
        let next = match &self.phase {
            Phase::Idle => Transition::Finish,
            // A create is in flight: its response shows whether there is something to release.
            Phase::Standby(_) if self.cx.requests.is_writing() => Transition::Stay,
            Phase::Standby(_) => Transition::StopStandby,
            Phase::Holding(holding) => holding.ends(Cause::Stopped, true),
            Phase::SteppingDown(_) | Phase::Finished => Transition::Stay,
        };
        self.enter(now, next);
    }

    fn is_about_to_acquire(&self) -> bool {
        matches!(&self.phase, Phase::Standby(standby) if standby.is_about_to_acquire())
    }

    fn on_response(&mut self, now: Instant, id: u64, response: Response) {
        // The response to a request that was dropped is ignored.
        let Some(request) = self.cx.requests.take(id) else { return };
        let acquires = self.is_about_to_acquire();
        let cx = &mut self.cx;
        cx.assess_lock(now, &request, &response, acquires);
        let read = matches!(&response, Response::Read(Ok(_)));
        let next = match (&mut self.phase, response) {
            (Phase::Standby(standby), Response::Read(result)) => {
                standby.on_read(cx, now, request.sent, result)
            }
            (Phase::Standby(standby), Response::Written(result)) => {
                standby.on_written(cx, now, &request, result)
            }
            (Phase::Standby(standby), Response::Released(_)) => {
                standby.on_checked(cx, now);
                Transition::Stay
            }
            (Phase::Holding(holding), Response::Read(result)) => holding.on_read(cx, now, result),
            (Phase::Holding(holding), Response::Written(result)) => {
                holding.on_written(cx, now, &request, result)
            }
            (Phase::SteppingDown(stepping_down), response) => {
                stepping_down.on_response(cx, now, request.sent, response);
                Transition::Stay
            }
            _ => Transition::Stay,
        };
        self.enter(now, next);
        if read {
            self.cx.read_succeeded(self.is_about_to_acquire());
        }
    }
}

impl Elector {
    /// Whether a few hints are not enough for it: it holds the entry or is about to, its successor
    /// may have missed its step-down notice, or it observes.
    pub fn wants_all_hints(&self, now: Instant) -> bool {
        let settings = &self.cx.settings;
        match &self.phase {
            Phase::Idle | Phase::Finished => false,
            Phase::Holding(_) | Phase::SteppingDown(_) => true,
            Phase::Standby(standby) => {
                !settings.eligible
                    || settings.rank == Rank::Next
                    || standby.is_about_to_acquire()
                    || self.cx.requests.is_writing()
                    || self.cx.sent_notice.as_ref().is_some_and(|sent| now < sent.until)
            }
        }
    }

    fn on_hint(&mut self, now: Instant, hint: Hint) {
        match hint {
            Hint::Stored { record, previous, age } => {
                let few = !self.wants_all_hints(now);
                if let Some(rate) = self.cx.hint_rate.as_mut().filter(|_| few) {
                    rate.hint_came(now);
                }
                if let Some(age) = age {
                    self.cx.latency.hint_came_after(age);
                }
                self.cx.heard_from_lock = true;
                self.on_stored(now, record, previous.flatten());
                if matches!(&self.phase, Phase::Standby(s) if !s.is_about_to_acquire()) {
                    self.cx.hints_arrive();
                }
            }
            Hint::SteppedDown(notice) => self.on_step_down(now, &notice),
            Hint::Recheck => self.read_soon(now),
            Hint::RollCall(call) => self.on_call(now, &call),
            Hint::Coverage(coverage) => {
                let sampled = coverage == Coverage::Sampled;
                if !sampled || self.cx.hint_rate.is_none() {
                    self.cx.hint_rate = sampled.then(|| Box::new(HintRate::new(now)));
                }
                let before = std::mem::replace(&mut self.cx.coverage, coverage);
                if !sampled || before != Coverage::Full {
                    self.read_soon(now); // nothing is missed where few follow all
                }
            }
        }
    }

    fn on_stored(&mut self, now: Instant, record: Record, previous: Option<Revision>) {
        let cx = &mut self.cx;
        cx.observed.record_previous(&record, previous);
        let mine = cx.own_mark_in(&record).is_some();
        let expected = matches!(&self.phase, Phase::Holding(h) if h.expects(&record, mine));
        let response_on_the_way = mine && cx.requests.is_writing();
        if record.revision <= cx.observed.newest_revision() || expected || response_on_the_way {
            return;
        }
        if let Phase::Holding(holding) = &self.phase {
            self.enter(now, holding.superseded_by_hint(&record));
        }
        if let Phase::Standby(standby) = &mut self.phase {
            standby.on_stored(&mut self.cx, now, record, previous);
        } else {
            let source = Source { from_hint: true, on_standby: false };
            let held = self.cx.record(now, record, previous, source);
            // Not while work stops: the notice may be of an earlier term.
            let stopped = matches!(&self.phase, Phase::SteppingDown(s) if s.next_wake().is_some());
            if held && !mine && stopped {
                self.cx.repeat_notice(now);
            }
        }
    }

    fn on_step_down(&mut self, now: Instant, notice: &StepDownNotice) {
        let step_down = KnownStepDown {
            by: notice.by,
            token: notice.token,
            revision: notice.revision,
            clear_at: now + with_drift(notice.left),
        };
        self.cx.observed.record_step_down(step_down);
        if let Phase::Holding(holding) = &mut self.phase {
            holding.on_step_down(&step_down);
        }
    }

    /// The last leader names this candidate as its successor, to which its release may not have
    /// been reported. Anybody may say so: it costs a read.
    fn on_call(&mut self, now: Instant, call: &RollCall) {
        let names = Successor::Candidate(self.cx.settings.nonce);
        if self.cx.coverage != Coverage::Full
            && call.request == CandidateRequest::WhoCanSucceed(names)
            && let Phase::Standby(standby) = &mut self.phase
        {
            standby.read_soon(&self.cx, now, Duration::ZERO, now);
        }
    }

    /// A hint suggests a read, or hints have begun or ended.
    fn read_soon(&mut self, now: Instant) {
        let spread = self.cx.scaled(read_spread(self.cx.coverage));
        let soon = now + spread.mul_f64(self.cx.random.f64());
        match &mut self.phase {
            Phase::Standby(standby) => standby.read_soon(&self.cx, now, spread, soon),
            Phase::Holding(holding) => holding.read_soon(),
            _ => {}
        }
    }
}

/// What an elector on one of several locks shows the others, and how it is held back.
impl Elector {
    /// Has it only watch, before it begins.
    pub(super) fn begin_ineligible(&mut self) {
        self.cx.settings.eligible = false;
    }

    /// Has it take part from now on, or only watch. One that comes to take part reads first, within
    /// `spread`, as what it knows may be old. One that holds the entry, or whose create is in
    /// flight, is not touched.
    pub(super) fn set_eligible(&mut self, now: Instant, eligible: bool, spread: Duration) {
        if self.cx.settings.eligible == eligible {
            return;
        }
        self.cx.settings.eligible = eligible;
        let at = now + spread.mul_f64(self.cx.random.f64());
        if let Phase::Standby(standby) = &mut self.phase
            && eligible
        {
            standby.becomes_eligible(at);
        }
        self.handle(now, Event::Wake);
    }

    /// Whether it holds the entry, cooling down or leading.
    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding(_))
    }

    /// The token and the deadline, while it leads.
    pub(super) fn term(&self) -> Option<(Token, Instant)> {
        match &self.phase {
            Phase::Holding(holding) => holding.term(),
            _ => None,
        }
    }

    pub(super) fn is_stepping_down(&self) -> bool {
        matches!(self.phase, Phase::SteppingDown(_))
    }

    pub(super) fn has_heard(&self) -> bool {
        self.cx.heard_from_lock
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// Another candidate that holds the entry, as far as is known.
    pub(super) fn other_holder(&self, now: Instant) -> Option<&Leader> {
        self.cx.other_holder(now)
    }

    /// When what was last seen of other holders entitles them to nothing any more.
    pub(super) fn others_end(&self) -> Instant {
        self.cx.observed.seen_leases_end
    }

    /// What keeps it from acquiring the entry that another try soon will not fix.
    pub(super) fn lasting_failure(&self) -> Option<&LockFailure> {
        self.cx.lasting_failure()
    }
}
