//! Creates over nothing that land late, on locks where nothing stays of what was deleted: others
//! may have come and gone before.

use std::time::Duration;

use incumbent::Cause;
use incumbent::lock::{Capabilities, Content, Hint, LockErrorKind, Reading, Request, Tombstone};
use incumbent::protocol::{Event, Response};
use incumbent_sim::{Retention, Server};

use super::harness::{Harness, LEASE, ME, capabilities, of_other, settings};

const SECOND: Duration = Duration::from_secs(1);

/// Leading on a lock without tombstones, by the second create: the first one hangs somewhere. It
/// gets its response.
fn leading_with_a_create_under_way() -> (Harness, Request) {
    let (mut harness, hangs) = Harness::acquiring_without_expiry();
    harness.fail(LockErrorKind::OutcomeUnknown);
    let again = harness.next_write();
    assert_eq!(again.expected, None);
    harness.serve();
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.leads());
    (harness, hangs)
}

/// The current holder is deleted, and the delayed write lands; then we read.
fn lands(harness: &mut Harness, hangs: &Request) -> Duration {
    harness.server.delete(harness.now);
    assert!(harness.server.apply(harness.now, hangs).1, "it lands");
    harness.event(Event::Hint(Hint::Recheck));
    harness.now
}

/// Whatever came and went before a create in doubt landed left no trace: its candidate led at once,
/// as nothing had been there when it was sent.
#[test]
fn a_create_in_doubt_that_is_found_waits_for_a_possible_holder_before_it() {
    let lock = Capabilities { expires_entries: false, ..capabilities() };
    let mut harness = Harness::new(settings(), lock);
    harness.server = Server::new(LEASE, Retention::Forever, LEASE * 2);
    harness.event(Event::Start);
    harness.holds = true;
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.answer(Response::Read(Ok(Reading::Empty { proof: true })));
    let hangs = Request::Write(harness.next_write());
    harness.fail(LockErrorKind::OutcomeUnknown);
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    let landed = lands(&mut harness, &hangs);
    harness.holds = false;
    harness.serve();
    harness.run(LEASE * 3);
    let begins = harness.begins();
    assert!(begins.first().is_some_and(|begin| *begin >= landed + LEASE), "{begins:?}");
}

/// A create hung, was repeated and won. When that term was over, and another holder had been
/// deleted, the first one landed: nothing was known of it any more, and its candidate led at once,
/// beside that other one.
#[test]
pub fn a_create_stored_after_its_term_waits_for_a_possible_holder_in_between() -> Harness {
    let (mut harness, hangs) = leading_with_a_create_under_way();
    harness.server.delete(harness.now);
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(Duration::from_millis(50));
    assert_eq!(harness.ends(), [Cause::Evicted]);
    harness.other_writes(LEASE);
    harness.run(LEASE / 2);
    harness.other_writes(LEASE);
    harness.run(SECOND);
    let terms = harness.begins().len();
    let landed = lands(&mut harness, &hangs);
    harness.run(LEASE * 2);
    let again = harness.begins()[terms];
    assert!(again >= landed + LEASE, "{again:?} after {landed:?}");
    harness
}

/// A process that was stopped may send its create, and then learn at the same instant of a leader;
/// the key is purged, and the create lands.
#[test]
fn a_holder_seen_at_the_instant_of_a_create_is_waited_for() {
    let mut harness = Harness::acquiring(capabilities());
    let heard = harness.other_writes(LEASE);
    harness.server.vanish();
    harness.serve();
    assert!(!harness.leads(), "another one may lead, by {heard:?}");
    let sent = harness.now;
    harness.holds = false;
    harness.run(LEASE * 2);
    let began = harness.begins();
    assert!(began.iter().all(|began| *began >= sent + LEASE), "{began:?}");
    assert!(!began.is_empty());
}

/// A leader finds it: what it held is gone, and it must not lead on by what it did not write in
/// this term.
#[test]
fn a_leader_does_not_continue_by_a_late_create() {
    let (mut harness, hangs) = leading_with_a_create_under_way();
    harness.server.delete(harness.now);
    harness.server.store(harness.now, super::harness::of_other(LEASE), LEASE);
    let landed = lands(&mut harness, &hangs);
    harness.run(LEASE / 2);
    assert_eq!(harness.ends(), [Cause::Evicted]);
    harness.run(LEASE * 2);
    let again = harness.begins()[1];
    assert!(again >= landed + LEASE, "{again:?} after {landed:?}");
}

/// A candidate that stops and finds it states how long the next one must wait.
#[test]
fn a_late_create_is_released_with_its_remaining_wait() {
    let (mut harness, hangs) = leading_with_a_create_under_way();
    harness.holds = true;
    harness.server.delete(harness.now);
    harness.server.store(harness.now, super::harness::of_other(LEASE), LEASE);
    harness.server.delete(harness.now);
    assert!(harness.server.apply(harness.now, &hangs).1, "it lands");
    harness.holds = false;
    harness.event(Event::Stop);
    harness.run(LEASE);
    assert!(harness.is_finished());
    let last = harness.server.last.expect("something stands there").record.content;
    let Content::Vacant(Tombstone::Released { by, left, .. }) = last else { panic!("{last:?}") };
    assert_eq!(by, ME);
    assert!(left >= LEASE - SECOND, "{left:?}");
}
