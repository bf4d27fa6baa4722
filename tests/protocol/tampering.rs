//! Keys that an administrator's tools left in a state that does not show what happened.

use std::time::Duration;

use incumbent::lock::{Capabilities, Content, Hint, Nonce, Request, Tombstone};
use incumbent::protocol::Event;

use super::harness::{Harness, LEASE, OTHER, capabilities, found, of_other};

const SECOND: Duration = Duration::from_secs(1);

fn released_by(by: Nonce) -> Content {
    Content::Vacant(Tombstone::Released {
        by,
        left: Duration::ZERO,
        cause: None,
        to: None,
        pause: None,
    })
}

#[test]
fn a_delete_over_a_release_costs_no_wait() {
    let mut harness = Harness::standby();
    harness.holds = true;
    harness.stores(released_by(OTHER));
    harness.admin_deletes();
    let vacant = harness.now;
    harness.holds = false;
    harness.run(SECOND);
    assert!(harness.begins()[0] < vacant + SECOND, "{:?}", harness.begins());
}

/// A holder releases its own entry, and nothing else: a release over a tombstone was written by
/// another.
#[test]
fn a_release_over_a_tombstone_proves_nothing() {
    let mut harness = Harness::standby();
    let last_write = Duration::ZERO;
    harness.holds = true;
    harness.admin_deletes();
    harness.stores(released_by(OTHER));
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= last_write + LEASE, "{:?}", harness.begins());
}

/// An old release that is stored over the entry of another holder.
#[test]
fn a_release_by_another_than_the_holder_last_seen_proves_nothing() {
    let mut harness = Harness::standby();
    harness.stores(released_by(Nonce(77)));
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= LEASE, "{:?}", harness.begins());
}

/// The same, for one that lost the entry to that holder: the response to its read was sent before
/// the last renewal that it has received.
#[test]
pub fn a_late_response_to_a_read_hides_no_renewal_that_was_received_before_it() -> Harness {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.stores(of_other(LEASE));
    harness.serve(); // its notice
    harness.serve(); // its release, which is refused
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    let read = harness.server.last.clone().expect("an entry").record;
    harness.run(SECOND / 10);
    harness.stores(of_other(LEASE));
    let renewed = harness.now;
    harness.answer(found(read.revision.0, read.content));
    harness.stores(released_by(Nonce(77)));
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[1] >= renewed + LEASE, "{:?}", harness.begins());
    harness
}

/// The entry of another candidate is received while our create is in flight, purged, and then our
/// create is stored.
#[test]
fn an_entry_that_came_and_went_while_a_create_was_under_way_is_waited_out() {
    let mut harness = Harness::acquiring(capabilities());
    harness.run(SECOND / 100);
    let written = harness.now;
    harness.stores(of_other(LEASE));
    harness.server.last = None;
    harness.server.revision += 1;
    harness.serve();
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= written + LEASE, "{:?}", harness.begins());
}

/// The same, where our create is given up before it is stored, and found later.
#[test]
fn an_entry_that_went_before_a_create_was_found_is_waited_out() {
    let lock = Capabilities { empty_is_proof: true, ..capabilities() };
    let mut harness = Harness::acquiring(lock);
    harness.run(SECOND / 100);
    let written = harness.now;
    harness.stores(of_other(LEASE));
    harness.server.last = None;
    harness.lose_the_reply();
    harness.holds = false;
    harness.deliver_last();
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= written + LEASE, "{:?}", harness.begins());
}

/// The key of a leader whose work would not stop is purged: an empty key proves nothing about that
/// work.
#[test]
fn work_that_does_not_stop_keeps_its_own_candidate_from_an_empty_key() {
    let mut harness = Harness::leading();
    harness.works_on = true;
    let deadline = Harness::time(harness.machine.deadline().expect("it leads"));
    harness.server.last = None;
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(SECOND);
    harness.event(Event::TermEnded { work_stopped: false });
    harness.run(LEASE * 2);
    assert!(harness.begins()[1] >= deadline, "{:?} before {deadline:?}", harness.begins());
}
