//! Keys that an administrator's tools left in a state that does not show what happened.

use std::time::Duration;

use incumbent::lock::{Capabilities, Content, Hint, Nonce, Record, Request, Revision, Tombstone};
use incumbent::protocol::Event;

use super::harness::{Harness, LEASE, OTHER, capabilities, found, of_other, settings, stored};

const SECOND: Duration = Duration::from_secs(1);
/// A holder of before [`OTHER`].
const FORMER: Nonce = Nonce(78);

fn of(nonce: Nonce) -> Content {
    let Content::Held(mut entry) = of_other(LEASE) else { panic!("an entry") };
    entry.mark.as_mut().expect("a mark").write.nonce = nonce;
    Content::Held(entry)
}

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

/// A store that was restored from a backup of before the present term, while its leader leads.
#[test]
fn a_holder_seen_before_the_store_was_set_back_is_waited_for() {
    let expired = Content::Vacant(Tombstone::Expired);
    for tombstone in [released_by(Nonce(77)), expired, released_by(FORMER)] {
        for (expires_entries, shows_former) in [(true, false), (true, true), (false, false)] {
            let lock = Capabilities { expires_entries, ..capabilities() };
            let mut harness = Harness::standby_with(settings(), lock);
            harness.server.revision = 50;
            if shows_former {
                harness.server.store(harness.now, of(FORMER), LEASE);
                harness.event(Event::Hint(Hint::Recheck));
                harness.run(SECOND);
            }
            harness.server.store(harness.now, tombstone.clone(), LEASE);
            harness.event(Event::Hint(Hint::Recheck));
            harness.run(LEASE * 2);
            assert!(harness.begins()[0] >= LEASE, "{tombstone:?}: {:?}", harness.begins());
        }
    }
}

/// A backup of one's own entry is put back in the place of the present leader's, as a write.
#[test]
fn an_own_entry_that_is_put_back_is_no_release_of_the_present_holder() {
    let mut harness = Harness::leading();
    harness.run(LEASE);
    let own = harness.server.last.clone().expect("an entry").record.content;
    harness.event(Event::Resign);
    harness.run(SECOND / 10);
    harness.stores(of_other(LEASE));
    let renewed = harness.now;
    harness.run(SECOND);
    harness.stores(own);
    harness.run(LEASE * 2);
    assert!(harness.begins()[1] >= renewed + LEASE, "{:?}", harness.begins());
}

/// What may be forged is a hint, not what is read after it.
#[test]
fn a_forged_hint_of_a_long_lease_costs_a_lease_at_most() {
    let mut harness = Harness::standby();
    let Content::Held(mut forged) = of_other(LEASE) else { panic!("an entry") };
    forged.mark.as_mut().expect("a mark").lease = LEASE * 600;
    let record = Record { revision: Revision(u64::MAX), content: Content::Held(forged) };
    harness.event(Event::Hint(stored(record, None)));
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(SECOND);
    harness.stores(released_by(OTHER));
    harness.run(LEASE * 2);
    assert!(harness.leads(), "{:?}", harness.log);
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

/// A store that was made anew, or restored, gives out revisions again: the holder of one of them is
/// not the one that stepped down at it before.
#[test]
fn a_step_down_at_the_same_revision_is_not_another_holders() {
    let mut harness = Harness::leading();
    harness.run(LEASE);
    let own = harness.server.revision; // of its last write
    harness.event(Event::Resign);
    harness.server.last = None;
    harness.server.revision = own - 2;
    harness.other_writes(LEASE);
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(LEASE / 2);
    assert_eq!(harness.other_writes(LEASE).0, own);
    let renewed = harness.now;
    harness.admin_deletes();
    harness.run(LEASE * 2);
    assert!(harness.begins()[1] >= renewed + LEASE, "{:?}", harness.begins());
}
