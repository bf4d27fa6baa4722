//! Locks that free nothing by themselves: candidates judge by their own clocks.

use std::time::Duration;

use incumbent::lock::{Capabilities, Content, Coverage, Hint, Request, Revision, Tombstone};
use incumbent::protocol::Event;
use incumbent_sim::{Keeping, Server};

use super::desk::{Desk, LEASE, capabilities, found, of_choria, of_other, settings};

const SECOND: Duration = Duration::from_secs(1);

fn forever() -> Capabilities {
    Capabilities { expires: false, ..capabilities() }
}

/// Standing by on such a lock, where somebody else has just written.
fn standing_by(coverage: Coverage) -> Desk {
    let mut desk = Desk::new(settings(), forever());
    desk.server = Server::new(LEASE, Keeping::Forever, LEASE * 2);
    desk.server.store(desk.now, of_other(LEASE), LEASE);
    desk.event(Event::Hint(Hint::Coverage(coverage)));
    desk.event(Event::Start);
    desk.run(SECOND);
    desk
}

#[test]
fn an_entry_that_has_not_changed_for_its_holders_lease_is_written_over() {
    for coverage in [Coverage::Full, Coverage::Partial, Coverage::None] {
        let mut desk = standing_by(coverage);
        desk.run(LEASE - SECOND);
        assert!(!desk.holds_entry(), "{coverage:?}: first seen after it was written");
        desk.run(SECOND);
        assert!(desk.leads(), "{coverage:?}: {:?}", desk.log);
    }
}

#[test]
fn each_renewal_of_the_holder_begins_its_lease_anew() {
    for coverage in [Coverage::Full, Coverage::None] {
        let mut desk = standing_by(coverage);
        for _ in 0..10 {
            desk.run(LEASE / 2);
            desk.server.store(desk.now, of_other(LEASE), LEASE);
            if coverage == Coverage::Full {
                desk.tell_last();
            }
        }
        let renewed = desk.now;
        desk.run(LEASE * 2);
        let led = desk.begins()[0];
        assert!(led >= renewed + LEASE, "{coverage:?}: {led:?} after {renewed:?}");
    }
}

#[test]
fn the_holders_lease_counts_not_ones_own() {
    let mut desk = standing_by(Coverage::Full);
    let longer = LEASE * 3;
    desk.server.store(desk.now, of_other(longer), longer);
    desk.tell_last();
    let renewed = desk.now;
    desk.run(longer + SECOND);
    assert!(desk.begins()[0] >= renewed + longer, "{:?} after {renewed:?}", desk.begins()[0]);
}

#[test]
fn a_deleted_entry_proves_nothing_for_a_lease() {
    let mut desk = standing_by(Coverage::Full);
    desk.server.delete(desk.now);
    desk.event(Event::Hint(Hint::Look));
    let deleted = desk.now;
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= deleted + LEASE, "{:?} after {deleted:?}", desk.begins()[0]);
}

/// On such a lock everybody says for how long they must be waited, so what is not of this library is no riddle.
#[test]
fn a_stranger_is_waited_for_as_long_as_it_says() {
    for (life, coverage) in [(LEASE / 2, Coverage::None), (LEASE * 3, Coverage::Full)] {
        let mut desk = standing_by(coverage);
        desk.server.store(desk.now, of_choria(life), life);
        desk.event(Event::Hint(Hint::Look));
        desk.tell_last();
        let written = desk.now;
        desk.run(life + SECOND);
        let begins = desk.begins();
        assert!(begins.first().is_some_and(|led| *led >= written + life), "{life:?}: {begins:?}");
    }
}

/// A lock that frees nothing may say all the same that a lease has passed, by a clock of its own, which may have been set
/// forward. Who has watched the entry knows better.
#[test]
fn a_lock_that_calls_a_watched_entry_expired_is_not_believed_too_early() {
    let mut desk = standing_by(Coverage::Full);
    let renewed = desk.now;
    let revision = desk.other_writes(LEASE);
    desk.holds = true;
    desk.event(Event::Hint(Hint::Coverage(Coverage::None)));
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.answer(found(revision.0, Content::Vacant(Tombstone::Expired)));
    desk.holds = false;
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= renewed + LEASE, "{:?} after {renewed:?}", desk.begins()[0]);
}

/// Who has just come has nothing else to go by.
#[test]
fn a_lock_that_calls_an_entry_expired_is_believed_by_a_newcomer() {
    let mut desk = Desk::new(settings(), forever());
    desk.server.store(desk.now, of_other(LEASE), LEASE);
    desk.holds = true;
    desk.event(Event::Start);
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.answer(found(1, Content::Vacant(Tombstone::Expired)));
    assert_eq!(desk.next_write().expected, Some(Revision(1)));
    desk.serve();
    desk.run(LEASE / 4);
    assert_eq!(desk.begins().len(), 1);
}
