//! Locks that expire no entries: candidates measure leases with their own clocks.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{
    Capabilities, Content, Coverage, Hint, LockErrorKind, Nonce, Reading, Record, Request,
    Revision, Tombstone,
};
use incumbent::protocol::{Action, Cause, CoolDown, Event, Response, Settings};
use incumbent_sim::{Retention, Server};

use super::harness::{
    Harness, LEASE, OTHER, SECOND, capabilities, found, of_choria, of_other, released, settings,
};

fn forever() -> Capabilities {
    Capabilities { expires_entries: false, ..capabilities() }
}

/// On standby on such a lock, where another candidate has just written.
fn standby(coverage: Coverage) -> Harness {
    let mut harness = Harness::without_expiry(settings());
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.event(Event::Hint(Hint::Coverage(coverage)));
    harness.event(Event::Start);
    harness.run(SECOND);
    harness
}

#[test]
pub fn an_entry_unchanged_for_its_holders_lease_is_overwritten() -> Harness {
    let [.., polling] = [Coverage::Full, Coverage::Partial, Coverage::None].map(|coverage| {
        let mut harness = standby(coverage);
        harness.run(LEASE - SECOND);
        assert!(!harness.holds_entry(), "{coverage:?}: first seen after it was written");
        harness.run(SECOND);
        assert!(harness.leads(), "{coverage:?}: {:?}", harness.log);
        harness
    });
    polling
}

/// All standbys would send it at one instant.
#[test]
fn an_entry_whose_renewals_are_received_is_not_read() {
    let mut harness = standby(Coverage::Full);
    harness.log.clear();
    harness.run(LEASE + SECOND);
    assert!(harness.leads(), "{:?}", harness.log);
    assert!(!harness.requests().iter().any(|r| matches!(r, Request::Read { .. })));
}

/// As where a watch is dead.
#[test]
fn a_renewal_that_was_not_received_is_found_and_waited_for() {
    let mut harness = standby(Coverage::Full);
    harness.run(LEASE / 2);
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    let renewed = harness.now;
    harness.run(LEASE * 3);
    assert!(harness.begins()[0] >= renewed + LEASE, "{:?} after {renewed:?}", harness.begins()[0]);
}

/// An outage must not make a storm of a fleet.
#[test]
fn retries_of_a_standby_follow_its_back_off() {
    let rarely = |_, random: f64| (LEASE * 4).mul_f64(0.5 + random);
    let settings = Settings { backoff: Arc::new(rarely), ..settings() };
    let mut harness = Harness::without_expiry(settings);
    harness.refuses_writes = Some(LockErrorKind::Unavailable);
    harness.event(Event::Start);
    harness.run(LEASE * 100);
    let asked = harness.requests().iter().filter(|r| matches!(r, Request::Write(_))).count();
    assert!((20..60).contains(&asked), "{asked} in a hundred leases");
}

#[test]
fn each_renewal_of_the_holder_begins_its_lease_anew() {
    for coverage in [Coverage::Full, Coverage::None] {
        let mut harness = standby(coverage);
        for _ in 0..10 {
            harness.run(LEASE / 2);
            harness.server.store(harness.now, of_other(LEASE), LEASE);
            if coverage == Coverage::Full {
                harness.deliver_last();
            }
        }
        let renewed = harness.now;
        harness.run(LEASE * 2);
        let led = harness.begins()[0];
        assert!(led >= renewed + LEASE, "{coverage:?}: {led:?} after {renewed:?}");
    }
}

#[test]
fn the_lease_of_the_holder_counts_and_not_the_own_lease() {
    let mut harness = standby(Coverage::Full);
    let longer = LEASE * 3;
    harness.server.store(harness.now, of_other(longer), longer);
    harness.deliver_last();
    let renewed = harness.now;
    harness.run(longer + SECOND);
    assert!(harness.begins()[0] >= renewed + longer, "{:?} after {renewed:?}", harness.begins()[0]);
}

/// The longest lease that a lock knows may be this candidate's own, as on Kubernetes. Where it is
/// not known which write a tombstone replaced, a longer one that was seen counted for nothing.
#[test]
fn a_deleted_entry_proves_nothing_for_the_lease_of_its_holder() {
    let longer = LEASE * 3;
    for leaves_nothing in [true, false] {
        let mut harness = standby(Coverage::Full);
        harness.server.store(harness.now, of_other(longer), longer);
        harness.deliver_last();
        harness.run(SECOND);
        harness.server.store(harness.now, of_other(longer), longer); // and is not received
        if leaves_nothing {
            harness.server.last = None;
        } else {
            harness.server.delete(harness.now);
        }
        harness.event(Event::Hint(Hint::Recheck));
        let gone = harness.now;
        harness.run(longer * 2);
        let led = harness.begins()[0];
        assert!(led >= gone + longer, "leaves nothing: {leaves_nothing}, {led:?} after {gone:?}");
    }
}

#[test]
fn a_deleted_entry_proves_nothing_for_a_lease() {
    let mut harness = standby(Coverage::Full);
    harness.server.delete(harness.now);
    harness.event(Event::Hint(Hint::Recheck));
    let deleted = harness.now;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= deleted + LEASE, "{:?} after {deleted:?}", harness.begins()[0]);
}

/// On such a lock every entry states its lease, so a foreign entry is waited for as long as it
/// states.
#[test]
fn a_foreign_holder_is_waited_for_as_long_as_its_mark_states() {
    for (life, coverage) in [(LEASE / 2, Coverage::None), (LEASE * 3, Coverage::Full)] {
        let mut harness = standby(coverage);
        harness.server.store(harness.now, of_choria(life), life);
        harness.event(Event::Hint(Hint::Recheck));
        harness.deliver_last();
        let written = harness.now;
        harness.run(life + SECOND);
        let begins = harness.begins();
        assert!(begins.first().is_some_and(|led| *led >= written + life), "{life:?}: {begins:?}");
    }
}

/// client-go's release does not check whose record it empties: a leader that was evicted while it
/// was cut off may write over the entry of its successor for as long as its work continues.
#[test]
fn winner_after_an_evicted_foreign_holder_confirms_its_entry() {
    for overwritten in [false, true] {
        let mut harness = standby(Coverage::Full);
        harness.stores(of_choria(LEASE));
        let evicted = Tombstone::Released {
            by: Nonce::NOBODY,
            left: LEASE,
            cause: Some("evicted".into()),
            to: None,
            pause: None,
        };
        harness.stores(Content::Vacant(evicted));
        harness.run(SECOND);
        assert!(harness.holds_entry(), "it waits as the holder");
        let lead_at = Harness::time(harness.machine.cool_down().expect("it waits").0);
        harness.run(lead_at - harness.now - SECOND / 100);
        if overwritten {
            harness.server.store(harness.now, of_choria(LEASE), LEASE); // no hint comes
        }
        harness.run(SECOND / 10);
        assert_eq!(harness.leads(), !overwritten, "{:?}", harness.log);
        assert_eq!(harness.begins().len(), usize::from(!overwritten));
    }
}

/// A lock without expiry may report all the same that a lease has passed, by a clock of its own,
/// which may have been set forward. Who has watched the entry knows better.
#[test]
fn a_watched_entry_called_expired_by_the_lock_is_waited_out() {
    let mut harness = standby(Coverage::Full);
    let renewed = harness.now;
    let revision = harness.other_writes(LEASE);
    harness.holds = true;
    harness.event(Event::Hint(Hint::Coverage(Coverage::None)));
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.answer(found(revision.0, Content::Vacant(Tombstone::Expired)));
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= renewed + LEASE, "{:?} after {renewed:?}", harness.begins()[0]);
}

/// Who has just come has nothing else to go by.
#[test]
fn a_newcomer_takes_an_entry_that_the_lock_calls_expired() {
    let mut harness = Harness::new(settings(), forever());
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.holds = true;
    harness.event(Event::Start);
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.answer(found(1, Content::Vacant(Tombstone::Expired)));
    assert_eq!(harness.next_write().expected, Some(Revision(1)));
    harness.serve();
    harness.run(LEASE / 4);
    assert_eq!(harness.begins().len(), 1);
}

/// Each read finds the expired entry, and each write fails: neither is news after the first time.
#[test]
fn a_lock_that_refuses_every_write_is_reported_once() {
    use LockErrorKind::{Conflict, Denied, Misconfigured, OutcomeUnknown, Unavailable};
    for kind in [Misconfigured, Denied, Unavailable, OutcomeUnknown, Conflict] {
        for coverage in [Coverage::Full, Coverage::None] {
            let mut harness = standby(coverage);
            harness.refuses_writes = Some(kind);
            harness.run(LEASE * 10);
            let asked =
                harness.requests().iter().filter(|r| matches!(r, Request::Write(_))).count();
            assert!(asked > 10, "{kind:?}, {coverage:?}: it keeps trying: {asked}");
            let said: Vec<_> = (harness.log.iter())
                .filter_map(|(_, action)| match action {
                    Action::Leader(leader) => {
                        Some(leader.as_ref().map_or("none", |l| &*l.identity).to_owned())
                    }
                    Action::LockFailing(_) => Some("fails".to_owned()),
                    Action::LockRecovered => Some("recovered".to_owned()),
                    _ => None,
                })
                .collect();
            assert_eq!(said, ["other", "none", "fails"], "{kind:?}, {coverage:?}");

            harness.log.clear();
            harness.refuses_writes = None;
            harness.run(SECOND * 10);
            assert!(harness.leads(), "{kind:?}, {coverage:?}: {:?}", harness.log);
            let recovered =
                harness.log.iter().filter(|(_, a)| matches!(a, Action::LockRecovered)).count();
            assert_eq!(recovered, 1, "{kind:?}, {coverage:?}");
        }
    }
}

/// The time of a search for evidence is not the latency of hints.
#[test]
fn a_long_search_for_evidence_does_not_delay_the_first_leader() {
    let mut harness = Harness::new(settings(), forever());
    harness.holds = true;
    harness.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    harness.event(Event::Start);
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.run(Duration::from_millis(200));
    let read = harness.now;
    harness.answer(Response::Read(Ok(Reading::Empty { proof: true })));
    harness.next_write();
    assert!(harness.now <= read + Duration::from_millis(10), "{:?}", harness.now - read);
}

/// An object store may answer so for as long as it likes.
#[test]
fn conflicting_renewals_and_the_cause_of_the_loss_are_reported() {
    let mut harness = Harness::leading();
    harness.refuses_writes = Some(LockErrorKind::Conflict);
    harness.run(LEASE * 3 / 4);
    let reported =
        harness.log.iter().filter(|(_, action)| matches!(action, Action::LockFailing(_)));
    assert_eq!(reported.count(), 1, "{:?}", harness.log);
    harness.run(LEASE / 4);
    let [Cause::Expired { last_error: Some(_) }] = &harness.ends()[..] else {
        panic!("{:?}", harness.ends())
    };
    // A standby does not acquire several times a second forever.
    harness.log.clear();
    harness.run(LEASE * 10);
    let asked = harness.requests().len();
    assert!((20..200).contains(&asked), "{asked} requests in two minutes");
    harness.log.clear();
    harness.refuses_writes = None;
    harness.run(LEASE * 3);
    assert!(harness.leads(), "{:?}", harness.log);
    assert!(harness.log.iter().any(|(_, action)| matches!(action, Action::LockRecovered)));
}

/// A candidate that overwrites the expired entry while our own writes fail is reported as the
/// leader; a failure that may pass is over then, as there is nothing to write.
#[test]
fn another_leader_is_reported_and_ends_a_write_failure() {
    for kind in [LockErrorKind::Misconfigured, LockErrorKind::Unavailable] {
        let mut harness = standby(Coverage::None);
        harness.refuses_writes = Some(kind);
        harness.run(LEASE * 2);
        assert!(harness.machine.leader().is_none(), "{:?}", harness.machine.leader());
        assert!(harness.machine.lock_failure().is_some());
        harness.server.store(harness.now, of_choria(LEASE), LEASE);
        harness.run(SECOND * 5);
        assert_eq!(harness.machine.leader().map(|leader| &*leader.identity), Some("choria"));
        let failure = harness.machine.lock_failure();
        assert!(failure.is_none() || kind == LockErrorKind::Misconfigured, "{failure:?}");
    }
}

/// The entry's own hint may come after the read that found it expired. Its link to the write before
/// it does not make that one the last.
#[test]
fn a_late_hint_of_an_expired_entry_proves_nothing() {
    let strict = Settings { cool_down: CoolDown::Strict, ..settings() };
    let mut harness = Harness::without_expiry(strict);
    harness.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    let seen = harness.other_writes(LEASE);
    harness.event(Event::Start);
    harness.run(LEASE - SECOND);
    let renewal = harness.server.store(harness.now, of_other(LEASE), LEASE);
    let renewed = harness.now;
    harness.holds = true;
    harness.event(Event::Hint(Hint::Coverage(Coverage::None)));
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.answer(found(renewal.0, Content::Vacant(Tombstone::Expired)));
    let record = Record { revision: renewal, content: of_other(LEASE) };
    harness.event(Event::Hint(Hint::Stored { record, previous: Some(Some(seen)), age: None }));
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= renewed + LEASE, "{:?} after {renewed:?}", harness.begins()[0]);
}

/// A read may show a renewal that a failover loses: only an acknowledgement extends the term.
#[test]
pub fn a_renewal_found_by_a_read_may_be_lost_and_extends_nothing() -> Harness {
    let mut harness =
        Harness::new(settings(), Capabilities { reads_are_durable: false, ..forever() });
    harness.server = Server::new(LEASE, Retention::Rows, LEASE * 2);
    harness.event(Event::Start);
    harness.run(SECOND);
    assert!(harness.leads());
    let deadline = harness.machine.deadline();
    harness.holds = true;
    harness.next_write();
    harness.lose_the_reply();
    harness.next_write();
    harness.serve(); // refused: the first one was applied
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    assert_eq!(harness.machine.deadline(), deadline);
    harness.next_write();
    harness.serve();
    assert!(harness.machine.deadline() > deadline);
    harness
}

/// Two histories of one store may give out the same revision.
#[test]
fn the_same_revision_of_another_write_is_another_entry() {
    let mut harness = standby(Coverage::None);
    harness.run(LEASE / 2);
    harness.server = Server::new(LEASE, Retention::Forever, LEASE * 2);
    harness.server.store(harness.now, of_choria(LEASE), LEASE);
    let stored = harness.now;
    harness.run(LEASE * 3);
    assert!(harness.begins()[0] >= stored + LEASE, "{:?} after {stored:?}", harness.begins()[0]);
}

/// A server that was started on restored files trusts no release that it finds there. A candidate
/// that knew the release from before kept it for proof.
#[test]
fn a_release_that_the_lock_takes_back_proves_nothing() {
    let mut harness = standby(Coverage::None);
    harness.holds = true;
    let revision = harness.server.store(harness.now, released(OTHER, Duration::ZERO), LEASE);
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    harness.next_write();
    harness.fail(LockErrorKind::Conflict);
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    let taken_back = harness.now;
    harness.answer(found(revision.0, Content::Vacant(Tombstone::Deleted)));
    harness.holds = false;
    harness.run(LEASE * 2);
    let led = harness.begins()[0];
    assert!(led >= taken_back + LEASE, "{led:?} after {taken_back:?}");
}
