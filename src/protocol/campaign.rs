//! The machine: it remembers, and hands what happens to the phase that it is in.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cause::Cause;
use super::leaving::Leaving;
use super::office::Office;
use super::retries::Retries;
use super::spread::Hearing;
use super::standby::{Plan, Standby};
use super::vacancy::{Conceded, Sighting, Vacancy, Wait};
use super::words::{Action, Answer, Event, Failure, Leader, Settings, State};
use crate::clock::Instant;
use crate::lock::{
    Capabilities, Coverage, Hint, LockErrorKind, Mark, Request, Revision, Token, Write, WriteId,
};

/// What the campaign is at.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Idle,
    Standby(Standby),
    Office(Office),
    Leaving(Leaving),
    Finished,
}

/// The request under way.
#[derive(Debug, Clone)]
pub(super) struct Outstanding {
    pub id: u64,
    pub sent: Instant,
    pub kind: Kind,
    /// When to take it for unanswered, whatever the lock promised.
    pub gives_up_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write { number: u64 },
    Release,
    Concede,
}

/// A write whose outcome is not known yet.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub number: u64,
    pub sent: Instant,
    /// For a create: the wait it earns.
    pub wait: Option<Box<Wait>>,
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
    /// What a create that was refused had to wait for, should it turn out to be in the lock.
    pub(super) refused_wait: Duration,
    /// Until when an entry of ours may stand in the lock, whether we know of it or not.
    pub(super) entry_may_stand_until: Instant,
    pub(super) leader: Option<Leader>,
    pub(super) trouble: Option<Failure>,
    pub(super) only_reading_fails: bool,
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
    /// How many concessions and unknown writes are remembered.
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
            refused_wait: Duration::ZERO,
            entry_may_stand_until: Instant::ORIGIN,
            leader: None,
            trouble: None,
            only_reading_fails: false,
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
            }
            Hint::Conceded(concession) => self.hear_concession(now, concession),
            Hint::Look => self.look_soon(now),
            Hint::Coverage(coverage) => {
                self.coverage = coverage;
                self.look_soon(now);
            }
        }
    }

    /// A lock should answer within the timeout that it is given. One that hangs must not hang the campaign.
    fn give_up_on_what_hangs(&mut self, now: Instant, event: &Event) {
        let Some(Outstanding { id, kind, gives_up_at, .. }) = &self.outstanding else { return };
        let (id, answered) = (*id, matches!(event, Event::Answered { id: of, .. } if of == id));
        if answered || now < *gives_up_at {
            return;
        }
        let hung = Failure {
            kind: LockErrorKind::Unknown,
            message: "the lock has not answered within the timeout it was given".into(),
        };
        let answer = match kind {
            Kind::Read => Answer::Read(Err(hung)),
            Kind::Write { .. } => Answer::Written(Err(hung)),
            Kind::Release => Answer::Released(Err(hung)),
            Kind::Concede => Answer::Conceded(Err(hung)),
        };
        self.take_answer(now, id, answer);
    }

    fn take_answer(&mut self, now: Instant, id: u64, answer: Answer) {
        let Some(outstanding) = self.outstanding.take_if(|o| o.id == id) else {
            return; // of a request that was given up
        };
        let failure = match &answer {
            Answer::Read(Err(f)) | Answer::Written(Err(f)) | Answer::Released(Err(f)) => Some(f),
            _ => None,
        };
        match failure {
            Some(failure) if failure.kind != LockErrorKind::Conflict => {
                self.fails(failure.clone(), outstanding.kind == Kind::Read);
            }
            _ if outstanding.kind == Kind::Concede => {}
            _ => {
                self.heard_from_lock = true;
                self.hearing.answered(now.saturating_since(outstanding.sent));
                self.succeeds(outstanding.kind == Kind::Read);
            }
        }
        match (self.phase_kind(), answer) {
            (At::Standby, Answer::Read(answer)) => self.standby_read(now, outstanding.sent, answer),
            (At::Standby, Answer::Written(answer)) => {
                self.create_answered(now, outstanding, answer)
            }
            (At::Office, Answer::Read(answer)) => self.office_read(now, answer),
            (At::Office, Answer::Written(answer)) => {
                self.renewal_answered(now, outstanding, answer)
            }
            (At::Leaving, answer) => self.leaving_answered(now, answer),
            _ => {}
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

    fn fails(&mut self, failure: Failure, reading: bool) {
        if self.trouble.as_ref().map(|trouble| trouble.kind) != Some(failure.kind) {
            self.act(Action::Trouble(failure.clone()));
        }
        self.trouble = Some(failure);
        self.only_reading_fails = reading;
    }

    /// A read that succeeds does not show that a write which was refused would now be accepted.
    fn succeeds(&mut self, reading: bool) {
        let refused = |trouble: &Failure| {
            matches!(trouble.kind, LockErrorKind::Denied | LockErrorKind::Misconfigured)
        };
        let stays =
            reading && !self.only_reading_fails && self.trouble.as_ref().is_some_and(refused);
        if !stays && self.trouble.take().is_some() {
            self.act(Action::Recovered);
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

    pub(super) fn request(&mut self, now: Instant, kind: Kind, request: Request) {
        self.next_request += 1;
        let id = self.next_request;
        let timeout = match &request {
            Request::Read { timeout } => *timeout,
            Request::Write(write) => write.timeout,
            Request::Release(release) => release.timeout,
            Request::Concede(_) => self.settings.timing.attempt(),
        };
        // Later than the lock's own timeout, which says more of why.
        let gives_up_at = now + timeout + timeout / 2 + Duration::from_millis(100);
        self.outstanding = Some(Outstanding { id, sent: now, kind, gives_up_at });
        self.act(Action::Request { id, request });
    }

    pub(super) fn request_read(&mut self, now: Instant, timeout: Duration) {
        self.request(now, Kind::Read, Request::Read { timeout });
    }

    pub(super) fn request_write(&mut self, now: Instant, draft: Draft) {
        self.next_write += 1;
        let number = self.next_write;
        if self.pending.len() == Self::REMEMBERED {
            self.pending.pop_front();
        }
        let wait = draft.wait.map(Box::new);
        self.pending.push_back(Pending { number, sent: now, wait });
        self.entry_may_stand_until = self.entry_may_stand_until.max(now + draft.life);
        let write = Write {
            expected: draft.expected,
            identity: Arc::clone(&self.settings.identity),
            mark: Mark {
                write: WriteId { nonce: self.settings.nonce, number },
                lease: draft.life,
                token: draft.token,
                since_unix_ms: self.by_wall_clock(draft.since),
            },
            life: draft.life,
            advertisement: self.settings.advertisement.clone(),
            timeout: draft.timeout,
        };
        self.request(now, Kind::Write { number }, Request::Write(write));
    }

    /// In milliseconds since the Unix epoch: for people.
    pub(super) fn by_wall_clock(&self, instant: Instant) -> u64 {
        let since_origin = u64::try_from(instant.since_origin().as_millis()).unwrap_or(u64::MAX);
        self.settings.origin_unix_ms.saturating_add(since_origin)
    }
}

/// A write to be.
pub(super) struct Draft {
    pub expected: Option<Revision>,
    /// `None`: it begins a term.
    pub token: Option<Token>,
    pub since: Instant,
    pub life: Duration,
    pub timeout: Duration,
    /// Of a create: what it earns.
    pub wait: Option<Wait>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Rest,
    Standby,
    Office,
    Leaving,
}
