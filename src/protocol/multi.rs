//! Several electors as one: a machine for each lock, and one term while all that are required lead.
//!
//! Every machine keeps its own promise on its own lock, with its own deadline, cool-down and
//! observations. A joint term is their work: it begins when all required machines lead, ends when
//! the first of them has to stop, and no machine receives that its work has stopped before the
//! joint work has. So a joint leader leads on every required lock, and two candidates that require
//! one and the same lock exclude each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::elector::Elector;
use super::types::{Action, Cause, Event, LockFailure, Response, Settings, State};
use crate::lock::{Capabilities, LockErrorKind, Need, Token};
use crate::time::clock::Instant;

/// Over how long candidates that become eligible at one moment spread their reads.
const SPREAD: Duration = Duration::from_millis(250);
/// How long a best-effort lock must fail at least before a term does without it, also where a short
/// lease leaves each request less time: one that was slow is no reason.
const MIN_ABSENCE: Duration = Duration::from_millis(250);
/// Doublings after which the longest rest is reached.
const MAX_DOUBLINGS: u32 = 4;

/// What the elector on one of the locks is created from.
pub(crate) struct MemberSettings {
    pub settings: Settings,
    pub capabilities: Capabilities,
    pub need: Need,
}

/// An elector on each of several locks, taken in order and released in reverse.
///
/// It takes the events of an [`Elector`] and by which lock they came, and returns what to do, and
/// on which lock.
pub struct MultiElector {
    members: Vec<MemberElector>,
    /// The first required one: its leader is the leader.
    first: usize,
    /// Whether to acquire the locks at all, or only to watch.
    eligible: bool,
    phase: Phase,
    stopping: bool,
    /// How often in a row everything was given back because not all could be had.
    yields: u32,
    /// After that: not before all are free, or this.
    wary_until: Option<Instant>,
    random: fastrand::Rng,
    actions: VecDeque<(usize, Action)>,
    /// When to check again, if nothing happens.
    wake_at: Option<Instant>,
}

/// One of the locks.
struct MemberElector {
    elector: Elector,
    need: Need,
    /// Its term has ended, and it has not received yet that the work has stopped.
    ended: Option<(Cause, Instant)>,
    /// Since when its requests have failed.
    failing_since: Option<Instant>,
    /// Its lock has denied a request since it last became eligible.
    denied: bool,
    /// Its term ended before the joint one had to end.
    lost: bool,
}

#[derive(Debug)]
enum Phase {
    Idle,
    /// No term: taking what can be had, in order.
    Acquiring {
        /// When to give back what is held, if the rest has not been had by then.
        yield_at: Option<Instant>,
    },
    /// A joint term.
    Leading {
        deadline: Instant,
    },
    /// The work is being stopped.
    Ending {
        leave: Event,
    },
    /// Giving back what is held, the last first.
    Releasing {
        leave: Event,
        work_stopped: bool,
    },
    Finished,
}

impl MultiElector {
    /// Electors that have not begun, in the order in which they are to be taken. `None` if none of
    /// them is required: then nothing would keep two candidates apart.
    pub fn new(members: Vec<(Elector, Need)>) -> Option<Self> {
        let first = members.iter().position(|(_, need)| *need == Need::Required)?;
        let eligible = members.iter().all(|(elector, _)| elector.settings().eligible);
        let seed = members.iter().fold(0, |seed, (elector, _)| seed ^ elector.settings().seed);
        let member = |(mut elector, need): (Elector, Need)| {
            elector.begin_ineligible(); // until its turn comes
            MemberElector {
                elector,
                need,
                ended: None,
                failing_since: None,
                denied: false,
                lost: false,
            }
        };
        Some(Self {
            members: members.into_iter().map(member).collect(),
            first,
            eligible,
            phase: Phase::Idle,
            stopping: false,
            yields: 0,
            wary_until: None,
            random: fastrand::Rng::with_seed(seed),
            actions: VecDeque::new(),
            wake_at: None,
        })
    }

    /// Takes in what happened at `now`, which must not be before the `now` of an earlier call.
    /// `member`: by which lock, of a hint, a response or capabilities; anything else is of all.
    pub fn handle(&mut self, now: Instant, member: usize, event: Event) {
        let of_one =
            matches!(event, Event::Hint(_) | Event::Response { .. } | Event::Capabilities(_));
        // No machine decides by a right that has ended meanwhile.
        for (index, other) in self.members.iter_mut().enumerate() {
            if !(of_one && index == member) && other.elector.next_wake().is_some_and(|at| at <= now)
            {
                other.elector.handle(now, Event::Wake);
            }
        }
        match event {
            Event::Start => self.start(now),
            Event::Wake => {}
            Event::Hint(_) | Event::Response { .. } | Event::Capabilities(_) => {
                if let Some(member) = self.members.get_mut(member) {
                    member.denied |= is_denial(&event);
                    member.elector.handle(now, event);
                }
            }
            Event::Advertise(_)
            | Event::Readiness(_)
            | Event::Rank(_)
            | Event::Pause(_)
            | Event::Drains => {
                for member in &mut self.members {
                    member.elector.handle(now, event.clone());
                }
            }
            Event::TermEnded { work_stopped } => self.term_ended(work_stopped),
            Event::WorkEnded { panicked } => {
                let cause = if panicked { Cause::WorkPanicked } else { Cause::WorkEnded };
                self.give_up(now, cause, Event::WorkEnded { panicked });
            }
            Event::Resign => self.give_up(now, Cause::Resigned, Event::Resign),
            Event::HandOver { to, identity } => {
                let cause = Cause::HandedOver { to: Arc::clone(&identity) };
                self.give_up(now, cause, Event::HandOver { to, identity });
            }
            Event::Stop => {
                self.stopping = true;
                self.give_up(now, Cause::Stopped, Event::Stop);
            }
        }
        self.advance(now);
    }

    /// The next thing to do, and on which lock; `None` when all is done for now.
    pub fn poll_action(&mut self) -> Option<(usize, Action)> {
        self.actions.pop_front()
    }

    /// When to send [`Event::Wake`] at the latest, if nothing else happens.
    pub fn next_wake(&self) -> Option<Instant> {
        self.members
            .iter()
            .filter_map(|member| member.elector.next_wake())
            .chain(self.wake_at)
            .min()
    }

    /// The state of this candidate.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Leading { .. } => State::Leader,
            _ if self.members.iter().any(|member| member.elector.has_heard()) => State::Candidate,
            _ => State::Unknown,
        }
    }

    /// When this candidate's right to lead ends, the earliest of the required locks'; `None` unless
    /// it leads.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Leading { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// The token of each lock on which this candidate leads, in order; `None` for the others.
    pub fn tokens(&self) -> Vec<Option<Token>> {
        let token = |member: &MemberElector| member.elector.term().map(|(token, _)| token);
        self.members.iter().map(token).collect()
    }

    /// Whether a required lock refuses its writes.
    pub(crate) fn is_refused(&self) -> bool {
        let mut required = self.members.iter().filter(|member| member.need == Need::Required);
        required.any(|member| member.elector.is_refused())
    }

    /// Whether it acquires the locks at all, or only watches.
    pub(crate) fn is_eligible(&self) -> bool {
        self.eligible
    }

    /// The elector on the first required lock, whose knowledge of the leader counts.
    pub fn first(&self) -> &Elector {
        &self.members[self.first].elector
    }

    /// The electors, in order.
    pub fn electors(&self) -> impl Iterator<Item = &Elector> {
        self.members.iter().map(|member| &member.elector)
    }

    fn start(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Idle) {
            for member in &mut self.members {
                member.elector.handle(now, Event::Start);
            }
            self.phase = Phase::Acquiring { yield_at: None };
        }
    }

    /// Ends the term, or gives back what is held without one.
    fn give_up(&mut self, now: Instant, cause: Cause, leave: Event) {
        match self.phase {
            Phase::Idle if self.stopping => self.give_back(leave),
            Phase::Acquiring { .. } => self.give_back(leave),
            Phase::Leading { deadline } => {
                let by = (now + self.first().settings().timing.grace()).min(deadline).max(now);
                self.end(cause, by, leave);
            }
            _ => {}
        }
    }

    /// Ends the joint term.
    fn end(&mut self, cause: Cause, by: Instant, leave: Event) {
        self.act(self.first, Action::End { cause, by });
        self.phase = Phase::Ending { leave };
        for member in &mut self.members {
            member.lost = member.ended.is_some();
        }
    }

    /// Ends the terms of all machines: none renews or acquires while the work stops, so that work
    /// which does not stop keeps no lock forever. What a term holds stays until its own deadline,
    /// or until the work has stopped. What only cools down is released, also if its create was in
    /// flight at the end of the joint term.
    fn advance_ending(&mut self, now: Instant) {
        let Phase::Ending { leave } = &self.phase else { return };
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.elector.holds() {
                member.elector.handle(now, leave_of(index == self.first, leave));
            }
            member.elector.set_eligible(now, false, Duration::ZERO);
        }
    }

    fn term_ended(&mut self, work_stopped: bool) {
        if let Phase::Ending { leave } = &self.phase {
            self.phase = Phase::Releasing { leave: leave.clone(), work_stopped };
        }
    }

    fn give_back(&mut self, leave: Event) {
        self.phase = Phase::Releasing { leave, work_stopped: true };
    }

    fn advance(&mut self, now: Instant) {
        // What one round changes the next one takes in. A few of them settle everything that one
        // event can bring about.
        for _ in 0..8 {
            self.collect(now);
            let before = std::mem::discriminant(&self.phase);
            self.wake_at = None;
            match &self.phase {
                Phase::Idle | Phase::Finished => {}
                Phase::Acquiring { .. } => self.acquire(now),
                Phase::Leading { .. } => self.advance_leading(now),
                Phase::Ending { .. } => self.advance_ending(now),
                Phase::Releasing { .. } => self.advance_releasing(now),
            }
            self.collect(now);
            let gathers = matches!(self.phase, Phase::Acquiring { .. });
            let settled = !(gathers && self.members.iter().any(|member| member.ended.is_some()));
            if settled && std::mem::discriminant(&self.phase) == before {
                return;
            }
        }
        self.wake_at = Some(now);
    }

    fn advance_leading(&mut self, now: Instant) {
        let mut over = None;
        for member in &mut self.members {
            let is_lost = match (&member.ended, member.need) {
                (Some((Cause::Superseded { .. } | Cause::Evicted, _)), _) => true,
                (Some(_), need) => need == Need::Required,
                (None, _) => false,
            };
            if is_lost {
                over = over.or_else(|| member.ended.clone());
            } else if member.ended.take().is_some() {
                // Out of reach, and best effort: the work continues, so none of it is reported to
                // have stopped.
                member.elector.handle(now, Event::TermEnded { work_stopped: false });
            }
            if let Some(other) = member.elector.other_holder(now)
                && member.need == Need::BestEffort
                && !member.elector.holds()
            {
                let by = now + member.elector.settings().timing.grace();
                let superseded = Cause::Superseded { by: Some(Arc::clone(&other.identity)) };
                over = over.or(Some((superseded, by)));
            }
        }
        let Phase::Leading { deadline } = self.phase else { return };
        match (over, self.required_until()) {
            (Some((cause, by)), _) => self.end(cause, by.min(deadline).max(now), Event::Resign),
            // Cannot be: a required machine that steps down reports it.
            (None, None) => self.end(Cause::Expired { last_error: None }, now, Event::Resign),
            (None, Some(until)) if until > deadline => {
                self.phase = Phase::Leading { deadline: until };
                self.act(self.first, Action::Extend { deadline: until });
            }
            (None, Some(_)) => {}
        }
    }

    /// Until when all required machines lead; `None` if one does not.
    fn required_until(&self) -> Option<Instant> {
        let required = self.members.iter().filter(|member| member.need == Need::Required);
        let terms = required.map(|member| member.elector.term());
        let deadlines: Option<Vec<Instant>> = terms.map(|term| Some(term?.1)).collect();
        deadlines?.into_iter().min()
    }

    /// Takes over what the machines want done.
    fn collect(&mut self, now: Instant) {
        for index in 0..self.members.len() {
            while let Some(action) =
                self.members.get_mut(index).and_then(|p| p.elector.poll_action())
            {
                match action {
                    Action::Request { .. } => self.act(index, action),
                    Action::Leader(_) if index == self.first => self.act(index, action),
                    Action::End { cause, by } => self.members[index].ended = Some((cause, by)),
                    Action::LockFailing(failure) => {
                        let member = &mut self.members[index];
                        member.failing_since = member.failing_since.or(Some(now));
                        let report = self.of_lock(index, &failure);
                        self.act(index, Action::LockFailing(report));
                    }
                    Action::LockRecovered => {
                        self.members[index].failing_since = None;
                        let report =
                            self.lock_failure().map_or(Action::LockRecovered, Action::LockFailing);
                        self.act(index, report);
                    }
                    // Whether a machine has begun, extended or finished is read from its state.
                    _ => {}
                }
            }
        }
    }

    /// What keeps requests from succeeding, and where.
    pub fn lock_failure(&self) -> Option<LockFailure> {
        let of_member = |(index, member): (usize, &MemberElector)| {
            Some(self.of_lock(index, member.elector.lock_failure()?))
        };
        self.members.iter().enumerate().find_map(of_member)
    }

    fn of_lock(&self, index: usize, failure: &LockFailure) -> LockFailure {
        let need = match self.members[index].need {
            Need::Required => "required",
            Need::BestEffort => "best effort",
        };
        let (number, of, message) = (index + 1, self.members.len(), &failure.message);
        LockFailure::new(failure.kind, format!("lock {number} of {of} ({need}): {message}"))
    }

    fn act(&mut self, member: usize, action: Action) {
        self.actions.push_back((member, action));
    }
}

partial_debug!(
    MultiElector, self, phase: self.phase, electors: self.electors().collect::<Vec<_>>()
);

impl MemberElector {
    /// Whether a term may continue without it, as far as this lock is concerned: best effort, out
    /// of reach for as long as one request may take or longer, and no other candidate known to hold
    /// it.
    fn is_absent(&self, now: Instant) -> bool {
        self.absent_at().is_some_and(|at| at <= now) && self.elector.other_holder(now).is_none()
    }

    fn absent_at(&self) -> Option<Instant> {
        let since = self.failing_since.filter(|_| self.need == Need::BestEffort)?;
        let absent = self.elector.settings().timing.request_timeout().max(MIN_ABSENCE);
        Some(since + absent)
    }

    /// Required, and cannot be had just now: holding the other locks is useless until then. A
    /// lasting failure does not show that it is over unless it is tried.
    fn fails(&self, lasting_ones_count: bool) -> bool {
        self.need == Need::Required
            && self.elector.lock_failure().is_some()
            && (lasting_ones_count || self.elector.lasting_failure().is_none())
    }
}

impl MultiElector {
    fn acquire(&mut self, now: Instant) {
        for member in &mut self.members {
            if member.ended.take().is_some() {
                // It led for itself, and no work ran.
                member.elector.handle(now, Event::TermEnded { work_stopped: true });
            }
        }
        self.update_eligibility(now);
        if let Some(deadline) = self.required_until().filter(|_| self.may_begin(now)) {
            return self.begin(deadline);
        }
        self.yield_if_stuck(now);
        self.set_wake(now);
    }

    /// Whether no lock is in the way, given that all required machines lead.
    fn may_begin(&self, now: Instant) -> bool {
        self.eligible
            && self
                .members
                .iter()
                .all(|member| member.elector.term().is_some() || member.is_absent(now))
    }

    fn begin(&mut self, deadline: Instant) {
        let Some((token, _)) = self.first().term() else { return };
        self.yields = 0;
        self.wary_until = None;
        self.phase = Phase::Leading { deadline };
        self.act(self.first, Action::Begin { token, deadline });
    }

    /// Each is eligible once every earlier one is held, or absent. What is held out of order is
    /// given back.
    fn update_eligibility(&mut self, now: Instant) {
        let holds_one = self.members.iter().any(|member| member.elector.holds());
        let mut turn = self.eligible && (holds_one || self.may_start(now));
        let mut lost_one = false;
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let spread = member.elector.settings().timing.scaled(SPREAD);
            let spread = if index == 0 { spread } else { Duration::ZERO };
            let holds = member.elector.holds();
            if holds && lost_one {
                member.elector.handle(now, Event::Resign);
            }
            let eligible = turn && !lost_one;
            member.denied &= member.elector.settings().eligible || !eligible;
            member.elector.set_eligible(now, eligible, spread);
            turn &= holds || member.is_absent(now);
            lost_one |= member.need == Need::Required && !holds;
        }
    }

    /// Whether to take the first lock at all. One that could not get the rest and has given back
    /// what it held waits until all is free, so that it takes nothing in vain again.
    fn may_start(&self, now: Instant) -> bool {
        match self.wary_until {
            None => !self.members.iter().skip(self.first + 1).any(|member| member.fails(false)),
            Some(until) => self.members.iter().enumerate().all(|(index, member)| {
                let fails = index > self.first && member.fails(now < until);
                !fails && member.elector.other_holder(now).is_none()
            }),
        }
    }

    /// What is held while the rest cannot be had keeps others out: it is given back after a while.
    fn yield_if_stuck(&mut self, now: Instant) {
        let lacks = |member: &MemberElector| !member.elector.holds() && !member.is_absent(now);
        let waits = self.members.iter().any(|member| member.elector.holds())
            && self.members.iter().any(lacks);
        // A denial of long ago is no reason: that it has been lifted shows only when it is tried.
        let denied = |member: &MemberElector| {
            member.need == Need::Required && member.denied && !member.elector.holds()
        };
        let lease = self.first().settings().timing.lease();
        let yield_after = lease.mul_f64(1.0 + self.random.f64());
        let Phase::Acquiring { yield_at } = &mut self.phase else { return };
        if !waits {
            *yield_at = None;
            return;
        }
        let due = *yield_at.get_or_insert(now + yield_after) <= now;
        if !due && !self.members.iter().any(denied) {
            return;
        }
        let doubled = self.yields.min(MAX_DOUBLINGS);
        self.yields = self.yields.saturating_add(1);
        let rest = lease.saturating_mul(1 << doubled).mul_f64(0.5 + self.random.f64() / 2.0);
        self.wary_until = Some(now + rest);
        self.give_back(Event::Resign);
    }

    /// When the passing of time alone changes what is to be done.
    fn set_wake(&mut self, now: Instant) {
        let Phase::Acquiring { yield_at } = self.phase else { return };
        let mut instants: Vec<Instant> = yield_at.into_iter().chain(self.wary_until).collect();
        for member in &self.members {
            instants.extend(member.absent_at());
            instants.push(member.elector.others_end());
        }
        self.wake_at = instants.into_iter().filter(|at| *at > now).min();
    }
}

impl MultiElector {
    fn advance_releasing(&mut self, now: Instant) {
        let Phase::Releasing { leave, work_stopped } = &self.phase else { return };
        let (leave, work_stopped) = (leave.clone(), *work_stopped);
        // What is lost is not given back; its step-down is notified, and no candidate waits for
        // that in vain.
        for member in &mut self.members {
            if std::mem::take(&mut member.lost) && member.ended.take().is_some() {
                member.elector.handle(now, Event::TermEnded { work_stopped });
            }
            member.elector.set_eligible(now, false, Duration::ZERO);
        }
        for index in (0..self.members.len()).rev() {
            let stopping = self.stopping;
            let member = &mut self.members[index];
            if stopping {
                member.elector.handle(now, Event::Stop);
            } else if member.elector.holds() {
                member.elector.handle(now, leave_of(index == self.first, &leave));
            }
            self.collect(now);
            let member = &mut self.members[index];
            if member.ended.take().is_some() {
                member.elector.handle(now, Event::TermEnded { work_stopped });
                self.collect(now);
            }
            let member = &self.members[index];
            if member.elector.is_stepping_down() || member.elector.holds() {
                return;
            }
            if stopping && !member.elector.is_finished() {
                return;
            }
        }
        if self.stopping {
            self.phase = Phase::Finished;
            self.act(self.first, Action::Finished);
        } else {
            self.phase = Phase::Acquiring { yield_at: None };
        }
    }
}

/// What a member receives when the joint term ends. A successor is named on the first required lock
/// alone, which decides who takes the others: on those its number is another one.
fn leave_of(is_first: bool, leave: &Event) -> Event {
    match leave {
        Event::HandOver { .. } if !is_first => Event::Resign,
        leave => leave.clone(),
    }
}

/// Whether the lock denies a request, which another try soon will not fix.
fn is_denial(event: &Event) -> bool {
    let Event::Response {
        response: Response::Read(Err(failure)) | Response::Written(Err(failure)),
        ..
    } = event
    else {
        return false;
    };
    matches!(failure.kind, LockErrorKind::Denied | LockErrorKind::Misconfigured)
}
