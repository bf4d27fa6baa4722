//! Keys that an administrator's tools left in a state which says less, or other things, than what happened.

use std::time::Duration;

use incumbent::lock::{Capabilities, Content, Hint, Nonce, Tombstone};
use incumbent::protocol::Event;

use super::desk::{Desk, LEASE, OTHER, capabilities, of_other};

const SECOND: Duration = Duration::from_secs(1);

fn released_by(by: Nonce) -> Content {
    Content::Vacant(Tombstone::Released { by, left: Duration::ZERO })
}

#[test]
fn a_delete_over_a_release_costs_no_wait() {
    let mut desk = Desk::standing_by();
    desk.holds = true;
    desk.stores(released_by(OTHER));
    desk.admin_deletes();
    let vacant = desk.now;
    desk.holds = false;
    desk.run(SECOND);
    assert!(desk.begins()[0] < vacant + SECOND, "{:?}", desk.begins());
}

/// A holder releases its own entry, and nothing else: a release over a tombstone was put there by somebody else.
#[test]
fn a_release_over_a_tombstone_proves_nothing() {
    let mut desk = Desk::standing_by();
    let last_write = Duration::ZERO;
    desk.holds = true;
    desk.admin_deletes();
    desk.stores(released_by(OTHER));
    desk.holds = false;
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= last_write + LEASE, "{:?}", desk.begins());
}

/// An old release that is stored over the entry of another holder.
#[test]
fn a_release_by_another_than_the_holder_last_seen_proves_nothing() {
    let mut desk = Desk::standing_by();
    desk.stores(released_by(Nonce(77)));
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= LEASE, "{:?}", desk.begins());
}

/// The entry of another candidate is heard while our create is under way, purged, and then our create is stored.
#[test]
fn an_entry_that_came_and_went_while_a_create_was_under_way_is_waited_out() {
    let mut desk = Desk::asking(capabilities());
    desk.run(SECOND / 100);
    let written = desk.now;
    desk.stores(of_other(LEASE));
    desk.server.last = None;
    desk.server.revision += 1;
    desk.serve();
    desk.holds = false;
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= written + LEASE, "{:?}", desk.begins());
}

/// The same, where our create is given up before it is stored, and found later.
#[test]
fn an_entry_that_went_before_a_create_was_found_is_waited_out() {
    let lock = Capabilities { empty_is_proof: true, ..capabilities() };
    let mut desk = Desk::asking(lock);
    desk.run(SECOND / 100);
    let written = desk.now;
    desk.stores(of_other(LEASE));
    desk.server.last = None;
    desk.lose_the_reply();
    desk.holds = false;
    desk.tell_last();
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= written + LEASE, "{:?}", desk.begins());
}

/// The key of a leader whose work would not stop is purged: an empty key says nothing of that work.
#[test]
fn work_that_would_not_stop_keeps_its_own_candidate_out_of_an_empty_key() {
    let mut desk = Desk::leading();
    desk.works_on = true;
    let deadline = Desk::time(desk.machine.deadline().expect("it leads"));
    desk.server.last = None;
    desk.event(Event::Hint(Hint::Look));
    desk.run(SECOND);
    desk.event(Event::Ended { work_stopped: false });
    desk.run(LEASE * 2);
    assert!(desk.begins()[1] >= deadline, "{:?} before {deadline:?}", desk.begins());
}
