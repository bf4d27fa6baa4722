//! Stops and resignations, in every phase.

use std::time::Duration;

use incumbent::lock::{Coverage, Hint, LockErrorKind, Request};
use incumbent::protocol::{Action, Cause, Event};

use super::desk::{Desk, LEASE, capabilities, of_other, settings};

const SECOND: Duration = Duration::from_secs(1);

/// Stops, lets whatever is held be answered, and sees that nothing of ours is left.
fn stops_and_leaves_nothing(mut desk: Desk, phase: &str) {
    desk.event(Event::Stop);
    desk.holds = false;
    desk.works_on = false;
    let mut turns = 0;
    while !desk.is_finished() {
        if let Some((id, request)) = desk.held.take() {
            let answer = desk.server.apply(desk.now, &request).0;
            desk.event(Event::Answered { id, answer });
        }
        desk.run(Duration::from_millis(100));
        turns += 1;
        assert!(turns < 100, "stopped {phase}: not finished after 10 s: {:?}", desk.machine);
    }
    assert!(!desk.holds_entry(), "stopped {phase}: an entry is left: {:?}", desk.machine);
    assert_eq!(desk.machine.next_wake(), None);
    desk.log.clear();
    for event in [Event::Wake, Event::Stop, Event::Resign, Event::Hint(Hint::Look), Event::Start] {
        desk.event(event);
    }
    desk.admin_deletes();
    assert!(desk.log.iter().all(|(_, action)| matches!(action, Action::Leader(_))), "{phase}");
}

fn holding(mut desk: Desk) -> Desk {
    desk.holds = true;
    desk
}

#[test]
fn a_stop_finishes_in_every_phase_and_leaves_no_entry() {
    stops_and_leaves_nothing(Desk::new(settings(), capabilities()), "before the start");
    stops_and_leaves_nothing(Desk::started(), "before the first look");

    let mut desk = holding(Desk::started());
    desk.next_request();
    stops_and_leaves_nothing(desk, "while looking");

    stops_and_leaves_nothing(Desk::standing_by(), "standing by");

    let mut desk = holding(Desk::standing_by());
    desk.admin_deletes();
    stops_and_leaves_nothing(desk, "about to ask");

    let mut desk = holding(Desk::started());
    desk.next_request();
    desk.serve();
    desk.next_write();
    stops_and_leaves_nothing(desk, "while asking");

    let mut desk = holding(Desk::started());
    desk.next_request();
    desk.serve();
    desk.next_write();
    desk.lose_the_reply();
    stops_and_leaves_nothing(desk, "with a create in doubt");

    let mut desk = Desk::standing_by();
    desk.server.store(desk.now, of_other(LEASE), LEASE);
    desk.admin_deletes();
    desk.run(SECOND);
    assert!(desk.holds_entry() && !desk.leads());
    stops_and_leaves_nothing(desk, "cooling down");

    stops_and_leaves_nothing(Desk::leading(), "leading");

    let mut desk = holding(Desk::leading());
    desk.next_write();
    stops_and_leaves_nothing(desk, "while renewing");

    let mut desk = holding(Desk::leading());
    desk.next_write();
    desk.lose_the_reply();
    stops_and_leaves_nothing(desk, "with a renewal in doubt");

    let mut desk = Desk::leading();
    desk.event(Event::Resign);
    stops_and_leaves_nothing(desk, "standing aside");

    let mut desk = holding(Desk::leading());
    desk.event(Event::Resign);
    stops_and_leaves_nothing(desk, "while releasing");

    let mut desk = holding(Desk::leading());
    desk.event(Event::Hint(Hint::Look));
    stops_and_leaves_nothing(desk, "while checking");
}

/// The release was lost; when the lock is back, a stop still finds the entry.
#[test]
fn a_stop_after_a_release_that_failed_still_releases() {
    let mut desk = Desk::leading();
    desk.refuses = Some(LockErrorKind::Unavailable);
    desk.event(Event::Resign);
    while desk.machine.next_wake().is_some()
        && !matches!(desk.log.last(), Some((_, Action::Leader(None))))
    {
        desk.run(Duration::from_millis(50));
        assert!(desk.now < LEASE, "{:?}", desk.machine);
    }
    desk.refuses = None;
    assert!(desk.holds_entry());
    stops_and_leaves_nothing(desk, "with an entry that could not be released");
}

#[test]
fn a_stop_while_the_work_stops_waits_for_it() {
    let mut desk = Desk::leading();
    desk.works_on = true;
    desk.event(Event::Resign);
    desk.event(Event::Stop);
    desk.run(SECOND);
    assert!(!desk.is_finished() && desk.holds_entry());
    desk.event(Event::Ended { work_stopped: true });
    assert!(desk.is_finished() && !desk.holds_entry());
    assert_eq!(desk.ends(), [Cause::Resigned]);
}

/// Out of reach, a stop takes a bounded time.
#[test]
fn a_stop_is_bounded_where_the_lock_is_out_of_reach() {
    for kind in [LockErrorKind::Unavailable, LockErrorKind::Unknown, LockErrorKind::Denied] {
        let mut desk = Desk::leading();
        desk.refuses = Some(kind);
        desk.event(Event::Stop);
        desk.run(SECOND * 5);
        assert!(desk.is_finished(), "{kind:?}");
    }
}

#[test]
fn whoever_resigns_lets_others_go_first_and_stands_again() {
    let mut desk = Desk::leading();
    let resigned = desk.now;
    desk.event(Event::Resign);
    assert!(!desk.holds_entry());
    desk.run(LEASE);
    let again = desk.begins()[1];
    assert!(again >= resigned + LEASE / 3 && again < resigned + LEASE / 3 + SECOND, "{again:?}");
}

/// Deposed by a hint that was wrong: the entry is still there, and is released rather than left to expire.
#[test]
fn a_wrong_hint_costs_a_term_and_not_a_lease() {
    let mut desk = Desk::leading();
    let revision = desk.server.revision + 1;
    let record = incumbent::lock::Record {
        revision: incumbent::lock::Revision(revision),
        content: of_other(LEASE),
    };
    desk.event(Event::Hint(super::desk::stored(record, None)));
    assert_eq!(desk.ends(), [Cause::Usurped { by: Some("other".into()) }]);
    assert!(!desk.holds_entry());
}

/// Work that will not stop keeps its entry: it expires when the right to lead has ended.
#[test]
fn an_entry_whose_work_goes_on_is_not_released() {
    let mut desk = Desk::leading();
    desk.works_on = true;
    desk.event(Event::Stop);
    desk.run(SECOND * 2);
    desk.event(Event::Ended { work_stopped: false });
    desk.run(SECOND);
    assert!(desk.is_finished() && desk.holds_entry());
}

/// A campaign may start before its server.
#[test]
fn a_start_without_a_lock_waits_for_it() {
    let mut desk = Desk::new(settings(), capabilities());
    desk.refuses = Some(LockErrorKind::Unavailable);
    desk.event(Event::Start);
    desk.run(Duration::from_secs(600));
    let troubles = desk.log.iter().filter(|(_, action)| matches!(action, Action::Trouble(_)));
    assert_eq!(troubles.count(), 1, "told once");
    desk.refuses = None;
    desk.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    desk.run(SECOND * 2);
    assert!(desk.leads());
    assert!(desk.log.iter().any(|(_, action)| matches!(action, Action::Recovered)));
    assert!(!desk.requests().iter().any(|request| matches!(request, Request::Release(_))));
}
