//! Hints and entries that this library would not write.

use std::time::Duration;

use incumbent::lock::{Content, Entry, Hint, Nonce, Record, Revision, Tombstone};
use incumbent::protocol::Event;

use super::harness::{Harness, LEASE, OTHER, of_choria, of_other, stored};

const SECOND: Duration = Duration::from_secs(1);

fn released(by: Nonce) -> Content {
    Content::Vacant(Tombstone::Released {
        by,
        left: Duration::ZERO,
        cause: None,
        to: None,
        pause: None,
    })
}

/// How long after `tombstone`, which replaces what `holder` wrote three seconds earlier, the
/// candidate leads.
fn wait_after(holder: Content, tombstone: Content) -> Duration {
    let mut harness = Harness::standby();
    harness.stores(holder);
    harness.run(SECOND * 3);
    harness.stores(tombstone);
    let vacant = harness.now;
    harness.run(LEASE * 3);
    harness.begins()[0] - vacant
}

#[test]
fn a_release_by_another_than_the_last_holder_proves_nothing() {
    assert!(wait_after(of_other(LEASE), released(OTHER)) < SECOND);
    assert!(wait_after(of_other(LEASE), released(Nonce(99))) >= LEASE - SECOND * 3);
    assert!(wait_after(of_choria(LEASE), released(OTHER)) >= LEASE - SECOND * 3);
}

/// What claims to live for ever may be gone without a sign: where the server does not know of such
/// lives, or never had it.
#[test]
fn an_entry_with_an_endless_lease_is_read_again() {
    let mut harness = Harness::standby();
    let for_ever = Content::Held(Entry {
        identity: "junk".into(),
        mark: None,
        ttl: SECOND * 3600 * 24 * 36_600,
        advertisement: None,
    });
    harness.server.store(harness.now, for_ever, LEASE);
    harness.deliver_last();
    harness.server.last = None;
    harness.run(LEASE * 6);
    assert!(harness.leads(), "{:?}", harness.machine);
}

/// One forged hint does not hide the true ones.
#[test]
fn a_hint_of_the_largest_revision_is_forgotten_again() {
    for content in
        [of_choria(LEASE), of_other(LEASE), released(OTHER), Content::Vacant(Tombstone::Expired)]
    {
        let mut harness = Harness::standby();
        let record = Record { revision: Revision(u64::MAX), content };
        harness.event(Event::Hint(stored(record, Some(Some(Revision(u64::MAX))))));
        for _ in 0..9 {
            harness.run(LEASE / 3);
            harness.other_writes(LEASE);
        }
        assert!(harness.begins().is_empty());
        harness.stores(released(OTHER));
        let vacant = harness.now;
        harness.run(LEASE);
        assert!(harness.begins()[0] < vacant + SECOND, "{:?}", harness.machine);
    }
}

/// It costs the term, as every hint of a foreign write does, and no more.
#[test]
fn a_leader_superseded_by_a_forged_hint_releases_its_entry_and_campaigns_again() {
    let mut harness = Harness::leading();
    let record = Record { revision: Revision(u64::MAX), content: of_choria(LEASE) };
    harness.event(Event::Hint(stored(record, None)));
    assert!(!harness.leads());
    harness.run(LEASE * 4);
    assert!(harness.leads(), "{:?}", harness.machine);
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(LEASE * 4);
    assert_eq!(harness.ends().len(), 1);
}
