//! The machine: it remembers, and hands what happens to the phase that it is in.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::cause::Cause;
use super::holding::Office;
use super::requests::{Outstanding, Pending, Refusals};
use super::retries::Retries;
use super::stampede::Hearing;
use super::standby::{Plan, Standby};
use super::stepping_down::Leaving;
use super::types::{Action, Event, Failure, Leader, Settings, State};
use super::vacancy::{Conceded, Sighting, Vacancy};
use crate::lock::{Capabilities, Coverage, Hint, Revision};
use crate::time::clock::Instant;

/// What the campaign is at.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Idle,
    Standby(Standby),
    Office(Office),
    Leaving(Leaving),
    Finished,
}

/// One campaigner's part in one election.
pub struct Campaign {
    pub(super) settings: Settings,
    pub(super) capabilities: Capabilities,
    pub(super) phase: Phase,
    pub(super) outstanding: Option<Outstanding>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) last_seen: Option<Sighting>,
    pub(super) rights_seen_end: Instant,
    pub(super) vacancy: Option<Vacancy>,
    /// When what is known about the entry was last learned.
    pub(super) learned_at: Instant,
    pub(super) conceded: VecDeque<Conceded>,
    pub(super) coverage: Coverage,
    pub(super) hearing: Hearing,
    pub(super) random: fastrand::Rng,
    pub(super) stopping: bool,
    pub(super) heard_from_lock: bool,
    /// When nobody before us could be leading any more, by what our last time in office had to wait.
    pub(super) own_cool_down_ends: Instant,
    /// Until when work of our own last term may go on that would not stop.
    pub(super) work_may_last_until: Instant,
    /// What a create that was refused had to wait for, should it turn out to be in the lock.
    pub(super) refused_wait: Duration,
    /// The number of our last create over nothing. Until then no create over something is under way any more.
    pub(super) last_over_nothing: u64,
    /// Where a create of ours is known to have landed; what it had to wait for is in the two above.
    pub(super) known_create: Option<Revision>,
    /// Until when an entry of ours may stand in the lock, whether we know of it or not.
    pub(super) entry_may_stand_until: Instant,
    pub(super) leader: Option<Leader>,
    pub(super) trouble: Option<Failure>,
    pub(super) only_reading_fails: bool,
    pub(super) refusals: Refusals,
    pub(super) actions: VecDeque<Action>,
    pub(super) next_request: u64,
    pub(super) next_write: u64,
}

impl fmt::Debug for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Campaign")
            .field("settings", &self.settings)
            .field("phase", &self.phase)
            .field("outstanding", &self.outstanding)
            .field("vacancy", &self.vacancy)
            .field("coverage", &self.coverage)
            .finish_non_exhaustive()
    }
}

impl Campaign {
    /// How many notices and unknown writes are remembered.
    pub(super) const REMEMBERED: usize = 16;

    /// A campaign that has not begun.
    pub fn new(settings: Settings, capabilities: Capabilities) -> Self {
        Self {
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
            capabilities,
            phase: Phase::Idle,
            outstanding: None,
            pending: VecDeque::new(),
            last_seen: None,
            rights_seen_end: Instant::ORIGIN,
            vacancy: None,
            learned_at: Instant::ORIGIN,
            conceded: VecDeque::new(),
            coverage: Coverage::None,
            hearing: Hearing::default(),
            stopping: false,
            heard_from_lock: false,
            own_cool_down_ends: Instant::ORIGIN,
            work_may_last_until: Instant::ORIGIN,
            refused_wait: Duration::ZERO,
            last_over_nothing: 0,
            known_create: None,
            entry_may_stand_until: Instant::ORIGIN,
            leader: None,
            trouble: None,
            only_reading_fails: false,
            refusals: Refusals::default(),
            actions: VecDeque::new(),
            next_request: 0,
            next_write: 0,
        }
    }

    /// Takes in what happened at `now`, which must not be before the `now` of an earlier call.
    pub fn handle(&mut self, now: Instant, event: Event) {
        self.end_what_has_expired(now);
        self.give_up_on_what_hangs(now, &event);
        match event {
            Event::Start => self.start(now),
            Event::Wake => {}
            Event::Hint(hint) => self.take_hint(now, hint),
            Event::Answered { id, answer } => self.take_answer(now, id, answer),
            Event::Ended { work_stopped } => self.term_ended(now, work_stopped),
            Event::WorkEnded { panicked } => {
                let cause = if panicked { Cause::WorkPanicked } else { Cause::WorkEnded };
                self.give_up_office(now, cause);
            }
            Event::Resign => self.give_up_office(now, Cause::Resigned),
            Event::Stop => self.stop(now),
            Event::Capabilities(capabilities) => self.capabilities = capabilities,
        }
        self.proceed(now);
    }

    /// The next thing to do; `None` when all is done for now.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to send [`Event::Wake`] at the latest, if nothing else happens.
    pub fn next_wake(&self) -> Option<Instant> {
        let hangs = self.outstanding.as_ref().map(|outstanding| outstanding.gives_up_at);
        match &self.phase {
            Phase::Idle | Phase::Finished => None,
            Phase::Standby(standby) => Some(hangs.unwrap_or(standby.at)),
            Phase::Office(office) => {
                let at = office.next_wake(self.settings.timing.grace(), hangs.is_some());
                Some(hangs.map_or(at, |hangs| at.min(hangs)))
            }
            Phase::Leaving(leaving) => hangs.or(leaving.next_wake()),
        }
    }

    /// Where this campaigner stands. Whether it may lead is a comparison of the clock with [`deadline`](Self::deadline).
    pub fn state(&self) -> State {
        match &self.phase {
            Phase::Office(office) if office.began => State::Leader,
            _ if self.heard_from_lock => State::Candidate,
            _ => State::Unknown,
        }
    }

    /// When this campaigner's right to lead ends; `None` unless it leads.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Office(office) if office.began => Some(office.deadline),
            _ => None,
        }
    }

    /// Who holds the election, as last seen.
    pub fn leader(&self) -> Option<&Leader> {
        self.leader.as_ref()
    }

    /// What keeps requests from succeeding.
    pub fn trouble(&self) -> Option<&Failure> {
        self.trouble.as_ref()
    }

    /// The settings it runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn proceed(&mut self, now: Instant) {
        match self.phase {
            Phase::Idle | Phase::Finished => {}
            Phase::Standby(_) => self.proceed_standby(now),
            Phase::Office(_) => self.proceed_office(now),
            Phase::Leaving(_) => self.proceed_leaving(now),
        }
    }

    fn take_hint(&mut self, now: Instant, hint: Hint) {
        match hint {
            Hint::Stored { record, previous, age } => {
                if let Some(age) = age {
                    self.hearing.heard(age);
                }
                self.heard_from_lock = true;
                self.hear(now, record, previous);
                self.hears_though_it_cannot_read();
            }
            Hint::SteppedDown(notice) => self.hear_concession(now, notice),
            Hint::Recheck => self.look_soon(now),
            Hint::Coverage(coverage) => {
                self.coverage = coverage;
                self.look_soon(now);
            }
        }
    }

    pub(super) fn phase_kind(&self) -> At {
        match self.phase {
            Phase::Standby(_) => At::Standby,
            Phase::Office(_) => At::Office,
            Phase::Leaving(_) => At::Leaving,
            Phase::Idle | Phase::Finished => At::Rest,
        }
    }

    fn start(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Idle) {
            // Hints are being set up: a look before they come would have to be repeated.
            self.stand_by(now + Duration::from_millis(20), Plan::Look);
        }
    }

    /// A fresh schedule for trying again what may pass.
    pub(super) fn retries(&mut self) -> Retries {
        Retries::new(self.random.u64(..))
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// In milliseconds since the Unix epoch: for people.
    pub(super) fn by_wall_clock(&self, instant: Instant) -> u64 {
        let since_origin = u64::try_from(instant.since_origin().as_millis()).unwrap_or(u64::MAX);
        self.settings.origin_unix_ms.saturating_add(since_origin)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Rest,
    Standby,
    Office,
    Leaving,
}
