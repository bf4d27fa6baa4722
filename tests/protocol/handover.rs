//! Handovers: the successor creates first, the others after it, and those that are not ready last.

use std::time::Duration;

use incumbent::lock::{
    Content, Coverage, Hint, LockErrorKind, Nonce, Readiness, Release, Request, Tombstone,
};
use incumbent::protocol::{Action, Cause, Event, Rank, Settings, Timing, TimingOptions};

use super::harness::{Harness, LEASE, ME, OTHER, SECOND, capabilities, of_other, settings};

/// Later than any create that is sent at once.
const SOON: Duration = Duration::from_millis(50);
/// A candidate that is not in these scenarios.
const THIRD: Nonce = Nonce(3);

fn released(to: Option<Nonce>) -> Content {
    Content::Vacant(Tombstone::Released {
        by: OTHER,
        left: Duration::ZERO,
        cause: None,
        to,
        pause: None,
    })
}

fn with(readiness: Readiness) -> Settings {
    Settings { readiness, ..settings() }
}

fn hand_over() -> Event {
    Event::HandOver { to: OTHER, identity: "other".into() }
}

/// On standby, and the holder has just released its entry. Returns when.
fn after_release(settings: Settings, to: Option<Nonce>) -> (Harness, Duration) {
    let mut harness = Harness::standby_with(settings, capabilities());
    harness.stores(released(to));
    let vacant = harness.now;
    (harness, vacant)
}

/// When the candidate sent its first create.
fn created(harness: &Harness) -> Duration {
    let creates = harness.log.iter().filter_map(|(at, action)| match action {
        Action::Request { request: Request::Write(_), .. } => Some(*at),
        _ => None,
    });
    creates.min().expect("a create")
}

/// How long after a release to `to` a candidate creates the entry, if nobody else does.
fn creates_after(settings: Settings, to: Option<Nonce>) -> Duration {
    let (mut harness, vacant) = after_release(settings, to);
    harness.run(LEASE * 2);
    created(&harness) - vacant
}

fn is_about(wait: Duration, least: Duration, what: &str) {
    assert!((least..least + SECOND / 2).contains(&wait), "{what}: creates after {wait:?}");
}

fn release(harness: &mut Harness) -> Release {
    match harness.next_request() {
        Request::Release(release) => release,
        other => panic!("{other:?} instead of a release"),
    }
}

#[test]
pub fn the_successor_creates_at_once_though_it_just_stepped_down() -> Harness {
    let mut harness = Harness::leading();
    harness.event(Event::Resign);
    harness.other_writes(LEASE);
    harness.run(SECOND / 10);
    harness.stores(released(Some(ME)));
    let vacant = harness.now;
    harness.run(SOON);
    assert!(harness.leads() && harness.begins()[1] < vacant + SOON, "{:?}", harness.begins());
    harness
}

/// It lets others go first.
#[test]
fn former_leader_yields_unless_named_successor() {
    for to in [None, Some(THIRD)] {
        let mut harness = Harness::leading();
        let resigned = harness.now;
        harness.event(Event::Resign);
        harness.other_writes(LEASE);
        harness.stores(released(to));
        harness.run(LEASE);
        assert!(harness.begins()[1] >= resigned + LEASE / 3, "{to:?}: {:?}", harness.begins());
    }
}

#[test]
fn others_hold_back_and_take_over_when_the_successor_is_silent() {
    for (lease_ms, hold_ms) in [(12_000, 2000), (4000, 1000), (1000, 250)] {
        let options = TimingOptions {
            lease: Some(Duration::from_millis(lease_ms)),
            ..TimingOptions::default()
        };
        let timing = Timing::new(options, LEASE).expect("a valid lease");
        let wait = creates_after(Settings { timing, ..settings() }, Some(THIRD));
        let what = format!("with a lease of {lease_ms} ms");
        is_about(wait, Duration::from_millis(hold_ms), &what);
    }
    let wait = creates_after(settings(), None);
    is_about(wait, Duration::ZERO, "nobody was named");
}

#[test]
pub fn others_create_nothing_once_the_successor_holds_the_entry() -> Harness {
    let (mut harness, _) = after_release(settings(), Some(OTHER));
    harness.run(SECOND);
    harness.other_writes(LEASE);
    harness.log.clear();
    harness.run(LEASE / 2);
    assert_eq!(harness.requests(), Vec::<&Request>::new());
    harness
}

/// It asked for the entry, and polls: the leader hands over at any moment after that.
#[test]
fn one_that_asked_for_the_entry_polls_while_others_hold_back() {
    for moment in 0..20 {
        let mut harness = Harness::standby();
        harness.event(Event::Hint(Hint::Coverage(Coverage::None)));
        for _ in 0..20 {
            harness.server.store(harness.now, of_other(LEASE), LEASE);
            harness.run(LEASE / 3);
        }
        harness.server.store(harness.now, of_other(LEASE), LEASE);
        harness.event(Event::Rank(Rank::Next));
        harness.run(SECOND * moment / 4);
        harness.server.store(harness.now, released(Some(ME)), LEASE);
        let vacant = harness.now;
        harness.run(LEASE);
        let wait = created(&harness) - vacant;
        assert!(wait < SECOND * 2, "after {} ms: {wait:?}", moment * 250);
    }
}

#[test]
fn those_that_are_not_ready_create_after_the_others() {
    for (readiness, least) in [(Readiness::Cordoned, LEASE / 2), (Readiness::Unhealthy, LEASE)] {
        for to in [None, Some(THIRD)] {
            let wait = creates_after(with(readiness), to);
            is_about(wait, least, &format!("{readiness:?} after a release to {to:?}"));
        }
    }
    let named = creates_after(with(Readiness::Cordoned), Some(ME));
    is_about(named, Duration::ZERO, "one that stands aside, and was named");
    let named = creates_after(with(Readiness::Unhealthy), Some(ME));
    is_about(named, LEASE, "one that has become sick since it was named");
}

/// Hints of it are lost: what it reads then is another vacancy, with no holder between.
#[test]
fn a_tombstone_that_expires_meanwhile_prolongs_no_wait() {
    let (mut harness, vacant) = after_release(with(Readiness::Unhealthy), None);
    harness.holds = true;
    let expired = Content::Vacant(Tombstone::Expired);
    harness.run(LEASE / 2);
    harness.server.store(harness.now, expired, LEASE);
    harness.next_write();
    is_about(harness.now - vacant, LEASE, "the first create");
    harness.serve(); // refused
    harness.next_request();
    harness.serve();
    harness.next_write();
    is_about(harness.now - vacant, LEASE, "the second create");
}

/// Where nobody released it, too.
#[test]
fn unready_candidates_create_a_deleted_entry_after_others() {
    for (readiness, least) in [
        (Readiness::Ready, Duration::ZERO),
        (Readiness::Cordoned, LEASE / 2),
        (Readiness::Unhealthy, LEASE),
    ] {
        let mut harness = Harness::standby_with(with(readiness), capabilities());
        harness.log.clear();
        harness.admin_deletes();
        let deleted = harness.now;
        harness.run(LEASE * 2);
        let wait = created(&harness) - deleted;
        is_about(wait, least, readiness.as_str());
    }
}

#[test]
pub fn a_standby_that_recovers_creates_at_once() -> Harness {
    let (mut harness, vacant) = after_release(with(Readiness::Unhealthy), None);
    harness.run(SECOND * 3);
    assert!(harness.begins().is_empty());
    harness.event(Event::Readiness(Readiness::Ready));
    harness.run(SOON);
    assert!(harness.leads() && harness.begins()[0] < vacant + SECOND * 3 + SOON);
    harness
}

/// What it hears while it reads decides, and not what it has read.
#[test]
fn a_standby_that_recovers_during_a_read_creates_at_once() {
    let mut harness = Harness::new(with(Readiness::Unhealthy), capabilities());
    harness.server.revision = 100;
    harness.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    harness.holds = true;
    harness.event(Event::Start);
    harness.next_request();
    harness.run(Duration::from_millis(1));
    harness.stores(released(None));
    harness.event(Event::Readiness(Readiness::Ready));
    harness.serve();
    harness.holds = false;
    let vacant = harness.now;
    harness.run(LEASE * 2);
    is_about(created(&harness) - vacant, Duration::ZERO, "recovered while it read");
}

#[test]
pub fn a_standby_that_becomes_sick_before_its_turn_waits() -> Harness {
    let (mut harness, vacant) = after_release(settings(), Some(THIRD));
    harness.run(SECOND);
    harness.event(Event::Readiness(Readiness::Unhealthy));
    harness.run(LEASE * 2);
    is_about(created(&harness) - vacant, LEASE, "sick since");
    harness
}

#[test]
pub fn a_release_names_the_successor_also_when_repeated() -> Harness {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.event(hand_over());
    assert_eq!(harness.ends(), [Cause::HandedOver { to: "other".into() }]);
    for kind in [LockErrorKind::Unavailable, LockErrorKind::OutcomeUnknown] {
        let Release { cause, to, .. } = release(&mut harness);
        assert_eq!((cause, to), ("handed_over", Some(OTHER)));
        harness.fail(kind);
    }
    assert_eq!(release(&mut harness).to, Some(OTHER));
    harness.serve();
    let last = harness.server.last.as_ref().expect("the tombstone");
    let named = matches!(
        &last.record.content,
        Content::Vacant(Tombstone::Released { to: Some(OTHER), .. })
    );
    assert!(named, "{last:?}");
    harness
}

/// A renewal in doubt was stored after all: the entry has another revision.
#[test]
fn a_release_after_a_conflict_names_the_successor_too() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.next_write();
    harness.lose_the_reply();
    harness.event(hand_over());
    assert_eq!(release(&mut harness).to, Some(OTHER));
    harness.serve();
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    assert_eq!(release(&mut harness).to, Some(OTHER));
}

#[test]
fn a_handover_with_work_that_stops_late_names_the_successor() {
    let mut harness = Harness::leading();
    (harness.works_on, harness.holds) = (true, true);
    harness.event(hand_over());
    harness.event(Event::Stop);
    harness.event(Event::TermEnded { work_stopped: true });
    assert_eq!(release(&mut harness).to, Some(OTHER));
}

#[test]
fn a_term_that_ends_for_another_cause_names_nobody() {
    let ends = [
        Event::Resign,
        Event::Stop,
        Event::WorkEnded { panicked: false },
        Event::WorkEnded { panicked: true },
    ];
    for end in ends {
        let mut harness = Harness::standby();
        harness.event(hand_over()); // there is no term
        harness.stores(released(None));
        harness.run(SECOND);
        assert!(harness.leads());
        (harness.works_on, harness.holds) = (true, true);
        harness.event(end.clone());
        harness.event(hand_over()); // the term has ended
        harness.event(Event::TermEnded { work_stopped: true });
        let Release { cause, to, .. } = release(&mut harness);
        assert_ne!(cause, "handed_over", "{end:?}");
        assert_eq!(to, None, "{end:?}");
    }
}

/// The successor may be waited for, but nobody hands over what is not held any more.
#[test]
fn a_term_that_has_expired_names_nobody() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.now += LEASE * 2;
    harness.event(hand_over());
    assert!(matches!(harness.ends()[..], [Cause::Expired { .. }]), "{:?}", harness.ends());
    let named = harness.requests().into_iter().any(|request| match request {
        Request::Release(release) => release.to.is_some(),
        _ => false,
    });
    assert!(!named, "{:?}", harness.requests());
}
