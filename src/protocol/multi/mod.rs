//! Several campaigns as one: a machine for each lock, and one term while all that are required lead.
//!
//! Every machine keeps its own promise on its own lock, with its own deadline, cool-down and evidence. A joint term is their
//! work: it begins when all required machines lead, ends when the first of them is told to stop, and no machine is
//! told that its work has stopped before the joint work has. So whoever leads jointly leads on every required lock, and two
//! campaigners that require one and the same lock exclude each other.

mod gathering;
mod giving_back;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::elector::Elector;
use super::types::{Action, Cause, Event, LockFailure, Response, Settings, State};
use crate::lock::{Capabilities, LockErrorKind, Need, Token};
use crate::time::clock::Instant;

/// What the campaign on one of the locks is made from.
pub(crate) struct MemberSettings {
    pub settings: Settings,
    pub capabilities: Capabilities,
    pub need: Need,
}

/// A campaign on each of several locks, taken in order and released in reverse.
///
/// It is told what a [`Elector`] is told, and by which lock, and answers what to do, and on which lock.
pub struct MultiElector {
    parts: Vec<Part>,
    /// The first required one: who leads there leads.
    first: usize,
    /// Whether to stand at all, or only to watch.
    stands: bool,
    phase: Phase,
    stopping: bool,
    /// How often in a row everything was given back because not all could be had.
    yields: u32,
    /// After that: not before all are free, or this.
    wary_until: Option<Instant>,
    random: fastrand::Rng,
    actions: VecDeque<(usize, Action)>,
    /// When to look again, if nothing happens.
    wake_at: Option<Instant>,
}

/// One of the locks.
struct Part {
    campaign: Elector,
    need: Need,
    /// Its term has ended, and it has not been told yet that the work has stopped.
    ended: Option<(Cause, Instant)>,
    /// Since when its requests have failed.
    failing_since: Option<Instant>,
    /// It has been refused since it last came to stand.
    refused: bool,
    /// Its term ended before the joint one was told to end.
    lost: bool,
}

#[derive(Debug)]
enum Phase {
    Idle,
    /// No term: taking what can be had, in order.
    Gathering {
        /// When to give back what is held, if the rest has not been had by then.
        yield_at: Option<Instant>,
    },
    /// A joint term.
    Office {
        deadline: Instant,
    },
    /// The work is being stopped.
    Ending {
        leave: Event,
    },
    /// Giving back what is held, the last first.
    GivingBack {
        leave: Event,
        work_stopped: bool,
    },
    Finished,
}

impl MultiElector {
    /// Campaigns that have not begun, in the order in which they are to be taken. `None` if none of them is required: then
    /// nothing would keep two campaigners apart.
    pub fn new(parts: Vec<(Elector, Need)>) -> Option<Self> {
        let first = parts.iter().position(|(_, need)| *need == Need::Required)?;
        let stands = parts.iter().all(|(campaign, _)| campaign.settings().eligible);
        let seed = parts.iter().fold(0, |seed, (campaign, _)| seed ^ campaign.settings().seed);
        let part = |(mut campaign, need): (Elector, Need)| {
            campaign.begin_ineligible(); // until its turn comes
            Part { campaign, need, ended: None, failing_since: None, refused: false, lost: false }
        };
        Some(Self {
            parts: parts.into_iter().map(part).collect(),
            first,
            stands,
            phase: Phase::Idle,
            stopping: false,
            yields: 0,
            wary_until: None,
            random: fastrand::Rng::with_seed(seed),
            actions: VecDeque::new(),
            wake_at: None,
        })
    }

    /// Takes in what happened at `now`, which must not be before the `now` of an earlier call. `part`: by which lock, of
    /// a hint, an answer or capabilities; anything else is of all.
    pub fn handle(&mut self, now: Instant, part: usize, event: Event) {
        let of_one =
            matches!(event, Event::Hint(_) | Event::Response { .. } | Event::Capabilities(_));
        // Nobody decides by a right that has ended meanwhile.
        for (index, other) in self.parts.iter_mut().enumerate() {
            if !(of_one && index == part) && other.campaign.next_wake().is_some_and(|at| at <= now)
            {
                other.campaign.handle(now, Event::Wake);
            }
        }
        match event {
            Event::Start => self.start(now),
            Event::Wake => {}
            Event::Hint(_) | Event::Response { .. } | Event::Capabilities(_) => {
                if let Some(part) = self.parts.get_mut(part) {
                    part.refused |= is_refusal(&event);
                    part.campaign.handle(now, event);
                }
            }
            Event::TermEnded { work_stopped } => self.term_ended(work_stopped),
            Event::WorkEnded { panicked } => {
                let cause = if panicked { Cause::WorkPanicked } else { Cause::WorkEnded };
                self.give_up(now, cause, Event::WorkEnded { panicked });
            }
            Event::Resign => self.give_up(now, Cause::Resigned, Event::Resign),
            Event::Stop => {
                self.stopping = true;
                self.give_up(now, Cause::Stopped, Event::Stop);
            }
        }
        self.proceed(now);
    }

    /// The next thing to do, and on which lock; `None` when all is done for now.
    pub fn poll_action(&mut self) -> Option<(usize, Action)> {
        self.actions.pop_front()
    }

    /// When to send [`Event::Wake`] at the latest, if nothing else happens.
    pub fn next_wake(&self) -> Option<Instant> {
        self.parts.iter().filter_map(|part| part.campaign.next_wake()).chain(self.wake_at).min()
    }

    /// Where this campaigner stands.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Office { .. } => State::Leader,
            _ if self.parts.iter().any(|part| part.campaign.has_heard()) => State::Candidate,
            _ => State::Unknown,
        }
    }

    /// When this campaigner's right to lead ends, the earliest of the required locks'; `None` unless it leads.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Office { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// The token of each lock on which this campaigner leads, in order; `None` for the others.
    pub fn tokens(&self) -> Vec<Option<Token>> {
        let token = |part: &Part| part.campaign.term().map(|(token, _)| token);
        self.parts.iter().map(token).collect()
    }

    /// The campaign on the first required lock, whose words about who leads count.
    pub fn first(&self) -> &Elector {
        &self.parts[self.first].campaign
    }

    /// The campaigns, in order.
    pub fn campaigns(&self) -> impl Iterator<Item = &Elector> {
        self.parts.iter().map(|part| &part.campaign)
    }

    fn start(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Idle) {
            for part in &mut self.parts {
                part.campaign.handle(now, Event::Start);
            }
            self.phase = Phase::Gathering { yield_at: None };
        }
    }

    /// Ends the term, or gives back what is held without one.
    fn give_up(&mut self, now: Instant, cause: Cause, leave: Event) {
        match self.phase {
            Phase::Idle if self.stopping => self.give_back(leave),
            Phase::Gathering { .. } => self.give_back(leave),
            Phase::Office { deadline } => {
                let by = (now + self.first().settings().timing.grace()).min(deadline).max(now);
                self.end(now, cause, by, leave);
            }
            _ => {}
        }
    }

    /// Ends the joint term, and with it those of all machines: none renews while the work stops, so that work which does
    /// not stop keeps no lock for ever. What they hold stands until their own deadlines, or until they are told.
    fn end(&mut self, now: Instant, cause: Cause, by: Instant, leave: Event) {
        self.act(self.first, Action::End { cause, by });
        self.phase = Phase::Ending { leave: leave.clone() };
        for part in &mut self.parts {
            part.lost = part.ended.is_some();
            if part.campaign.term().is_some() {
                part.campaign.handle(now, leave.clone());
            }
        }
    }

    fn term_ended(&mut self, work_stopped: bool) {
        if let Phase::Ending { leave } = &self.phase {
            self.phase = Phase::GivingBack { leave: leave.clone(), work_stopped };
        }
    }

    fn give_back(&mut self, leave: Event) {
        self.phase = Phase::GivingBack { leave, work_stopped: true };
    }

    fn proceed(&mut self, now: Instant) {
        // What one round changes the next one takes in. A few of them settle everything that one event can bring about.
        for _ in 0..8 {
            self.collect(now);
            let before = std::mem::discriminant(&self.phase);
            self.wake_at = None;
            match &self.phase {
                Phase::Idle | Phase::Ending { .. } | Phase::Finished => {}
                Phase::Gathering { .. } => self.gather(now),
                Phase::Office { .. } => self.proceed_office(now),
                Phase::GivingBack { .. } => self.proceed_giving_back(now),
            }
            self.collect(now);
            let gathers = matches!(self.phase, Phase::Gathering { .. });
            let settled = !(gathers && self.parts.iter().any(|part| part.ended.is_some()));
            if settled && std::mem::discriminant(&self.phase) == before {
                return;
            }
        }
        self.wake_at = Some(now);
    }

    fn proceed_office(&mut self, now: Instant) {
        let mut over = None;
        for part in &mut self.parts {
            let is_lost = match (&part.ended, part.need) {
                (Some((Cause::Superseded { .. } | Cause::Evicted, _)), _) => true,
                (Some(_), need) => need == Need::Required,
                (None, _) => false,
            };
            if is_lost {
                over = over.or_else(|| part.ended.clone());
            } else if part.ended.take().is_some() {
                // Out of reach, and best effort: the work goes on, so nothing is said to have stopped.
                part.campaign.handle(now, Event::TermEnded { work_stopped: false });
            }
            if let Some(other) = part.campaign.other_holder(now)
                && part.need == Need::BestEffort
                && !part.campaign.holds()
            {
                let by = now + part.campaign.settings().timing.grace();
                let superseded = Cause::Superseded { by: Some(Arc::clone(&other.identity)) };
                over = over.or(Some((superseded, by)));
            }
        }
        let Phase::Office { deadline } = self.phase else { return };
        match (over, self.required_until()) {
            (Some((cause, by)), _) => {
                self.end(now, cause, by.min(deadline).max(now), Event::Resign)
            }
            // Cannot be: a required machine that leaves says so.
            (None, None) => self.end(now, Cause::Expired { last_error: None }, now, Event::Resign),
            (None, Some(until)) if until > deadline => {
                self.phase = Phase::Office { deadline: until };
                self.act(self.first, Action::Extend { deadline: until });
            }
            (None, Some(_)) => {}
        }
    }

    /// Until when all required machines lead; `None` if one does not.
    fn required_until(&self) -> Option<Instant> {
        let required = self.parts.iter().filter(|part| part.need == Need::Required);
        let terms = required.map(|part| part.campaign.term());
        let deadlines: Option<Vec<Instant>> = terms.map(|term| Some(term?.1)).collect();
        deadlines?.into_iter().min()
    }

    /// Takes over what the machines want done.
    fn collect(&mut self, now: Instant) {
        for index in 0..self.parts.len() {
            while let Some(action) =
                self.parts.get_mut(index).and_then(|p| p.campaign.poll_action())
            {
                match action {
                    Action::Request { .. } => self.act(index, action),
                    Action::Leader(_) if index == self.first => self.act(index, action),
                    Action::End { cause, by } => self.parts[index].ended = Some((cause, by)),
                    Action::LockFailing(failure) => {
                        let part = &mut self.parts[index];
                        part.failing_since = part.failing_since.or(Some(now));
                        let told = self.of_lock(index, &failure);
                        self.act(index, Action::LockFailing(told));
                    }
                    Action::LockRecovered => {
                        self.parts[index].failing_since = None;
                        let told =
                            self.lock_failure().map_or(Action::LockRecovered, Action::LockFailing);
                        self.act(index, told);
                    }
                    // When a machine begins, extends or finishes is asked of it.
                    _ => {}
                }
            }
        }
    }

    /// What keeps requests from succeeding, and where.
    pub fn lock_failure(&self) -> Option<LockFailure> {
        let of_part = |(index, part): (usize, &Part)| {
            Some(self.of_lock(index, part.campaign.lock_failure()?))
        };
        self.parts.iter().enumerate().find_map(of_part)
    }

    fn of_lock(&self, index: usize, failure: &LockFailure) -> LockFailure {
        let need = match self.parts[index].need {
            Need::Required => "required",
            Need::BestEffort => "best effort",
        };
        let (number, of, message) = (index + 1, self.parts.len(), &failure.message);
        LockFailure {
            message: format!("lock {number} of {of} ({need}): {message}").into(),
            ..failure.clone()
        }
    }

    fn act(&mut self, part: usize, action: Action) {
        self.actions.push_back((part, action));
    }
}

fn is_refusal(event: &Event) -> bool {
    let Event::Response {
        response: Response::Read(Err(failure)) | Response::Written(Err(failure)),
        ..
    } = event
    else {
        return false;
    };
    matches!(failure.kind, LockErrorKind::Denied | LockErrorKind::Misconfigured)
}

impl fmt::Debug for MultiElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joint")
            .field("phase", &self.phase)
            .field("campaigns", &self.campaigns().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
