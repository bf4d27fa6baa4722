//! What a key shows though no candidate wrote it so: an administrator's tools left it in a state
//! that does not show what happened, creates land late, hints and entries are forged.

use std::time::Duration;

use incumbent::Cause;
use incumbent::lock::{
    Capabilities, Content, Entry, Hint, LockErrorKind, Nonce, Reading, Record, Request, Revision,
    Tombstone,
};
use incumbent::protocol::{Event, Response};

use super::harness::{
    Harness, LEASE, ME, OTHER, SECOND, capabilities, found, of_choria, of_other, released,
    settings, stored,
};

/// A holder of before [`OTHER`].
const FORMER: Nonce = Nonce(78);

fn of(nonce: Nonce) -> Content {
    let Content::Held(mut entry) = of_other(LEASE) else { panic!("an entry") };
    entry.mark.as_mut().expect("a mark").write.nonce = nonce;
    Content::Held(entry)
}

#[test]
fn a_delete_over_a_release_costs_no_wait() {
    let mut harness = Harness::standby();
    harness.holds = true;
    harness.stores(released(OTHER, Duration::ZERO));
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
    harness.stores(released(OTHER, Duration::ZERO));
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= last_write + LEASE, "{:?}", harness.begins());
}

/// A store that was restored from a backup of before the present term, while its leader leads.
#[test]
fn a_holder_seen_before_the_store_was_set_back_is_waited_for() {
    let expired = Content::Vacant(Tombstone::Expired);
    for tombstone in
        [released(Nonce(77), Duration::ZERO), expired, released(FORMER, Duration::ZERO)]
    {
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
fn an_own_entry_put_back_is_no_release_of_the_present_holder() {
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
    harness.stores(released(OTHER, Duration::ZERO));
    harness.run(LEASE * 2);
    assert!(harness.leads(), "{:?}", harness.log);
}

/// A former leader reads the entry of its successor. The response was sent before the last renewal
/// that it has received.
#[test]
pub fn a_late_read_response_hides_no_renewal_received_before_it() -> Harness {
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
    harness.stores(released(Nonce(77), Duration::ZERO));
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[1] >= renewed + LEASE, "{:?}", harness.begins());
    harness
}

/// The entry of another candidate is received while our create is in flight, purged, and then our
/// create is stored.
#[test]
fn an_entry_that_came_and_went_during_a_create_is_waited_out() {
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

/// An entry comes and goes while our create, which was given up before it is stored, is in flight.
/// The create is found later.
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
fn work_that_continues_keeps_its_candidate_from_an_empty_key() {
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

// Creates that land late, where nothing stays of what was deleted: others may have come and gone.

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

/// Whatever came and went before a create in doubt landed left no tombstone: its candidate led at
/// once, as nothing had been there when it was sent.
#[test]
fn a_found_create_in_doubt_waits_for_a_possible_earlier_holder() {
    let mut harness = Harness::without_expiry(settings());
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
pub fn a_create_stored_after_its_term_waits_for_holders_in_between() -> Harness {
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

/// A leader finds it: what it held is gone, and it must not continue to lead by what it did not
/// write in this term.
#[test]
fn a_leader_does_not_continue_by_a_late_create() {
    let (mut harness, hangs) = leading_with_a_create_under_way();
    harness.server.delete(harness.now);
    harness.server.store(harness.now, of_other(LEASE), LEASE);
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
    harness.server.store(harness.now, of_other(LEASE), LEASE);
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

// Hints and entries that this library would not write.

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
    assert!(wait_after(of_other(LEASE), released(OTHER, Duration::ZERO)) < SECOND);
    assert!(wait_after(of_other(LEASE), released(Nonce(99), Duration::ZERO)) >= LEASE - SECOND * 3);
    assert!(wait_after(of_choria(LEASE), released(OTHER, Duration::ZERO)) >= LEASE - SECOND * 3);
}

/// What claims to live forever may be gone without a sign: where the server does not know of such
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
    for content in [
        of_choria(LEASE),
        of_other(LEASE),
        released(OTHER, Duration::ZERO),
        Content::Vacant(Tombstone::Expired),
    ] {
        let mut harness = Harness::standby();
        let record = Record { revision: Revision(u64::MAX), content };
        harness.event(Event::Hint(stored(record, Some(Some(Revision(u64::MAX))))));
        for _ in 0..9 {
            harness.run(LEASE / 3);
            harness.other_writes(LEASE);
        }
        assert!(harness.begins().is_empty());
        harness.stores(released(OTHER, Duration::ZERO));
        let vacant = harness.now;
        harness.run(LEASE);
        assert!(harness.begins()[0] < vacant + SECOND, "{:?}", harness.machine);
    }
}

/// It costs the term, as every hint of a foreign write does, and no more.
#[test]
fn a_forged_hint_ends_the_term_and_the_entry_is_released() {
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
