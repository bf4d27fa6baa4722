//! Stops and resignations, in every phase.

use std::time::Duration;

use incumbent::lock::{Coverage, Hint, LockErrorKind, Request};
use incumbent::protocol::{Action, Cause, Event};

use super::harness::{Harness, LEASE, SECOND, capabilities, of_other, settings};

/// Stops, lets whatever is held be answered, and sees that nothing of ours is left.
fn stops_and_leaves_nothing(mut harness: Harness, phase: &str) {
    harness.event(Event::Stop);
    harness.holds = false;
    harness.works_on = false;
    let mut turns = 0;
    while !harness.is_finished() {
        if let Some((id, request)) = harness.held.take() {
            let answer = harness.server.apply(harness.now, &request).0;
            harness.event(Event::Response { id, response: answer });
        }
        harness.run(Duration::from_millis(100));
        turns += 1;
        assert!(turns < 100, "stopped {phase}: not finished after 10 s: {:?}", harness.machine);
    }
    assert!(!harness.holds_entry(), "stopped {phase}: an entry is left: {:?}", harness.machine);
    assert_eq!(harness.machine.next_wake(), None);
    harness.log.clear();
    for event in [Event::Wake, Event::Stop, Event::Resign, Event::Hint(Hint::Recheck), Event::Start]
    {
        harness.event(event);
    }
    harness.admin_deletes();
    assert!(harness.log.iter().all(|(_, action)| matches!(action, Action::Leader(_))), "{phase}");
}

fn holding(mut harness: Harness) -> Harness {
    harness.holds = true;
    harness
}

#[test]
fn a_stop_finishes_in_every_phase_and_leaves_no_entry() {
    stops_and_leaves_nothing(Harness::new(settings(), capabilities()), "before the start");
    stops_and_leaves_nothing(Harness::started(), "before the first look");

    let mut harness = holding(Harness::started());
    harness.next_request();
    stops_and_leaves_nothing(harness, "while looking");

    stops_and_leaves_nothing(Harness::standby(), "standing by");

    let mut harness = holding(Harness::standby());
    harness.admin_deletes();
    stops_and_leaves_nothing(harness, "about to ask");

    let mut harness = holding(Harness::started());
    harness.next_request();
    harness.serve();
    harness.next_write();
    stops_and_leaves_nothing(harness, "while asking");

    let mut harness = holding(Harness::started());
    harness.next_request();
    harness.serve();
    harness.next_write();
    harness.lose_the_reply();
    stops_and_leaves_nothing(harness, "with a create in doubt");

    let mut harness = Harness::standby();
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.admin_deletes();
    harness.run(SECOND);
    assert!(harness.holds_entry() && !harness.leads());
    stops_and_leaves_nothing(harness, "cooling down");

    stops_and_leaves_nothing(Harness::leading(), "leading");

    let mut harness = holding(Harness::leading());
    harness.next_write();
    stops_and_leaves_nothing(harness, "while renewing");

    let mut harness = holding(Harness::leading());
    harness.next_write();
    harness.lose_the_reply();
    stops_and_leaves_nothing(harness, "with a renewal in doubt");

    let mut harness = Harness::leading();
    harness.event(Event::Resign);
    stops_and_leaves_nothing(harness, "standing aside");

    let mut harness = holding(Harness::leading());
    harness.event(Event::Resign);
    stops_and_leaves_nothing(harness, "while releasing");

    let mut harness = holding(Harness::leading());
    harness.event(Event::Hint(Hint::Recheck));
    stops_and_leaves_nothing(harness, "while checking");
}

/// The release was lost; when the lock is back, a stop still finds the entry.
#[test]
fn a_stop_after_a_release_that_failed_still_releases() {
    let mut harness = Harness::leading();
    harness.refuses = Some(LockErrorKind::Unavailable);
    harness.event(Event::Resign);
    while harness.machine.next_wake().is_some()
        && !matches!(harness.log.last(), Some((_, Action::Leader(None))))
    {
        harness.run(Duration::from_millis(50));
        assert!(harness.now < LEASE, "{:?}", harness.machine);
    }
    harness.refuses = None;
    assert!(harness.holds_entry());
    stops_and_leaves_nothing(harness, "with an entry that could not be released");
}

#[test]
pub fn a_stop_while_the_work_stops_waits_for_it() -> Harness {
    let mut harness = Harness::leading();
    harness.works_on = true;
    harness.event(Event::Resign);
    harness.event(Event::Stop);
    harness.run(SECOND);
    assert!(!harness.is_finished() && harness.holds_entry());
    harness.event(Event::TermEnded { work_stopped: true });
    assert!(harness.is_finished() && !harness.holds_entry());
    assert_eq!(harness.ends(), [Cause::Resigned]);
    harness
}

/// Out of reach, a stop takes a bounded time.
#[test]
fn a_stop_is_bounded_while_the_lock_is_unreachable() {
    for kind in [LockErrorKind::Unavailable, LockErrorKind::OutcomeUnknown, LockErrorKind::Denied] {
        let mut harness = Harness::leading();
        harness.refuses = Some(kind);
        harness.event(Event::Stop);
        harness.run(SECOND * 5);
        assert!(harness.is_finished(), "{kind:?}");
    }
}

#[test]
pub fn a_resigned_leader_yields_to_others_and_campaigns_again() -> Harness {
    let mut harness = Harness::leading();
    let resigned = harness.now;
    harness.event(Event::Resign);
    assert!(!harness.holds_entry());
    harness.run(LEASE);
    let again = harness.begins()[1];
    assert!(again >= resigned + LEASE / 3 && again < resigned + LEASE / 3 + SECOND, "{again:?}");
    harness
}

/// They see the vacancy with their next poll, 7.5 s later at most.
#[test]
fn a_resigned_leader_lets_standbys_that_poll_go_first() {
    let mut harness = Harness::leading();
    harness.event(Event::Hint(Hint::Coverage(Coverage::None)));
    let resigned = harness.now;
    harness.event(Event::Resign);
    harness.run(LEASE * 2);
    let again = harness.begins()[1];
    assert!(again >= resigned + Duration::from_millis(7500), "{again:?}");
}

/// Superseded by a wrong hint: the entry is still there, and is released rather than left to
/// expire.
#[test]
pub fn a_wrong_hint_costs_a_term_and_not_a_lease() -> Harness {
    let mut harness = Harness::leading();
    let revision = harness.server.revision + 1;
    let record = incumbent::lock::Record {
        revision: incumbent::lock::Revision(revision),
        content: of_other(LEASE),
    };
    harness.event(Event::Hint(super::harness::stored(record, None)));
    assert_eq!(harness.ends(), [Cause::Superseded { by: Some("other".into()) }]);
    assert!(!harness.holds_entry());
    harness
}

/// Work that will not stop keeps its entry: it expires when the right to lead has ended.
#[test]
fn an_entry_whose_work_continues_is_not_released() {
    let mut harness = Harness::leading();
    harness.works_on = true;
    harness.event(Event::Stop);
    harness.run(SECOND * 2);
    harness.event(Event::TermEnded { work_stopped: false });
    harness.run(SECOND);
    assert!(harness.is_finished() && harness.holds_entry());
}

/// A campaign may start before its server.
#[test]
fn a_start_without_a_lock_waits_for_it() {
    let mut harness = Harness::new(settings(), capabilities());
    harness.refuses = Some(LockErrorKind::Unavailable);
    harness.event(Event::Start);
    harness.run(Duration::from_secs(600));
    let failures =
        harness.log.iter().filter(|(_, action)| matches!(action, Action::LockFailing(_)));
    assert_eq!(failures.count(), 1, "told once");
    harness.refuses = None;
    harness.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    harness.run(SECOND * 2);
    assert!(harness.leads());
    assert!(harness.log.iter().any(|(_, action)| matches!(action, Action::LockRecovered)));
    assert!(!harness.requests().iter().any(|request| matches!(request, Request::Release(_))));
}
