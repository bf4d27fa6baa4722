//! What all phases of a candidate share: its settings, the lock, the observations, its requests and
//! its actions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::cool_down::CoolDownWait;
use super::lock_health::LockHealth;
use super::observations::{Observations, PreviousTerm, Vacancy};
use super::sampling::{HintLatency, HintRate, SentNotice};
use super::types::{Action, Cause, Event, Leader, LockFailure, Response, Settings};
use crate::lock::{
    Advertisement, Capabilities, Content, Coverage, Entry, LockErrorKind, Mark, MoveInfo, Nonce,
    Pause, Readiness, Reading, Record, Release, Request, Revision, StepDownNotice, Token,
    Tombstone, Write, WriteId,
};
use crate::time::clock::Instant;
use crate::time::timing::{
    COMMON_MIN_LEASE, MIN_LEASE, ceil_millis, scaled_to, whole_millis, with_drift,
};
use crate::util::retry::ProtocolRetries;

/// Whether it states a lease below a second.
fn is_short(entry: &Entry) -> bool {
    entry.mark.as_ref().is_some_and(|mark| mark.lease < COMMON_MIN_LEASE)
}

/// What all phases share.
#[cfg_attr(feature = "_model", derive(Clone))]
pub(super) struct Context {
    pub settings: Settings,
    pub capabilities: Capabilities,
    pub coverage: Coverage,
    /// While the coverage is [`Coverage::Sampled`].
    pub hint_rate: Option<Box<HintRate>>,
    /// A step-down notice that its successor may have missed.
    pub sent_notice: Option<Box<SentNotice>>,
    pub latency: HintLatency,
    pub random: fastrand::Rng,
    pub stopping: bool,
    pub heard_from_lock: bool,
    pub leader: Option<Leader>,
    /// The pause of the election, as the last holder stated it or an operator ordered.
    pub pause: Option<Box<Pause>>,
    /// How the term before a vacancy ended, until another leader is seen.
    pub previous_term: Option<PreviousTerm>,
    pub health: LockHealth,
    pub observed: Observations,
    pub requests: Requests,
    pub actions: Actions,
}

impl Context {
    pub fn new(settings: Settings, capabilities: Capabilities) -> Self {
        Self {
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
            capabilities,
            coverage: Coverage::None,
            hint_rate: None,
            sent_notice: None,
            latency: HintLatency::default(),
            stopping: false,
            heard_from_lock: false,
            leader: None,
            pause: None,
            previous_term: None,
            health: LockHealth::default(),
            observed: Observations::new(),
            requests: Requests::default(),
            actions: Actions::default(),
        }
    }

    pub fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// A fresh schedule for trying again what may pass.
    pub fn retries(&mut self) -> ProtocolRetries {
        ProtocolRetries::new(self.random.u64(..))
    }

    /// In milliseconds since the Unix epoch: for people.
    pub fn by_wall_clock(&self, instant: Instant) -> u64 {
        self.settings.origin_unix_ms.saturating_add(whole_millis(instant.since_origin()))
    }

    /// Whether a write of this candidate stored the entry.
    pub fn is_mine(&self, entry: &Entry) -> bool {
        self.own_mark(entry).is_some()
    }

    /// The mark of an entry, if a write of this candidate stored it. One that it did not send is of
    /// a twin: of a clone of its machine, or of the process from which it was restored.
    fn own_mark<'e>(&self, entry: &'e Entry) -> Option<&'e Mark> {
        let WriteId { nonce, number } = entry.mark.as_ref()?.write;
        let is_own = nonce == self.settings.nonce && self.requests.has_sent(number);
        entry.mark.as_ref().filter(|_| is_own)
    }

    /// A candidate that has a twin becomes another one, which waits for the twin as for any other.
    fn notice_twin(&mut self, now: Instant, entry: &Entry) {
        let nonce = entry.mark.as_ref().map(|mark| mark.write.nonce);
        if nonce == Some(self.settings.nonce) && !self.is_mine(entry) {
            // The twin draws the same random numbers, but not at the same instant.
            self.settings.nonce = Nonce(self.random.u64(..) ^ now.as_nanos());
        }
    }

    /// The mark of the entry in `record`, if there is one and a write of this candidate stored it.
    pub fn own_mark_in<'e>(&self, record: &'e Record) -> Option<&'e Mark> {
        match &record.content {
            Content::Held(entry) => self.own_mark(entry),
            Content::Vacant(_) => None,
        }
    }

    /// When the entry last seen counts as vacant, if it does not change: where the lock does not
    /// free it by itself, or later than its short lease.
    pub fn stale_at(&self) -> Option<Instant> {
        let expires = self.capabilities.expires_entries;
        let seen = self.observed.last_seen()?;
        let is_stale_first = !expires || self.outlives_its_lease(&seen.entry);
        // No candidate has a shorter one: stated from outside, it must not cause a storm.
        let shortest = if seen.entry.mark.is_some() { MIN_LEASE } else { Duration::ZERO };
        let ends = seen.lease_ends(self.capabilities.max_lease, expires);
        is_stale_first.then(|| ends.max(seen.at + shortest))
    }

    /// Whether a lock that frees entries, by the second at best, frees this one too late. Not
    /// beside Choria's candidates, whose work continues after their lease. Nor without all hints:
    /// all standbys would read at the end of each lease.
    fn outlives_its_lease(&self, entry: &Entry) -> bool {
        is_short(entry) && !self.settings.with_choria && self.coverage == Coverage::Full
    }

    /// Whether the vacancy is an entry that was judged to be stale after a lease below a second.
    pub fn has_overwritten_short_lease(&self) -> bool {
        let expected = self.observed.vacancy().and_then(Vacancy::revision);
        self.overwrites_short_lease(expected)
    }

    /// Whether a create over `expected` overwrites the entry that was last seen, of a lease below a
    /// second, as it is stale.
    pub fn overwrites_short_lease(&self, expected: Option<Revision>) -> bool {
        self.observed.last_seen().is_some_and(|seen| {
            Some(seen.revision) == expected && is_short(&seen.entry) && !self.is_mine(&seen.entry)
        })
    }

    /// The lease of which the spans between candidates are a part: this candidate's own, or that of
    /// the last holder if it is longer, up to a second, from which on they are the same.
    pub fn common_lease(&self) -> Duration {
        let Capabilities { max_lease, expires_entries, .. } = self.capabilities;
        let seen = self.observed.last_seen();
        let seen = seen.map(|seen| seen.entry.lease(max_lease, expires_entries));
        self.settings.timing.lease().max(seen.unwrap_or_default().min(COMMON_MIN_LEASE))
    }

    /// A span between candidates that suits leases of a second and more.
    pub fn scaled(&self, span: Duration) -> Duration {
        scaled_to(self.common_lease(), span)
    }

    /// Whether the entry last seen counts as vacant.
    pub fn is_stale(&self, now: Instant) -> bool {
        self.stale_at().is_some_and(|stale_at| now >= stale_at)
    }

    /// Remembers a record. Returns whether it is an entry, rather than a tombstone.
    pub fn record(
        &mut self,
        at: Instant,
        record: Record,
        previous: Option<Revision>,
        source: Source,
    ) -> bool {
        let revision = record.revision;
        let own = self.own_mark_in(&record).map(|mark| mark.write);
        self.observed.notice_set_back(at, revision, own, &self.capabilities);
        self.learn_pause(at, &record.content);
        match record.content {
            Content::Held(entry) => {
                self.health.entry_seen(revision);
                self.notice_twin(at, &entry);
                let is_me = self.is_mine(&entry);
                let leader = self.observed.record_entry(
                    at,
                    revision,
                    entry,
                    source.from_hint,
                    is_me,
                    &self.capabilities,
                );
                // An entry that was judged to be as good as free stays so until it changes, however
                // often it is read.
                if is_me || !source.on_standby || !self.is_stale(at) {
                    self.set_leader(Some(leader));
                }
                true
            }
            Content::Vacant(tombstone) => {
                let from_hint = source.from_hint;
                self.observed.record_tombstone(at, revision, tombstone, previous, from_hint);
                self.set_leader(None);
                false
            }
        }
    }

    /// Whoever holds the entry next carries on the pause that the last holder stated.
    fn learn_pause(&mut self, at: Instant, content: &Content) {
        let stated = match content {
            Content::Held(Entry { mark: Some(mark), .. })
                if mark.write.nonce != self.settings.nonce =>
            {
                mark.moves.pause
            }
            Content::Vacant(Tombstone::Released { pause, .. }) => *pause,
            // An expiry or an eviction does not end it, nor does a candidate of another program.
            Content::Held(_) | Content::Vacant(_) => return,
        };
        self.set_pause(at, stated);
    }

    pub fn set_pause(&mut self, now: Instant, pause: Option<Pause>) {
        let pause = pause.and_then(|pause| pause.at(self.by_wall_clock(now)));
        self.pause = pause.map(Box::new); // there is none almost always
    }

    /// The pause that lasts at `now`.
    pub fn pause(&self, now: Instant) -> Option<Pause> {
        self.pause.as_deref()?.at(self.by_wall_clock(now))
    }

    /// When it ends.
    pub fn pause_ends(&self, now: Instant) -> Option<Instant> {
        let until_unix_ms = self.pause(now)?.until_unix_ms;
        let since_origin = until_unix_ms.saturating_sub(self.settings.origin_unix_ms);
        Some(Instant::from_origin(Duration::from_millis(since_origin)))
    }

    /// The entry in the lock is our own, as `mark` shows.
    pub fn record_own_entry(&mut self, now: Instant, revision: Revision, mark: &Mark) {
        let in_doubt = self.requests.in_doubt(mark.write.number).is_some();
        let (settings, capabilities) = (&self.settings, &self.capabilities);
        self.observed.record_own_entry(now, revision, mark, in_doubt, settings, capabilities);
    }

    /// What our own writes so far had to wait for.
    pub fn own_cool_down(&self, now: Instant) -> Duration {
        self.observed.own_cool_down(now, self.requests.waits_in_doubt())
    }

    /// Remembers that the entry is vacant.
    pub fn record_vacancy(
        &mut self,
        at: Instant,
        tombstone: Option<(Revision, Tombstone)>,
        previous: Option<Revision>,
        empty_is_proof: bool,
    ) {
        self.observed.record_vacancy(at, tombstone, previous, empty_is_proof);
        self.set_leader(None);
    }

    pub fn set_leader(&mut self, leader: Option<Leader>) {
        let changed = match (&self.leader, &leader) {
            (Some(known), Some(leader)) => !known.is_renewal_of(leader),
            (known, leader) => known.is_some() != leader.is_some(),
        };
        self.previous_term = match (&leader, self.observed.vacancy()) {
            (Some(leader), _) if !leader.is_me => None,
            (None, Some(vacancy)) if changed || self.previous_term.is_none() => {
                Some(PreviousTerm::of(vacancy.tombstone.as_ref().map(|(_, tombstone)| tombstone)))
            }
            (None, None) if changed => None,
            _ => self.previous_term, // what is seen later shows less
        };
        self.leader = leader;
        if changed {
            self.act(Action::Leader(self.leader.clone()));
        }
    }

    /// The next write states it; this candidate's own view of itself does at once.
    pub fn advertise(&mut self, advertisement: Arc<Advertisement>) {
        if let Some(me) = self.leader.clone().filter(|leader| leader.is_me) {
            let advertisement = Some(Arc::clone(&advertisement));
            self.set_leader(Some(Leader { advertisement, ..me }));
        }
        self.settings.advertisement = Some(advertisement);
    }

    /// Notes what the response to a request shows of the lock. `acquires`: whether a write is the
    /// next thing to do.
    pub fn assess_lock(
        &mut self,
        now: Instant,
        request: &InFlightRequest,
        response: &Response,
        acquires: bool,
    ) {
        let failure = match response {
            Response::Read(Err(f)) | Response::Written(Err(f)) | Response::Released(Err(f)) => {
                Some(f)
            }
            _ => None,
        };
        let report = match failure {
            Some(failure) if failure.kind != LockErrorKind::Conflict => {
                self.health.failed(failure.clone(), request.kind == RequestKind::Read)
            }
            _ if request.kind == RequestKind::Notify => None,
            _ => {
                self.heard_from_lock = true;
                // A lock that frees nothing may search for evidence when it finds nothing, which
                // takes its time.
                let searched = matches!(response, Response::Read(Ok(Reading::Empty { .. })));
                if self.capabilities.expires_entries || !searched {
                    self.latency.request_took(now.saturating_since(request.sent));
                }
                match failure {
                    _ if request.kind == RequestKind::Read => None,
                    _ if request.kind == RequestKind::Check => {
                        self.health.succeeded(false, acquires)
                    }
                    None => self.health.write_stored(acquires),
                    Some(_) => self.health.write_conflicted(request.over, acquires),
                }
            }
        };
        self.actions.extend(report);
    }

    /// A read has succeeded. `acquires`: whether a write is the next thing to do.
    pub fn read_succeeded(&mut self, acquires: bool) {
        let report = self.health.succeeded(true, acquires);
        self.actions.extend(report);
    }

    /// Hints arrive at a standby that need not read.
    pub fn hints_arrive(&mut self) {
        let report = self.health.hints_arrive();
        self.actions.extend(report);
    }

    fn send(
        &mut self,
        now: Instant,
        kind: RequestKind,
        over: Option<Revision>,
        timeout: Duration,
        request: Request,
    ) {
        // Later than the lock's own timeout, which gives the reason.
        let slack = timeout / 2 + self.settings.timing.scaled(Duration::from_millis(100));
        self.requests.last_request += 1;
        let id = self.requests.last_request;
        self.requests.in_flight = Some(Box::new(InFlightRequest {
            id,
            sent: now,
            kind,
            over,
            seen_leases_end: self.observed.seen_leases_end,
            times_out_at: now + timeout + slack,
        }));
        self.act(Action::Request { id, request });
    }

    pub fn read(&mut self, now: Instant, timeout: Duration) {
        self.send(now, RequestKind::Read, None, timeout, Request::Read { timeout });
    }

    pub fn release(&mut self, now: Instant, release: Release) {
        let (over, timeout) = (Some(release.expected), release.timeout);
        self.send(now, RequestKind::Release, over, timeout, Request::Release(release));
    }

    /// Asks whether the lock would accept a write.
    pub fn check_writes(&mut self, now: Instant) {
        let timeout = self.settings.timing.request_timeout();
        let check = Request::Release(Release::check(timeout));
        self.send(now, RequestKind::Check, None, timeout, check);
    }

    /// Has that asked in a while, if the last write was denied: nothing else would show that the
    /// next one is accepted.
    pub fn plan_check(&mut self, now: Instant) {
        if self.health.denies_writes() && self.settings.may_acquire() {
            let delay = self.settings.timing.lease().mul_f64(2.0 + 4.0 * self.random.f64());
            self.health.plan_check(now + delay);
        }
    }

    /// How ready a candidate is that does not lead.
    pub fn standby_readiness(&self) -> Readiness {
        let refused = self.health.denies_writes();
        if refused { Readiness::Unhealthy } else { self.settings.readiness }
    }

    /// Notifies the others of a step-down.
    pub fn notify(&mut self, now: Instant, notice: StepDownNotice) {
        self.keep_notice(now, notice);
        self.send_notice(now, notice);
    }

    /// Keeps a notice that is sent now, if its receivers are drawn at random too.
    fn keep_notice(&mut self, now: Instant, notice: StepDownNotice) {
        if self.coverage == Coverage::Sampled {
            let until = now + self.capabilities.max_lease;
            self.sent_notice = Some(Box::new(SentNotice { notice, until }));
        }
    }

    /// Another candidate has created or renewed its entry. It may have missed the notice, and would
    /// wait for the end of a lease. Before its create it has subscribed to all hints, but in a
    /// cluster that may not be known everywhere yet: so each renewal repeats the notice, too.
    pub fn repeat_notice(&mut self, now: Instant) {
        if self.requests.is_busy() {
            return;
        }
        match self.sent_notice.as_deref() {
            Some(sent) if now < sent.until => self.send_notice(now, sent.notice),
            _ => self.sent_notice = None,
        }
    }

    fn send_notice(&mut self, now: Instant, notice: StepDownNotice) {
        let timeout = self.settings.timing.request_timeout();
        self.send(now, RequestKind::Notify, None, timeout, Request::NotifyStepDown(notice));
    }

    pub fn write(&mut self, now: Instant, draft: WriteDraft) {
        let WriteDraft { expected, token, since, life, timeout, wait, may_be_asked } = draft;
        let number = self.requests.add_write(now, wait);
        // Requests come as hints do.
        let may_be_asked = may_be_asked && self.coverage != Coverage::None;
        let over_nothing = token.is_none() && expected.is_none();
        self.observed.record_write(now, life, over_nothing.then_some(number));
        let write = Write {
            expected,
            identity: Arc::clone(&self.settings.identity),
            mark: Mark {
                write: WriteId { nonce: self.settings.nonce, number },
                lease: life,
                token,
                since_unix_ms: self.by_wall_clock(since),
                moves: Box::new(MoveInfo {
                    priority: may_be_asked.then_some(self.settings.priority),
                    site: self.settings.site.clone(),
                    pause: self.pause(now),
                }),
            },
            ttl: life,
            advertisement: self.settings.advertisement.clone(),
            timeout,
        };
        self.send(now, RequestKind::Write { number }, expected, timeout, Request::Write(write));
    }

    /// How long an entry must live whose writer still has to wait this long: at least until it may
    /// lead, so that the expiry of its entry proves the end of every holder before it as well.
    pub fn entry_life(&self, left: Duration) -> Duration {
        Duration::from_millis(ceil_millis(self.settings.timing.lease().max(with_drift(left))))
    }

    /// Another candidate that holds the entry, as far as is known: as last seen while the lock
    /// responds, else for as long as what was last seen entitles it.
    pub fn other_holder(&self, now: Instant) -> Option<&Leader> {
        let is_current = !self.health.shows_nothing() || now < self.observed.seen_leases_end;
        self.leader.as_ref().filter(|leader| !leader.is_me && is_current)
    }

    /// What keeps it from acquiring the entry that another try soon will not fix.
    pub fn lasting_failure(&self) -> Option<&LockFailure> {
        let lasting = [LockErrorKind::Denied, LockErrorKind::Misconfigured];
        self.health.failure().filter(|failure| lasting.contains(&failure.kind))
    }
}

/// Where a record came from, and which phase the candidate is in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    /// Received as it was stored, not read some time later.
    pub from_hint: bool,
    pub on_standby: bool,
}

/// The actions that have not been taken yet, in their order. They take no memory while there are
/// none, as almost always.
#[derive(Debug, Clone, Default)]
pub(super) struct Actions(VecDeque<Action>);

impl Actions {
    pub fn push_back(&mut self, action: Action) {
        self.0.push_back(action);
    }

    pub fn extend(&mut self, action: Option<Action>) {
        self.0.extend(action);
    }

    pub fn pop_front(&mut self) -> Option<Action> {
        let action = self.0.pop_front();
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        action
    }
}

/// What becomes of the phase.
#[must_use]
pub(super) enum Transition {
    Stay,
    /// Take part, and read the entry at `at`, not before.
    StandBy {
        at: Instant,
    },
    Hold(AcquiredEntry),
    StepDown(EndedTerm),
    /// A standby stops, which may have created an entry without knowing.
    StopStandby,
    Finish,
}

/// A create of this candidate that the lock has stored.
pub(super) struct AcquiredEntry {
    pub created: Revision,
    /// The number of the write.
    pub number: u64,
    pub sent: Instant,
    pub wait: CoolDownWait,
}

/// A term that has ended, or that ends before it began.
pub(super) struct EndedTerm {
    pub cause: Cause,
    /// The cause is known from a response of the lock, not from a hint.
    pub verified: bool,
    pub token: Token,
    pub revision: Revision,
    pub deadline: Instant,
    /// When it would have begun, or has.
    pub lead_at: Instant,
    pub began: bool,
    /// The candidate that it is handed over to.
    pub to: Option<Nonce>,
}

/// The request in flight.
#[derive(Debug, Clone)]
pub(super) struct InFlightRequest {
    pub id: u64,
    pub sent: Instant,
    pub kind: RequestKind,
    /// What a write is to replace.
    pub over: Option<Revision>,
    /// Until when those candidates might lead whose entries had been seen by then.
    pub seen_leases_end: Instant,
    /// When it times out, whatever the lock promised.
    pub times_out_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Read,
    Write {
        number: u64,
    },
    Release,
    /// A release that must be refused.
    Check,
    Notify,
}

/// A write whose outcome is not known yet.
#[derive(Debug, Clone)]
pub(super) struct WriteInDoubt {
    pub number: u64,
    pub sent: Instant,
    /// For a create: the wait it earns.
    pub wait: Option<Box<CoolDownWait>>,
}

/// A write to be.
pub(super) struct WriteDraft {
    pub expected: Option<Revision>,
    /// `None`: it begins a term.
    pub token: Option<Token>,
    pub since: Instant,
    pub life: Duration,
    pub timeout: Duration,
    /// For a create: its cool-down.
    pub wait: Option<CoolDownWait>,
    /// Whether candidates of higher priority may ask the writer to hand over.
    pub may_be_asked: bool,
}

/// Requests to the lock: at most one at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    /// Boxed, as there is none almost always.
    pub in_flight: Option<Box<InFlightRequest>>,
    pub in_doubt: VecDeque<WriteInDoubt>,
    pub last_request: u64,
    pub last_write: u64,
    /// The last ones that were stored, or may have been: a stale read may show them. Not all up to
    /// one, as a twin whose clock is behind draws numbers in between.
    pub stored: Option<Box<[u64; 8]>>,
    /// The last write that was reported as not stored: a server may have stored it all the same.
    pub last_not_stored: u64,
    /// The write that began the last term.
    pub create: u64,
}

impl Requests {
    /// How many writes of unknown outcome are remembered.
    const MAX_IN_DOUBT: usize = 64;

    /// Notes a write that is sent now, and returns its number: by the clock, so that a copy of this
    /// process draws other ones.
    pub fn add_write(&mut self, now: Instant, wait: Option<CoolDownWait>) -> u64 {
        let number = now.as_nanos().max(self.last_write.saturating_add(1));
        self.last_write = number;
        if self.in_doubt.len() == Self::MAX_IN_DOUBT {
            self.in_doubt.pop_front();
        }
        self.in_doubt.push_back(WriteInDoubt { number, sent: now, wait: wait.map(Box::new) });
        number
    }

    /// Whether a request is in flight.
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether a write is in flight.
    pub fn is_writing(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|r| matches!(r.kind, RequestKind::Write { .. }))
    }

    /// When the request in flight times out.
    pub fn times_out_at(&self) -> Option<Instant> {
        self.in_flight.as_ref().map(|request| request.times_out_at)
    }

    /// The request `id`, which is in flight no longer; `None` if it was dropped before.
    pub fn take(&mut self, id: u64) -> Option<InFlightRequest> {
        self.in_flight.take_if(|request| request.id == id).map(|request| *request)
    }

    /// Drops the request in flight.
    pub fn drop_in_flight(&mut self) {
        self.in_flight = None;
    }

    /// The failure of the request in flight if it has timed out, unless `event` is its response. A
    /// lock should respond within the timeout that it is given. One that hangs must not hang
    /// the candidate.
    pub fn timed_out(&self, now: Instant, event: &Event) -> Option<(u64, Response)> {
        let InFlightRequest { id, kind, times_out_at, .. } = self.in_flight.as_deref()?;
        let responded = matches!(event, Event::Response { id: of, .. } if of == id);
        if responded || now < *times_out_at {
            return None;
        }
        let hung = LockFailure::new(
            LockErrorKind::OutcomeUnknown,
            "the lock has not responded within the timeout it was given",
        );
        let response = match kind {
            RequestKind::Read => Response::Read(Err(hung)),
            RequestKind::Write { .. } => Response::Written(Err(hung)),
            RequestKind::Release | RequestKind::Check => Response::Released(Err(hung)),
            RequestKind::Notify => Response::Notified(Err(hung)),
        };
        Some((*id, response))
    }

    /// The write `number`, if its outcome is not known.
    pub fn in_doubt(&self, number: u64) -> Option<&WriteInDoubt> {
        self.in_doubt.iter().find(|write| write.number == number)
    }

    /// Whether this candidate sent the write `number`, as far as it can be in the lock.
    pub fn has_sent(&self, number: u64) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.contains(&number))
            || number == self.last_not_stored
            || self.in_doubt(number).is_some()
    }

    /// Whether the outcome of a write other than `number` is not known.
    pub fn has_other_in_doubt(&self, number: u64) -> bool {
        self.in_doubt.iter().any(|write| write.number != number)
    }

    /// Whether the outcome of any write is not known.
    pub fn has_in_doubt(&self) -> bool {
        !self.in_doubt.is_empty()
    }

    /// What the creates of unknown outcome earned.
    pub fn waits_in_doubt(&self) -> impl Iterator<Item = &CoolDownWait> {
        self.in_doubt.iter().filter_map(|write| write.wait.as_deref())
    }

    /// The outcome of the write `number` is known.
    pub fn resolve(&mut self, number: u64, is_stored: bool) {
        if is_stored {
            self.remember(number);
        } else {
            self.last_not_stored = number;
        }
        self.in_doubt.retain(|write| write.number != number);
        if self.in_doubt.is_empty() {
            self.in_doubt = VecDeque::new(); // takes no memory between two renewals
        }
    }

    /// The write `number` began a term.
    pub fn begin_term(&mut self, number: u64) {
        self.resolve_all(number);
        self.create = number;
    }

    /// The write `number` is in the lock: those before it were stored earlier, or never will be.
    pub fn resolve_all(&mut self, number: u64) {
        for write in std::mem::take(&mut self.in_doubt) {
            self.remember(write.number);
        }
        self.remember(number);
    }

    fn remember(&mut self, number: u64) {
        let stored = self.stored.get_or_insert_with(|| Box::new([number; 8]));
        if stored[0] != number {
            stored.rotate_right(1);
            stored[0] = number;
        }
    }
}
