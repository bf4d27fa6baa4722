//! Hints and entries that nobody of this library would write.

use std::time::Duration;

use incumbent::lock::{Content, Entry, Hint, Nonce, Record, Revision, Tombstone};
use incumbent::protocol::Event;

use super::desk::{Desk, LEASE, OTHER, of_choria, of_other, stored};

const SECOND: Duration = Duration::from_secs(1);

fn released(by: Nonce) -> Content {
    Content::Vacant(Tombstone::Released { by, left: Duration::ZERO })
}

/// How long after `tombstone`, which replaces what `holder` wrote three seconds earlier, the candidate leads.
fn wait_after(holder: Content, tombstone: Content) -> Duration {
    let mut desk = Desk::standing_by();
    desk.stores(holder);
    desk.run(SECOND * 3);
    desk.stores(tombstone);
    let vacant = desk.now;
    desk.run(LEASE * 3);
    desk.begins()[0] - vacant
}

#[test]
fn a_release_that_is_not_the_last_holders_proves_nothing() {
    assert!(wait_after(of_other(LEASE), released(OTHER)) < SECOND);
    assert!(wait_after(of_other(LEASE), released(Nonce(99))) >= LEASE - SECOND * 3);
    assert!(wait_after(of_choria(LEASE), released(OTHER)) >= LEASE - SECOND * 3);
}

/// What claims to live for ever may be gone without a sign: where the server does not know of such lives, or never had it.
#[test]
fn an_entry_that_claims_to_live_for_ever_is_looked_at_again() {
    let mut desk = Desk::standing_by();
    let for_ever = Content::Held(Entry {
        identity: "junk".into(),
        mark: None,
        life: SECOND * 3600 * 24 * 36_600,
        advertisement: None,
    });
    desk.server.store(desk.now, for_ever, LEASE);
    desk.tell_last();
    desk.server.last = None;
    desk.run(LEASE * 6);
    assert!(desk.leads(), "{:?}", desk.machine);
}

/// One forged hint does not make deaf to the true ones.
#[test]
fn a_hint_of_the_last_revision_there_is_is_forgotten_again() {
    for content in
        [of_choria(LEASE), of_other(LEASE), released(OTHER), Content::Vacant(Tombstone::Expired)]
    {
        let mut desk = Desk::standing_by();
        let record = Record { revision: Revision(u64::MAX), content };
        desk.event(Event::Hint(stored(record, Some(Some(Revision(u64::MAX))))));
        for _ in 0..9 {
            desk.run(LEASE / 3);
            desk.other_writes(LEASE);
        }
        assert!(desk.begins().is_empty());
        desk.stores(released(OTHER));
        let vacant = desk.now;
        desk.run(LEASE);
        assert!(desk.begins()[0] < vacant + SECOND, "{:?}", desk.machine);
    }
}

/// It costs the term, as every hint of somebody else's write does, and no more.
#[test]
fn a_leader_deposed_by_a_forged_hint_gives_up_its_entry_and_stands_again() {
    let mut desk = Desk::leading();
    let record = Record { revision: Revision(u64::MAX), content: of_choria(LEASE) };
    desk.event(Event::Hint(stored(record, None)));
    assert!(!desk.leads());
    desk.run(LEASE * 4);
    assert!(desk.leads(), "{:?}", desk.machine);
    desk.event(Event::Hint(Hint::Look));
    desk.run(LEASE * 4);
    assert_eq!(desk.ends().len(), 1);
}
