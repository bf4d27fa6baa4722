//! The machine: what it is told, what it answers, and what it remembers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::backoff::{Backoff, BackoffPolicy};
use super::cause::Cause;
use super::leaving::Leaving;
use super::office::Office;
use super::spread::Hearing;
use super::standby::{Plan, Standby};
use super::timing::Timing;
use super::vacancy::{Circumstances, Conceded, CoolDown, Sighting, Vacancy, Wait};
use crate::clock::Instant;
use crate::lock::{
    Capabilities, Concession, Content, Coverage, Entry, Hint, LockErrorKind, Mark, Nonce, Reading,
    Record, Request, Revision, Token, Tombstone, Write, WriteId,
};

/// How one campaigner campaigns.
pub struct Settings {
    /// What people read.
    pub identity: Arc<str>,
    /// What tells this campaign from every other.
    pub nonce: Nonce,
    /// Lease, renewal, grace.
    pub timing: Timing,
    /// How long to wait between winning and leading.
    pub cool_down: CoolDown,
    /// How to poll where no hints come.
    pub backoff: Box<dyn BackoffPolicy>,
    /// How long to let a holder that vanished come back first.
    pub hold_back: Duration,
    /// Among candidates that wake together the higher asks first.
    pub priority: u8,
    /// Whether Choria's campaigners stand in the same election.
    pub choria_peers: bool,
    /// Whether to stand at all, or only to watch.
    pub stands: bool,
    /// What all randomness is drawn from.
    pub seed: u64,
    /// The wall clock at the clock's origin, in milliseconds since the Unix epoch: for people, never compared.
    pub origin_unix_ms: u64,
}

impl Settings {
    /// The defaults.
    pub fn new(identity: impl Into<Arc<str>>, nonce: Nonce, timing: Timing) -> Self {
        Self {
            identity: identity.into(),
            nonce,
            timing,
            cool_down: CoolDown::default(),
            backoff: Box::new(Backoff::FIVE_SEC),
            hold_back: Duration::ZERO,
            priority: 0,
            choria_peers: false,
            stands: true,
            seed: nonce.0,
            origin_unix_ms: 0,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("identity", &self.identity)
            .field("nonce", &self.nonce)
            .field("timing", &self.timing)
            .field("cool_down", &self.cool_down)
            .field("hold_back", &self.hold_back)
            .field("priority", &self.priority)
            .field("choria_peers", &self.choria_peers)
            .field("stands", &self.stands)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The campaign begins.
    Start,
    /// [`Campaign::next_wake`] has come.
    Wake,
    /// The lock suggests something.
    Hint(Hint),
    /// The answer to the request `id`.
    Answered {
        /// The request.
        id: u64,
        /// Its answer.
        answer: Answer,
    },
    /// [`Action::End`] has been done. `work_stopped`: false if the work would not stop, in which case the entry
    /// is left to expire.
    Ended {
        /// Whether no work of the term is running any more.
        work_stopped: bool,
    },
    /// The work of the term came to its end by itself.
    WorkEnded {
        /// By a panic.
        panicked: bool,
    },
    /// Give up the office, and stand again.
    Resign,
    /// Give up the office, and end the campaign.
    Stop,
    /// What the lock can do is now known better.
    Capabilities(Capabilities),
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of a [`Request::Read`].
    Read(Result<Reading, Failure>),
    /// Of a [`Request::Write`].
    Written(Result<Revision, Failure>),
    /// Of a [`Request::Release`].
    Released(Result<(), Failure>),
    /// Of a [`Request::Concede`].
    Conceded(Result<(), Failure>),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which of the answers it is.
    pub kind: LockErrorKind,
    /// What to tell people.
    pub message: Arc<str>,
}

/// Something to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Ask the lock, and answer with [`Event::Answered`]. A request still under way is to be dropped: its outcome does
    /// not matter any more, or will be found out.
    Request {
        /// To be repeated in the answer.
        id: u64,
        /// What to ask.
        request: Request,
    },
    /// Tell that the term has begun: this campaigner leads, until the deadline.
    Begin {
        /// The term's fencing token.
        token: Token,
        /// When the right to lead ends.
        deadline: Instant,
    },
    /// The right to lead now lasts until this deadline.
    Extend {
        /// When the right to lead ends.
        deadline: Instant,
    },
    /// Stop the work by `by`, wait for it, tell the loss, and answer with [`Event::Ended`].
    End {
        /// Why.
        cause: Cause,
        /// When to use force.
        by: Instant,
    },
    /// What is known about who leads has changed.
    Leader(Option<Leader>),
    /// Requests fail, for a new reason.
    Trouble(Failure),
    /// Requests succeed again.
    Recovered,
    /// The campaign has ended, and holds nothing.
    Finished,
}

/// Choria's words for where a campaigner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum State {
    /// Nothing has been heard from the lock yet.
    #[default]
    Unknown,
    /// Standing by, or elected and cooling down.
    Candidate,
    /// In office.
    Leader,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
        })
    }
}

/// Who holds the election, as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// What people read.
    pub identity: Arc<str>,
    /// The term's token; `None` where the holder is not of this library.
    pub token: Option<Token>,
    /// When the term began, by the holder's wall clock, in milliseconds since the Unix epoch.
    pub since_unix_ms: Option<u64>,
    /// When it was last seen to renew, on the local clock.
    pub seen: Instant,
    /// Whether it is this very campaigner.
    pub is_me: bool,
}

/// What the campaign is at.
#[derive(Debug)]
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
    /// Until when an entry of ours may stand in the lock, whether we know of it or not.
    pub(super) entry_may_stand_until: Instant,
    leader: Option<Leader>,
    trouble: Option<Failure>,
    actions: VecDeque<Action>,
    next_request: u64,
    next_write: u64,
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
    const REMEMBERED: usize = 16;

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
            entry_may_stand_until: Instant::ORIGIN,
            leader: None,
            trouble: None,
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
            Some(failure) if failure.kind != LockErrorKind::Conflict => self.fails(failure.clone()),
            _ if outstanding.kind == Kind::Concede => {}
            _ => {
                self.heard_from_lock = true;
                self.hearing.answered(now.saturating_since(outstanding.sent));
                if self.trouble.take().is_some() {
                    self.act(Action::Recovered);
                }
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

    fn phase_kind(&self) -> At {
        match self.phase {
            Phase::Standby(_) => At::Standby,
            Phase::Office(_) => At::Office,
            Phase::Leaving(_) => At::Leaving,
            Phase::Idle | Phase::Finished => At::Rest,
        }
    }

    fn fails(&mut self, failure: Failure) {
        if self.trouble.as_ref() != Some(&failure) {
            self.act(Action::Trouble(failure.clone()));
        }
        self.trouble = Some(failure);
    }

    fn start(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Idle) {
            // Hints are being set up: a look before they come would have to be repeated.
            self.stand_by(now + Duration::from_millis(20), Plan::Look);
        }
    }

    fn hear_concession(&mut self, now: Instant, concession: Concession) {
        let conceded = Conceded {
            by: concession.by,
            token: concession.token,
            revision: concession.revision,
            clear_at: now + super::timing::with_drift(concession.left),
        };
        self.remember_concession(conceded);
    }

    pub(super) fn remember_concession(&mut self, conceded: Conceded) {
        if self.conceded.len() == Self::REMEMBERED {
            self.conceded.pop_front();
        }
        self.conceded.push_back(conceded);
        if let Phase::Office(office) = &mut self.phase {
            office.hear_concession(&conceded);
        }
    }

    fn hear(&mut self, now: Instant, record: Record, previous: Option<Option<Revision>>) {
        if let Some(known) = &mut self.vacancy
            && known.tombstone.as_ref().is_some_and(|t| t.0 == record.revision)
        {
            known.previous = known.previous.or(previous.flatten()); // which a read does not tell
        }
        if record.revision <= self.newest_revision() || self.office_expects(&record) {
            return;
        }
        let revision = record.revision;
        let mine = matches!(&record.content, Content::Held(entry) if self.is_mine(entry));
        let writing =
            matches!(self.outstanding, Some(Outstanding { kind: Kind::Write { .. }, .. }));
        if mine && writing {
            return; // its answer is on the way
        }
        self.deposed_by_hint(now, &record);
        let held = self.learn(now, record, previous, true);
        if self.phase_kind() == At::Standby {
            match (held, mine) {
                (true, true) => self.take_up_own(now, revision),
                (true, false) => self.rest(now),
                (false, _) => self.plan_to_ask(now, true),
            }
        }
    }

    /// The newest revision known of.
    pub(super) fn newest_revision(&self) -> Revision {
        let seen = self.last_seen.as_ref().map(|seen| seen.revision);
        let tombstone = self.vacancy.as_ref().and_then(|v| v.tombstone.as_ref()).map(|t| t.0);
        seen.max(tombstone).unwrap_or(Revision(0))
    }

    /// Remembers a record. Answers whether it is somebody's entry, rather than a tombstone.
    pub(super) fn learn(
        &mut self,
        at: Instant,
        record: Record,
        previous: Option<Option<Revision>>,
        heard: bool,
    ) -> bool {
        self.learned_at = self.learned_at.max(at);
        match record.content {
            Content::Held(entry) => {
                let is_me = self.is_mine(&entry);
                let sighting = match self.last_seen.take() {
                    Some(seen) if seen.revision == record.revision => seen,
                    _ => Sighting { revision: record.revision, entry, at, heard },
                };
                if !is_me {
                    let ends = sighting.right_ends(self.capabilities.longest_lease);
                    self.rights_seen_end = self.rights_seen_end.max(ends);
                }
                self.vacancy = None;
                self.tell_leader(Some(Leader {
                    identity: Arc::clone(&sighting.entry.identity),
                    token: sighting.term().map(|(_, token)| token),
                    since_unix_ms: sighting.entry.mark.as_ref().map(|mark| mark.since_unix_ms),
                    seen: at,
                    is_me,
                }));
                self.last_seen = Some(sighting);
                true
            }
            Content::Vacant(tombstone) => {
                self.learn_vacancy(at, Some((record.revision, tombstone)), previous, false);
                false
            }
        }
    }

    pub(super) fn learn_vacancy(
        &mut self,
        at: Instant,
        tombstone: Option<(Revision, Tombstone)>,
        previous: Option<Option<Revision>>,
        empty_is_proof: bool,
    ) {
        self.learned_at = self.learned_at.max(at);
        let same = |known: &Vacancy| {
            known.tombstone.as_ref().map(|t| t.0) == tombstone.as_ref().map(|t| t.0)
        };
        match &mut self.vacancy {
            Some(known) if same(known) => {
                known.previous = known.previous.or(previous.flatten());
                known.empty_is_proof = empty_is_proof;
            }
            _ => {
                self.vacancy = Some(Vacancy {
                    tombstone,
                    previous: previous.flatten(),
                    first_seen: at,
                    empty_is_proof,
                });
            }
        }
        self.tell_leader(None);
    }

    pub(super) fn tell_leader(&mut self, leader: Option<Leader>) {
        let known = |l: &Option<Leader>| l.as_ref().map(|l| (l.identity.clone(), l.token, l.is_me));
        let changed = known(&self.leader) != known(&leader);
        self.leader = leader;
        if changed {
            self.act(Action::Leader(self.leader.clone()));
        }
    }

    pub(super) fn is_mine(&self, entry: &Entry) -> bool {
        entry.mark.as_ref().is_some_and(|mark| mark.write.nonce == self.settings.nonce)
    }

    pub(super) fn circumstances(&self, now: Instant) -> Circumstances<'_> {
        Circumstances {
            now,
            longest_lease: self.capabilities.longest_lease,
            lease: self.settings.timing.lease(),
            policy: self.settings.cool_down,
            choria_peers: self.settings.choria_peers,
            last_seen: self.last_seen.as_ref(),
            rights_seen_end: self.rights_seen_end,
        }
    }

    /// A fresh schedule for trying again what may pass: from 50 ms, doubling, with jitter, at most a second.
    pub(super) fn retries(&mut self) -> ExponentialBackoff {
        ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(1))
            .without_max_times()
            .with_jitter()
            .with_jitter_seed(self.random.u64(..))
            .build()
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
        let since_ms = u64::try_from(draft.since.since_origin().as_millis()).unwrap_or(u64::MAX);
        let write = Write {
            expected: draft.expected,
            identity: Arc::clone(&self.settings.identity),
            mark: Mark {
                write: WriteId { nonce: self.settings.nonce, number },
                lease: draft.life,
                token: draft.token,
                since_unix_ms: self.settings.origin_unix_ms.saturating_add(since_ms),
            },
            life: draft.life,
            timeout: draft.timeout,
        };
        self.request(now, Kind::Write { number }, Request::Write(write));
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
enum At {
    Rest,
    Standby,
    Office,
    Leaving,
}
