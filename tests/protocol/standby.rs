//! Standbys: silent while hints arrive; few of them acquire, the highest priority first.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Content, Coverage, Hint, LockErrorKind, Request, Tombstone};
use incumbent::protocol::{Action, CRASHED, Event, Response};

use super::harness::{Harness, LEASE, OTHER, SECOND, capabilities, of_other, released, settings};

#[test]
pub fn a_standby_that_receives_renewals_sends_nothing_for_an_hour() -> Harness {
    let mut harness = Harness::standby();
    let until = harness.now + SECOND * 3600;
    while harness.now < until {
        harness.run(LEASE / 3);
        harness.other_writes(LEASE);
    }
    assert_eq!(harness.requests(), Vec::<&Request>::new());
    harness
}

#[test]
fn a_standby_without_hints_polls_by_its_policy() {
    let mut harness = Harness::new(settings(), capabilities());
    harness.stores(of_other(LEASE));
    harness.server.last.as_mut().expect("the entry").expires = SECOND * 7200;
    harness.event(Event::Start);
    harness.run(SECOND * 3600);
    // FIVE_SEC stays at five seconds, with a jitter of half of it.
    let polls = harness.requests().len();
    assert!((600..900).contains(&polls), "{polls} polls an hour");
}

/// Hints may come by the thousand, and move timers only.
#[test]
fn a_storm_of_hints_is_not_a_storm_of_requests() {
    for (coverage, most) in [(Coverage::Full, 130), (Coverage::Partial, 14)] {
        let mut harness = Harness::standby();
        harness.event(Event::Hint(Hint::Coverage(coverage)));
        harness.run(SECOND);
        harness.log.clear();
        for _ in 0..5000 {
            harness.event(Event::Hint(Hint::Recheck));
            harness.run(Duration::from_micros(200));
        }
        assert!(harness.requests().len() <= most, "{} reads a second", harness.requests().len());
    }
    let mut harness = Harness::leading();
    harness.log.clear();
    for _ in 0..5000 {
        harness.event(Event::Hint(Hint::Recheck));
        harness.run(Duration::from_micros(200));
    }
    assert!(harness.requests().len() <= 5, "{} requests a second", harness.requests().len());
    assert!(harness.leads());
}

#[test]
fn a_response_to_an_abandoned_request_is_ignored() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.next_write();
    let (old, _) = harness.held.clone().expect("the renewal");
    harness.event(Event::Resign);
    assert!(matches!(harness.next_request(), Request::Release(_)));
    let before = harness.log.len();
    let revision = incumbent::lock::Revision(900);
    harness.event(Event::Response { id: old, response: Response::Written(Ok(revision)) });
    harness.event(Event::Response { id: 4711, response: Response::Released(Ok(())) });
    assert_eq!(harness.log.len(), before);
    assert!(harness.holds_entry());
}

/// It reads nothing until the entry is silent, and would report a failure that is long over.
#[test]
fn a_failed_read_is_forgotten_when_a_renewal_arrives() {
    let mut harness = Harness::standby();
    harness.refuses = Some(LockErrorKind::Unavailable);
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(Duration::from_millis(50));
    let says = |harness: &Harness, wanted: fn(&Action) -> bool| {
        harness.log.iter().filter(|(_, action)| wanted(action)).count()
    };
    assert_eq!(
        says(&harness, |action| matches!(action, Action::LockFailing(_))),
        1,
        "{:?}",
        harness.log
    );
    harness.refuses = None;
    harness.other_writes(LEASE);
    assert_eq!(
        says(&harness, |action| matches!(action, Action::LockRecovered)),
        1,
        "{:?}",
        harness.log
    );
}

#[test]
pub fn a_vacancy_is_acquired_at_once_unless_a_holder_is_seen() -> Harness {
    let released = released(OTHER, Duration::ZERO);
    let mut harness = Harness::standby();
    harness.stores(released.clone());
    let vacant = harness.now;
    harness.run(SECOND);
    assert!(harness.begins()[0] <= vacant + Duration::from_millis(20), "{:?}", harness.begins());

    let mut harness = Harness::standby();
    harness.stores(released);
    harness.other_writes(LEASE);
    harness.run(LEASE / 2);
    assert_eq!(harness.requests(), Vec::<&Request>::new());
    harness
}

/// Superseded at the very instant of the response to its create: it does not lead.
#[test]
pub fn a_winner_evicted_before_its_response_does_not_lead() -> Harness {
    let mut harness = Harness::standby();
    harness.run(SECOND);
    harness.stores(released(OTHER, Duration::ZERO));
    harness.holds = true;
    harness.next_write();
    let (id, request) = harness.held.clone().expect("the create");
    let (answer, _) = harness.server.apply(harness.now, &request);
    harness.admin_deletes();
    harness.event(Event::Response { id, response: answer });
    assert!(harness.begins().is_empty());
    harness
}

/// A read is faster than the hint of the same eviction: what the hint knows more is not lost.
#[test]
fn an_eviction_read_before_its_hint_is_still_a_watched_one() {
    let mut harness = Harness::standby();
    harness.run(SECOND);
    harness.other_writes(LEASE);
    let last_write = harness.now;
    harness.run(SECOND * 8);
    harness.server.store(harness.now, Content::Vacant(Tombstone::Deleted), LEASE);
    harness.holds = true;
    harness.event(Event::Hint(Hint::Recheck));
    harness.next_request();
    harness.serve();
    harness.deliver_last();
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] < last_write + LEASE + SECOND, "{:?}", harness.begins());
}

#[test]
fn hold_back_favours_a_vanished_and_not_a_released_holder() {
    let scenario = |tombstone| {
        let mut patient = settings();
        patient.takeover_delay = SECOND * 10;
        let mut harness = Harness::standby_with(patient, capabilities());
        harness.run(SECOND);
        harness.stores(Content::Vacant(tombstone));
        let vacant = harness.now;
        harness.run(SECOND * 30);
        harness.begins()[0] - vacant
    };
    assert!(
        scenario(Tombstone::Released {
            by: OTHER,
            left: Duration::ZERO,
            cause: None,
            to: None,
            pause: None
        }) < SECOND
    );
    let held_back = scenario(Tombstone::Expired);
    assert!(held_back >= SECOND * 10, "{held_back:?}");
}

#[test]
fn an_observer_never_writes() {
    let mut observer = settings();
    observer.eligible = false;
    let mut harness = Harness::standby_with(observer, capabilities());
    harness.admin_deletes();
    assert_eq!(harness.machine.leader(), None);
    harness.run(LEASE * 3);
    harness.other_writes(LEASE);
    assert!(harness.machine.leader().is_some());
    harness.server.last = None;
    harness.run(LEASE * 3);
    harness.event(Event::Stop);
    harness.run(SECOND);
    assert!(harness.is_finished());
    assert!(harness.requests().iter().all(|request| matches!(request, Request::Read { .. })));
}

/// Others cut connections by what it says.
#[test]
fn an_observer_without_hints_sees_each_lease_renewed() {
    let lease = SECOND * 4; // polls are up to 7.5s apart
    let mut observer = settings();
    observer.eligible = false;
    let mut harness = Harness::new(observer, capabilities());
    harness.server.store(harness.now, of_other(lease), lease);
    harness.event(Event::Start);
    harness.run(lease / 12);
    for step in 1..2000 {
        if step % 4 == 0 {
            harness.server.store(harness.now, of_other(lease), lease); // no hint
        }
        harness.run(lease / 12);
        let now = harness.local();
        let leader = harness.machine.leader().expect("a leader");
        assert!(leader.is_fresh(now), "{leader:?} at {now:?}");
    }
}

/// Who may not read creates blindly, and its wait is a full lease.
#[test]
pub fn a_candidate_without_the_right_to_read_leads_in_the_end() -> Harness {
    let mut lock = capabilities();
    lock.can_read = false;
    let mut harness = Harness::new(settings(), lock);
    harness.event(Event::Start);
    harness.run(LEASE * 2);
    assert!(harness.leads());
    assert!(harness.begins()[0] >= LEASE);
    assert!(harness.requests().iter().all(|request| matches!(request, Request::Write(_))));
    harness.run(SECOND * 3600);
    assert_eq!(harness.begins().len(), 1);
    harness
}

#[test]
fn a_leader_is_as_fresh_as_its_last_write() {
    let mut harness = Harness::new(settings(), capabilities()); // it polls, and hears nothing
    harness.server.bucket_ttl = LEASE * 10; // which keeps the entry
    let fresh =
        |harness: &Harness| harness.machine.leader().map(|leader| leader.is_fresh(harness.local()));
    harness.server.store(harness.now, of_other(LEASE), LEASE * 10);
    harness.event(Event::Start);
    assert_eq!(fresh(&harness), None);
    harness.run(LEASE / 2);
    assert_eq!(fresh(&harness), Some(true));
    harness.run(LEASE); // which finds the same write again, and again
    assert_eq!(fresh(&harness), Some(false));
    harness.server.store(harness.now, of_other(LEASE), LEASE * 10);
    harness.run(LEASE * 3 / 4);
    assert_eq!(fresh(&harness), Some(true));

    let mut leads = Harness::leading();
    leads.run(LEASE * 5);
    assert_eq!(fresh(&leads), Some(true));
}

/// Where a leader can be reached may change while it leads: its next renewal states that.
#[test]
pub fn a_new_advertisement_travels_with_the_next_renewal() -> Harness {
    let mut ours = settings();
    ours.advertisement = Some(Arc::new("10.0.0.3:1".into()));
    let mut harness = Harness::started_with(ours, capabilities());
    harness.run(SECOND);
    let requests = harness.requests().len();
    harness.event(Event::Advertise(Arc::new("10.0.0.3:2".into())));
    assert_eq!(harness.requests().len(), requests, "no request of its own");
    let advertised = |harness: &Harness| {
        harness.machine.leader().and_then(|leader| leader.advertisement.clone())
    };
    assert_eq!(advertised(&harness), Some(Arc::new("10.0.0.3:2".into())));
    harness.run(LEASE / 2);
    let written = harness.requests().into_iter().filter_map(|request| match request {
        Request::Write(write) => Some(write.advertisement.clone()?.address().to_owned()),
        _ => None,
    });
    let mut written: Vec<_> = written.collect();
    written.dedup();
    assert_eq!(written, ["10.0.0.3:1", "10.0.0.3:2"]);
    // A standby states it in its next create.
    harness.event(Event::Resign);
    harness.event(Event::Advertise(Arc::new("10.0.0.3:3".into())));
    harness.run(LEASE);
    assert_eq!(advertised(&harness), Some(Arc::new("10.0.0.3:3".into())));
    harness
}

/// The cause of a release is for people.
#[test]
fn nothing_is_decided_by_the_cause_of_a_release() {
    let actions = |cause: Option<&str>| {
        let (left, cause) = (SECOND, cause.map(Into::into));
        let mut harness = Harness::standby();
        harness.run(SECOND);
        harness.stores(Content::Vacant(Tombstone::Released {
            by: OTHER,
            left,
            cause,
            to: None,
            pause: None,
        }));
        harness.run(LEASE * 2);
        assert!(harness.leads());
        harness.log
    };
    for cause in [CRASHED, "stopped", "expired"] {
        assert_eq!(actions(Some(cause)), actions(None), "{cause}");
    }
}
