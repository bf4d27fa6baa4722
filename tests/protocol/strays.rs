//! Creates over nothing that land late, on locks where nothing stays of what was deleted: others may have come and gone before.

use std::time::Duration;

use incumbent::Cause;
use incumbent::lock::Content;
use incumbent::lock::{Capabilities, Coverage, Hint, LockErrorKind, Request, Tombstone};
use incumbent::protocol::Event;
use incumbent_sim::{Keeping, Server};

use super::desk::{Desk, LEASE, ME, capabilities, settings};

const SECOND: Duration = Duration::from_secs(1);

/// In office on a lock of which a delete leaves nothing, by the second create: the first one hangs somewhere. It is answered.
fn leading_with_a_create_under_way() -> (Desk, Request) {
    let lock = Capabilities { expires: false, ..capabilities() };
    let mut desk = Desk::new(settings(), lock);
    desk.server = Server::new(LEASE, Keeping::Forever, LEASE * 2);
    desk.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    desk.event(Event::Start);
    desk.holds = true;
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.serve();
    let hangs = Request::Write(desk.next_write());
    desk.fail(LockErrorKind::Unknown);
    let again = desk.next_write();
    assert_eq!(again.expected, None);
    desk.serve();
    desk.holds = false;
    desk.run(LEASE * 2);
    assert!(desk.leads());
    (desk, hangs)
}

/// The holder that stands there now is deleted, and what hung lands; then we look.
fn lands(desk: &mut Desk, hangs: &Request) -> Duration {
    desk.server.delete(desk.now);
    assert!(desk.server.apply(desk.now, hangs).1, "it lands");
    desk.event(Event::Hint(Hint::Look));
    desk.now
}

/// A create hung, was repeated and won. When that term was over, and another holder of the office had been deleted, the first
/// one landed: nothing was known of it any more, and its campaigner led at once, beside that other one.
#[test]
fn a_create_that_lands_after_its_term_waits_for_who_may_have_come_between() {
    let (mut desk, hangs) = leading_with_a_create_under_way();
    desk.server.delete(desk.now);
    desk.event(Event::Hint(Hint::Look));
    desk.run(Duration::from_millis(50));
    assert_eq!(desk.ends(), [Cause::Evicted]);
    desk.other_writes(LEASE);
    desk.run(LEASE / 2);
    desk.other_writes(LEASE);
    desk.run(SECOND);
    let terms = desk.begins().len();
    let landed = lands(&mut desk, &hangs);
    desk.run(LEASE * 2);
    let again = desk.begins()[terms];
    assert!(again >= landed + LEASE, "{again:?} after {landed:?}");
}

/// The same, found by who leads: what it held is gone, and it must not lead on by what it did not write in this term.
/// A process that was stopped may send its create, and then hear at the same instant of who leads; the key is purged, and the create
/// lands.
#[test]
fn a_holder_that_is_heard_of_at_the_instant_of_a_create_is_waited_for() {
    let mut desk = Desk::asking(capabilities());
    let heard = desk.other_writes(LEASE);
    desk.server.vanish();
    desk.serve();
    assert!(!desk.leads(), "another one may lead, by {heard:?}");
    let sent = desk.now;
    desk.holds = false;
    desk.run(LEASE * 2);
    let began = desk.begins();
    assert!(began.iter().all(|began| *began >= sent + LEASE), "{began:?}");
    assert!(!began.is_empty());
}

#[test]
fn a_leader_does_not_lead_on_by_a_create_that_lands_late() {
    let (mut desk, hangs) = leading_with_a_create_under_way();
    desk.server.delete(desk.now);
    desk.server.store(desk.now, super::desk::of_other(LEASE), LEASE);
    let landed = lands(&mut desk, &hangs);
    desk.run(LEASE / 2);
    assert_eq!(desk.ends(), [Cause::Evicted]);
    desk.run(LEASE * 2);
    let again = desk.begins()[1];
    assert!(again >= landed + LEASE, "{again:?} after {landed:?}");
}

/// Whoever stops and finds it says how long the next one must wait.
#[test]
fn a_create_that_lands_late_is_released_with_what_is_to_be_waited_for() {
    let (mut desk, hangs) = leading_with_a_create_under_way();
    desk.holds = true;
    desk.server.delete(desk.now);
    desk.server.store(desk.now, super::desk::of_other(LEASE), LEASE);
    desk.server.delete(desk.now);
    assert!(desk.server.apply(desk.now, &hangs).1, "it lands");
    desk.holds = false;
    desk.event(Event::Stop);
    desk.run(LEASE);
    assert!(desk.is_finished());
    let last = desk.server.last.expect("something stands there").record.content;
    let Content::Vacant(Tombstone::Released { by, left }) = last else { panic!("{last:?}") };
    assert_eq!(by, ME);
    assert!(left >= LEASE - SECOND, "{left:?}");
}
