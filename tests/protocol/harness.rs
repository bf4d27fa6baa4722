//! One protocol machine and a server that answers at once, for single scenarios.

use std::collections::VecDeque;
use std::process::{ExitCode, Termination};
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    Capabilities, Content, Entry, Hint, LockErrorKind, Mark, Nonce, Reading, Record, Request,
    Revision, Token, Tombstone, Write, WriteId,
};
use incumbent::protocol::{
    Action, Cause, Elector, Event, MIN_LEASE, Response, Settings, Timing, TimingOptions,
};

use incumbent_sim::{Retention, Server, Time, failed, failure};

use super::journal::Journal;

/// The lease of all scenarios.
pub const LEASE: Duration = Duration::from_secs(12);
pub const SECOND: Duration = Duration::from_secs(1);
pub const ME: Nonce = Nonce(1);
pub const OTHER: Nonce = Nonce(2);
/// The clock's reading when a scenario begins.
const ORIGIN: Duration = Duration::from_secs(10_000);
/// What wall clocks show when a scenario begins.
pub const WALL_MS: u64 = 10_000_000;
/// More actions at one instant are a loop without a delay.
const ACTIONS_AN_INSTANT: usize = 60;

pub struct Harness {
    pub machine: Elector,
    pub now: Time,
    pub server: Server,
    /// What every request fails with.
    pub refuses: Option<LockErrorKind>,
    /// What every write fails with, while reads are answered.
    pub refuses_writes: Option<LockErrorKind>,
    /// Whether requests wait for [`Harness::answer`].
    pub holds: bool,
    /// Whether work continues until [`Harness::event`] reports its end.
    pub works_on: bool,
    pub held: Option<(u64, Request)>,
    pub log: Vec<(Time, Action)>,
    /// The events and the actions in plain words.
    pub journal: Journal,
    /// What the machine has returned, and is not done yet.
    to_do: VecDeque<Action>,
}

/// A test may return its harness: then [`super::histories`] can record it.
impl Termination for Harness {
    fn report(self) -> ExitCode {
        ExitCode::SUCCESS
    }
}

pub fn capabilities() -> Capabilities {
    Capabilities {
        min_lease: MIN_LEASE,
        max_lease: LEASE,
        can_read: true,
        empty_is_proof: false,
        expires_entries: true,
        reads_are_durable: true,
        max_identity_len: 100,
    }
}

pub fn settings() -> Settings {
    let timing = Timing::new(TimingOptions::default(), LEASE).expect("a valid lease");
    Settings::new("me", ME, timing)
}

impl Harness {
    /// Before [`Event::Start`].
    pub fn new(settings: Settings, lock: Capabilities) -> Self {
        Self {
            machine: Elector::new(settings, lock),
            now: Time::ZERO,
            server: Server::new(LEASE, Retention::LeavesMarkers, LEASE * 2),
            refuses: None,
            refuses_writes: None,
            holds: false,
            works_on: false,
            held: None,
            log: Vec::new(),
            journal: Journal::default(),
            to_do: VecDeque::new(),
        }
    }

    /// Before [`Event::Start`], on a lock where every record stays until it is written over.
    pub fn without_expiry(settings: Settings) -> Self {
        let lock = Capabilities { expires_entries: false, ..capabilities() };
        let server = Server::new(LEASE, Retention::Forever, LEASE * 2);
        Self { server, ..Self::new(settings, lock) }
    }

    /// Started, on an old and empty bucket with markers, hearing everything.
    pub fn started() -> Self {
        Self::started_with(settings(), capabilities())
    }

    pub fn started_with(settings: Settings, lock: Capabilities) -> Self {
        let mut harness = Self::new(settings, lock);
        harness.event(Event::Hint(Hint::Coverage(incumbent::lock::Coverage::Full)));
        harness.event(Event::Start);
        harness
    }

    /// Started, with its create over nothing under way.
    pub fn acquiring(lock: Capabilities) -> Self {
        let mut harness = Self::started_with(settings(), lock);
        harness.holds = true;
        harness.next_request();
        harness.serve(); // there is nothing
        harness.next_write();
        harness
    }

    /// Started, with its create over nothing under way, which is returned, on a lock where every
    /// record stays until it is written over.
    pub fn acquiring_without_expiry() -> (Self, Request) {
        let mut harness = Self::without_expiry(settings());
        harness.event(Event::Hint(Hint::Coverage(incumbent::lock::Coverage::Full)));
        harness.event(Event::Start);
        harness.holds = true;
        assert!(matches!(harness.next_request(), Request::Read { .. }));
        harness.serve();
        let create = Request::Write(harness.next_write());
        (harness, create)
    }

    /// Leading.
    pub fn leading() -> Self {
        let mut harness = Self::started();
        harness.run(Duration::from_secs(1));
        assert!(harness.leads());
        harness
    }

    /// On standby while [`OTHER`] leads.
    pub fn standby() -> Self {
        Self::standby_with(settings(), capabilities())
    }

    pub fn standby_with(settings: Settings, lock: Capabilities) -> Self {
        let mut harness = Self::new(settings, lock);
        harness.server.revision = 100;
        harness.other_writes(LEASE);
        harness.event(Event::Hint(Hint::Coverage(incumbent::lock::Coverage::Full)));
        harness.event(Event::Start);
        harness.run(Duration::from_secs(1));
        harness.log.clear();
        harness
    }

    pub fn local(&self) -> Instant {
        Instant::from_origin(ORIGIN + self.now)
    }

    /// The scenario's time of a local instant.
    pub fn time(at: Instant) -> Time {
        at.since_origin().saturating_sub(ORIGIN)
    }

    pub fn event(&mut self, event: Event) {
        self.server.expire(self.now);
        self.feed(event);
        let mut actions = 0;
        while let Some(action) = self.to_do.pop_front() {
            actions += 1;
            assert!(actions < ACTIONS_AN_INSTANT, "a loop without a delay: {:?}", self.log);
            self.log.push((self.now, action.clone()));
            match action {
                Action::Request { id, request } => {
                    self.held = Some((id, request));
                    if !self.holds {
                        self.serve();
                    }
                }
                Action::End { .. } if !self.works_on => {
                    self.feed(Event::TermEnded { work_stopped: true });
                }
                _ => {}
            }
        }
        self.journal.set_wake(self.machine.next_wake());
    }

    fn feed(&mut self, event: Event) {
        self.journal.add_event(self.now, &event);
        self.machine.handle(self.local(), event);
        while let Some(action) = self.machine.poll_action() {
            self.journal.add_action(&action);
            self.to_do.push_back(action);
        }
    }

    /// Has the server answer the request that waits.
    pub fn serve(&mut self) {
        let Some((id, request)) = self.held.take() else { return };
        let write = match &request {
            Request::Write(_) => true,
            Request::Release(release) => release.is_check(),
            _ => false,
        };
        let answer = match self.refuses.or(self.refuses_writes.filter(|_| write)) {
            Some(kind) => failed(&request, failure(kind, "no")),
            None => self.server.apply(self.now, &request).0,
        };
        if self.holds {
            self.event(Event::Response { id, response: answer });
        } else {
            self.feed(Event::Response { id, response: answer });
        }
    }

    /// Answers the request that waits.
    pub fn answer(&mut self, answer: Response) {
        let (id, _) = self.held.take().expect("a request waits");
        self.event(Event::Response { id, response: answer });
    }

    /// Applies the request that waits, and loses the reply.
    pub fn lose_the_reply(&mut self) {
        self.apply_and_fail(LockErrorKind::OutcomeUnknown);
    }

    /// Applies the request that waits, and answers that it failed.
    pub fn apply_and_fail(&mut self, kind: LockErrorKind) {
        let (id, request) = self.held.take().expect("a request waits");
        self.server.apply(self.now, &request);
        self.event(Event::Response { id, response: failed(&request, failure(kind, "no")) });
    }

    pub fn fail(&mut self, kind: LockErrorKind) {
        let (id, request) = self.held.take().expect("a request waits");
        self.event(Event::Response { id, response: failed(&request, failure(kind, "no")) });
    }

    /// Lets time pass, waking the machine when it wants to be woken.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        let (mut wakes, mut instant) = (0, self.now);
        while let Some(at) = self.machine.next_wake().map(Self::time).filter(|at| *at <= until) {
            self.now = self.now.max(at);
            wakes = if self.now == instant { wakes + 1 } else { 0 };
            instant = self.now;
            assert!(wakes < ACTIONS_AN_INSTANT, "wakes without a delay: {:?}", self.machine);
            self.event(Event::Wake);
        }
        self.now = until;
        self.server.expire(self.now);
    }

    /// Lets time pass until a request waits, and gives it.
    pub fn next_request(&mut self) -> Request {
        assert!(self.holds, "requests are answered at once");
        for _ in 0..200 {
            if let Some((_, request)) = &self.held {
                return request.clone();
            }
            let at = self.machine.next_wake().map(Self::time).expect("it waits for something");
            self.now = self.now.max(at);
            self.event(Event::Wake);
        }
        panic!("no request: {:?}", self.machine);
    }

    pub fn next_write(&mut self) -> Write {
        match self.next_request() {
            Request::Write(write) => write,
            other => panic!("{other:?} instead of a write"),
        }
    }

    /// Stores an entry of [`OTHER`], first or next of its term, and delivers the hint.
    pub fn other_writes(&mut self, lease: Duration) -> Revision {
        let content = of_other(lease);
        self.stores(content)
    }

    /// Stores `content` unconditionally, and delivers the hint.
    pub fn stores(&mut self, content: Content) -> Revision {
        let revision = self.server.store(self.now, content, LEASE);
        self.deliver_last();
        revision
    }

    pub fn admin_deletes(&mut self) -> Revision {
        self.stores(Content::Vacant(Tombstone::Deleted))
    }

    /// Tells the machine what was stored last.
    pub fn deliver_last(&mut self) {
        let last = self.server.last.clone().expect("something was stored");
        let hint = stored(last.record, last.previous);
        self.event(Event::Hint(hint));
    }

    pub fn leads(&self) -> bool {
        self.machine.deadline().is_some_and(|deadline| self.local() < deadline)
    }

    pub fn begins(&self) -> Vec<Time> {
        let begins = self.log.iter().filter(|(_, a)| matches!(a, Action::Begin { .. }));
        begins.map(|(at, _)| *at).collect()
    }

    pub fn ends(&self) -> Vec<Cause> {
        let ends = self.log.iter().filter_map(|(_, action)| match action {
            Action::End { cause, .. } => Some(cause.clone()),
            _ => None,
        });
        ends.collect()
    }

    pub fn requests(&self) -> Vec<&Request> {
        let requests = self.log.iter().filter_map(|(_, action)| match action {
            Action::Request { request, .. } => Some(request),
            _ => None,
        });
        requests.collect()
    }

    pub fn is_finished(&self) -> bool {
        self.log.iter().any(|(_, action)| matches!(action, Action::Finished))
    }

    /// Whether the server has an entry of this candidate.
    pub fn holds_entry(&self) -> bool {
        self.server.last.as_ref().is_some_and(|last| {
            matches!(&last.record.content, Content::Held(Entry { mark: Some(mark), .. })
                if mark.write.nonce == ME)
        })
    }
}

pub fn stored(record: Record, previous: Option<Option<Revision>>) -> Hint {
    Hint::Stored { record, previous, age: None }
}

pub fn of_other(lease: Duration) -> Content {
    Content::Held(Entry {
        identity: "other".into(),
        mark: Some(Mark::new(WriteId { nonce: OTHER, number: 7 }, lease, Some(Token(1)))),
        ttl: lease,
        advertisement: None,
    })
}

pub fn of_choria(life: Duration) -> Content {
    Content::Held(Entry { identity: "choria".into(), mark: None, ttl: life, advertisement: None })
}

pub fn found(revision: u64, content: Content) -> Response {
    Response::Read(Ok(Reading::Found(Record { revision: Revision(revision), content })))
}

/// What a release by `by` leaves behind, who had so much left to wait.
pub fn released(by: Nonce, left: Duration) -> Content {
    Content::Vacant(Tombstone::Released { by, left, cause: None, to: None, pause: None })
}
