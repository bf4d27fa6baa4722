//! What a sentinel does with the entry of a leader whose process is dead, and which terms it may
//! know of.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    Content, Entry, LockErrorKind, Mark, Nonce, Release, Request, Revision, Token, Tombstone,
    WriteId,
};
use incumbent::protocol::{CRASHED, CrashOutcome, CrashRelease, CrashStep, Event, RegisteredTerm};
use incumbent_sim::{Retention, Server, Time, failed, failure};

use super::harness::{Harness, LEASE, ME, OTHER, SECOND, of_other, released};

const LIMIT: Duration = Duration::from_secs(5);
/// The term that is released.
const TERM: RegisteredTerm = RegisteredTerm { nonce: ME, token: Token(1), create: 1 };

/// A sentinel and a server, after the death of the leader.
struct Sentinel {
    release: CrashRelease,
    server: Server,
    now: Time,
}

fn local(now: Time) -> Instant {
    Instant::from_origin(SECOND + now)
}

fn entry(nonce: Nonce, number: u64, token: Option<Token>) -> Content {
    let write = WriteId { nonce, number };
    let mark = Some(Mark::new(write, LEASE, token));
    Content::Held(Entry { identity: "me".into(), mark, ttl: LEASE, advertisement: None })
}

impl Sentinel {
    /// The entry of the first term, after a renewal: its revision is 2.
    fn of_leader() -> Self {
        let mut sentinel = Self::over(entry(ME, 1, None));
        sentinel.renewal();
        sentinel
    }

    /// The first content of the lock.
    fn over(content: Content) -> Self {
        let mut server = Server::new(LEASE, Retention::LeavesMarkers, LEASE * 2);
        server.store(Time::ZERO, content, LEASE);
        let (now, until) = (local(Time::ZERO), local(LIMIT));
        let release = CrashRelease::new(TERM, now, until, SECOND, 7);
        Self { release, server, now: Time::ZERO }
    }

    /// A write of the dead process arrives.
    fn renewal(&mut self) {
        self.server.store(self.now, entry(ME, 2, Some(TERM.token)), LEASE);
    }

    fn request(&self) -> Request {
        match self.release.next(local(self.now)) {
            CrashStep::Request(request) => request,
            other => panic!("{other:?} instead of a request"),
        }
    }

    /// The server responds to its request, which it returns.
    fn serve(&mut self) -> Request {
        let request = self.request();
        let response = self.server.apply(self.now, &request).0;
        self.release.on_response(local(self.now), response);
        request
    }

    fn fails(&mut self, kind: LockErrorKind) {
        let response = failed(&self.request(), failure(kind, "no"));
        self.release.on_response(local(self.now), response);
    }

    /// The server executes its request, and the response is lost.
    fn loses_the_response(&mut self) {
        let request = self.request();
        self.server.apply(self.now, &request);
        self.fails(LockErrorKind::OutcomeUnknown);
    }

    /// It waits before it tries again.
    fn waits(&mut self) {
        match self.release.next(local(self.now)) {
            CrashStep::Wait(at) => self.now = at.since_origin() - SECOND,
            other => panic!("{other:?} instead of a wait"),
        }
    }

    fn outcome(&self) -> CrashOutcome {
        match self.release.next(local(self.now)) {
            CrashStep::Done(outcome) => outcome,
            other => panic!("{other:?} instead of the end"),
        }
    }

    fn reads(&mut self) {
        let request = self.serve();
        assert!(matches!(request, Request::Read { timeout: SECOND }), "{request:?}");
    }

    fn releases(&mut self, revision: u64) {
        let expected = Release {
            expected: Revision(revision),
            by: ME,
            left: Duration::ZERO,
            cause: CRASHED,
            to: None,
            pause: None,
            timeout: SECOND,
        };
        match self.serve() {
            Request::Release(release) => assert_eq!(release, expected),
            other => panic!("{other:?} instead of a release"),
        }
    }

    fn content(&self) -> &Content {
        &self.server.last.as_ref().expect("something is stored").record.content
    }

    fn is_released(&self) -> bool {
        let released = Tombstone::Released {
            by: ME,
            left: Duration::ZERO,
            cause: Some(CRASHED.into()),
            to: None,
            pause: None,
        };
        *self.content() == Content::Vacant(released)
    }
}

#[test]
fn the_entry_is_released_at_the_revision_that_was_read() {
    let mut sentinel = Sentinel::of_leader();
    sentinel.reads();
    sentinel.releases(2);
    assert_eq!(sentinel.outcome(), CrashOutcome::Released);
    assert!(sentinel.is_released());
}

#[test]
fn a_create_is_known_by_its_number() {
    let mut sentinel = Sentinel::over(entry(ME, 1, None));
    sentinel.reads();
    sentinel.releases(1);
    assert_eq!(sentinel.outcome(), CrashOutcome::Released);

    // On Kubernetes a roll call moves the revision of the object.
    let mut sentinel = Sentinel::over(entry(ME, 1, None));
    sentinel.server.store(Time::ZERO, entry(ME, 1, None), LEASE);
    sentinel.reads();
    sentinel.releases(2);
    assert_eq!(sentinel.outcome(), CrashOutcome::Released);

    // A create of the same process that landed late, or after a loss of the term that is known.
    let mut sentinel = Sentinel::of_leader();
    sentinel.server.store(Time::ZERO, entry(ME, 3, None), LEASE);
    sentinel.reads();
    assert_eq!(sentinel.outcome(), CrashOutcome::NotHeld);
}

#[test]
fn what_is_not_of_the_term_is_left_alone() {
    let others = [
        entry(OTHER, 2, Some(TERM.token)),
        entry(ME, 2, Some(Token(TERM.token.0 + 1))),
        entry(ME, 2, Some(Token(TERM.token.0 - 1))),
        Content::Held(Entry { identity: "me".into(), mark: None, ttl: LEASE, advertisement: None }),
        released(OTHER, SECOND),
        Content::Vacant(Tombstone::Expired),
        Content::Vacant(Tombstone::Deleted),
    ];
    for content in others {
        let mut sentinel = Sentinel::over(content.clone());
        sentinel.reads();
        assert_eq!(sentinel.outcome(), CrashOutcome::NotHeld, "{content:?}");
        assert_eq!(*sentinel.content(), content);
    }
    let mut sentinel = Sentinel::of_leader();
    sentinel.server.vanish();
    sentinel.reads();
    assert_eq!(sentinel.outcome(), CrashOutcome::NotHeld);
}

#[test]
fn a_renewal_that_comes_first_is_read_again() {
    let mut sentinel = Sentinel::of_leader();
    sentinel.reads();
    sentinel.renewal();
    sentinel.releases(2);
    assert!(!sentinel.is_released(), "over a revision that it did not read");
    sentinel.reads();
    sentinel.releases(3);
    assert_eq!(sentinel.outcome(), CrashOutcome::Released);
    assert!(sentinel.is_released());
}

#[test]
fn another_leader_that_comes_first_is_left_alone() {
    let mut sentinel = Sentinel::of_leader();
    sentinel.reads();
    sentinel.server.store(Time::ZERO, of_other(LEASE), LEASE);
    sentinel.releases(2);
    sentinel.reads();
    assert_eq!(sentinel.outcome(), CrashOutcome::NotHeld);
    assert_eq!(*sentinel.content(), of_other(LEASE));
}

#[test]
fn a_lock_that_keeps_refusing_is_not_asked_without_a_delay() {
    let mut sentinel = Sentinel::of_leader();
    sentinel.reads();
    sentinel.fails(LockErrorKind::Conflict);
    sentinel.reads();
    sentinel.fails(LockErrorKind::Conflict);
    sentinel.waits();
    sentinel.reads();
    sentinel.releases(2);
    assert_eq!(sentinel.outcome(), CrashOutcome::Released);
}

#[test]
fn a_release_whose_response_is_lost_counts_once_it_is_read() {
    let mut sentinel = Sentinel::of_leader();
    sentinel.reads();
    sentinel.loses_the_response();
    assert!(sentinel.is_released());
    sentinel.waits();
    sentinel.reads();
    assert_eq!(sentinel.outcome(), CrashOutcome::Released);
}

#[test]
fn a_release_in_doubt_is_not_sent_again_before_a_read() {
    let mut sentinel = Sentinel::of_leader();
    sentinel.reads();
    sentinel.loses_the_response();
    sentinel.server.store(Time::ZERO, of_other(LEASE), LEASE);
    sentinel.waits();
    sentinel.reads();
    assert_eq!(sentinel.outcome(), CrashOutcome::NotHeld);
    assert_eq!(*sentinel.content(), of_other(LEASE));
}

#[test]
fn a_second_sentinel_does_no_harm() {
    let mut first = Sentinel::of_leader();
    let mut second = Sentinel::of_leader();
    second.reads();
    first.reads();
    first.releases(2);
    second.server = first.server.clone();
    second.releases(2);
    second.reads();
    assert_eq!(second.outcome(), CrashOutcome::Released);
    assert_eq!(second.server.revision, first.server.revision);
}

#[test]
fn a_lasting_refusal_ends_it_at_once() {
    for kind in [LockErrorKind::Denied, LockErrorKind::Misconfigured] {
        let mut sentinel = Sentinel::of_leader();
        sentinel.fails(kind);
        assert_eq!(sentinel.outcome(), CrashOutcome::Failed("no".to_owned()));

        let mut sentinel = Sentinel::of_leader();
        sentinel.reads();
        sentinel.fails(kind);
        assert_eq!(sentinel.outcome(), CrashOutcome::Failed("no".to_owned()));
    }
}

#[test]
fn it_gives_up_in_the_end() {
    let mut sentinel = Sentinel::of_leader();
    let mut attempts = 0;
    while !matches!(sentinel.release.next(local(sentinel.now)), CrashStep::Done(_)) {
        sentinel.fails(LockErrorKind::Unavailable);
        attempts += 1;
        if let CrashStep::Wait(_) = sentinel.release.next(local(sentinel.now)) {
            sentinel.waits();
            assert!(sentinel.now <= LIMIT, "at {:?}", sentinel.now);
        }
        assert!(attempts < 50, "without a delay");
    }
    assert!(attempts > 3, "{attempts} attempts");
    assert_eq!(sentinel.outcome(), CrashOutcome::Failed("no".to_owned()));
}

/// The term that `harness` registers.
fn registered(harness: &Harness) -> Option<RegisteredTerm> {
    harness.machine.releasable()
}

#[test]
fn only_a_term_that_has_begun_is_registered() -> Harness {
    assert_eq!(registered(&Harness::started()), None);
    let mut harness = Harness::standby();
    assert_eq!(registered(&harness), None);
    harness.admin_deletes();
    harness.run(SECOND);
    // The entry keeps others out for the earlier leader, which may still be at work.
    assert!(harness.holds_entry() && !harness.leads());
    assert_eq!(registered(&harness), None);
    harness.run(LEASE + SECOND);
    assert!(harness.leads());
    let term = registered(&harness).expect("it leads");
    assert_eq!(term.nonce, ME);
    assert!(term.holds(&harness.server.last.as_ref().unwrap().record));
    harness
}

#[test]
fn a_winner_that_stops_before_it_leads_registers_nothing() -> Harness {
    let mut harness = Harness::standby();
    harness.admin_deletes();
    harness.run(SECOND);
    harness.holds = true;
    harness.event(Event::Stop);
    assert!(matches!(harness.next_request(), Request::Release(_)));
    assert_eq!(registered(&harness), None);
    harness
}

#[test]
fn a_term_is_registered_until_its_entry_is_released() -> Harness {
    let mut harness = Harness::leading();
    let term = registered(&harness);
    assert!(term.is_some());
    harness.works_on = true;
    harness.event(Event::Resign);
    assert_eq!(registered(&harness), term, "its work has not stopped");
    harness.holds = true;
    harness.event(Event::TermEnded { work_stopped: true });
    assert!(matches!(harness.next_request(), Request::Release(_)));
    assert_eq!(registered(&harness), term, "its entry is not released");
    harness.serve();
    assert_eq!(registered(&harness), None);
    harness
}

#[test]
fn a_superseded_term_is_registered_no_more() -> Harness {
    let mut harness = Harness::leading();
    harness.other_writes(LEASE);
    harness.run(SECOND);
    assert!(!harness.leads());
    assert_eq!(registered(&harness), None);
    harness
}

#[test]
fn a_renewal_that_comes_after_the_release_is_refused() -> Harness {
    let mut harness = Harness::leading();
    let term = registered(&harness).expect("it leads");
    harness.holds = true;
    let renewal = Request::Write(harness.next_write());
    // The process dies here.
    let now = local(harness.now);
    let mut release = CrashRelease::new(term, now, now + LIMIT, SECOND, 7);
    while let CrashStep::Request(request) = release.next(now) {
        let response = harness.server.apply(harness.now, &request).0;
        release.on_response(now, response);
    }
    assert_eq!(release.next(now), CrashStep::Done(CrashOutcome::Released));
    let (_, stored) = harness.server.apply(harness.now, &renewal);
    assert!(!stored && !harness.holds_entry());
    harness
}
