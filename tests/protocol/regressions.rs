//! Faults of the machine that the simulation found, each as its shortest scenario.

use std::time::Duration;

use incumbent::lock::{Capabilities, Coverage, Hint, LockErrorKind, Request, StepDownNotice};
use incumbent::protocol::{Event, Settings, Timing, TimingOptions};

use incumbent_sim::{Retention, Server};

use super::harness::{
    Harness, LEASE, OTHER, SECOND, capabilities, of_choria, of_other, released, settings,
};

/// A holder whose work outlived its grace found its own entry, took it for released, and led beside
/// that work.
#[test]
pub fn work_that_continues_delays_its_candidate_until_its_deadline() -> Harness {
    let mut harness = Harness::leading();
    harness.works_on = true;
    let deadline = Harness::time(harness.machine.deadline().expect("it leads"));
    harness.event(Event::Resign);
    harness.run(SECOND * 2);
    harness.event(Event::TermEnded { work_stopped: false });
    assert!(harness.holds_entry(), "an entry whose work continues is left to expire");
    harness.run(LEASE * 3);
    assert_eq!(harness.begins().len(), 2);
    assert!(harness.begins()[1] >= deadline, "{:?} before {deadline:?}", harness.begins()[1]);
    harness
}

/// A create that was applied in doubt earns its wait however often the entry is looked at before it
/// is written again.
#[test]
fn an_own_entry_seen_twice_still_causes_its_wait() {
    let mut harness = Harness::standby();
    harness.run(SECOND);
    harness.holds = true;
    // Evicted at an unknown time after the holder's last renewal: a full lease.
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    let evicted = harness.now;
    harness.admin_deletes();
    harness.next_write();
    harness.lose_the_reply();
    harness.next_write();
    harness.serve();
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    harness.next_write();
    harness.fail(LockErrorKind::Unavailable);
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= evicted + LEASE, "{:?} after {evicted:?}", harness.begins()[0]);
}

/// A server may store a create and report it as foreign. A candidate that then found the entry to
/// be its own took it for one without a wait.
#[test]
fn a_create_stored_despite_its_refusal_still_causes_its_wait() {
    let mut harness = Harness::standby();
    harness.run(SECOND);
    harness.holds = true;
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    let evicted = harness.now;
    harness.admin_deletes();
    harness.next_write();
    harness.apply_and_fail(LockErrorKind::Conflict);
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    harness.holds = false;
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= evicted + LEASE, "{:?} after {evicted:?}", harness.begins()[0]);
}

/// A create that something between us and the lock had sent twice was refused, and landed a lease
/// later, after another holder had come and been deleted without a tombstone. What it was to wait
/// for counted from its refusal.
#[test]
pub fn a_create_stored_after_its_refusal_starts_its_wait_then() -> Harness {
    let (mut harness, create) = Harness::acquiring_without_expiry();
    harness.fail(LockErrorKind::Conflict);
    harness.holds = false;
    harness.other_writes(LEASE);
    harness.run(LEASE - SECOND);
    harness.server.delete(harness.now);
    harness.server.apply(harness.now, &create);
    let landed = harness.now;
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= landed + LEASE, "{:?} after {landed:?}", harness.begins()[0]);
    harness
}

/// A superseded holder that read the entry sent a step-down notice for the *other* one's revision.
#[test]
pub fn a_superseded_holder_sends_no_notice_for_its_successor() -> Harness {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.admin_deletes();
    assert!(matches!(harness.next_request(), Request::NotifyStepDown(_)));
    harness.serve();
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    assert!(matches!(harness.next_request(), Request::Release(_)));
    harness.serve();
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    harness.holds = false;
    harness.run(SECOND * 5);
    let evicted = harness.now;
    harness.admin_deletes();
    harness.run(LEASE * 2);
    let again = harness.begins()[1];
    assert!(again >= evicted + LEASE / 3, "{again:?} after {evicted:?}");
    harness
}

/// An eviction proves nothing about those for whom the evicted holder had itself to wait: one of
/// Choria's needs longer than a lease to learn of its own loss.
#[test]
pub fn successor_of_an_evicted_holder_waits_for_choria_before_it() -> Harness {
    let options = TimingOptions { with_choria: true, ..TimingOptions::default() };
    let mut ours = settings();
    ours.timing = Timing::new(options, LEASE).expect("a valid timing");
    ours.with_choria = true;
    let mut harness = Harness::standby_with(ours, capabilities());
    // Choria's candidate may lead for 0.75 x 12 s + 5 s after its last write, and the other waited
    // for it.
    harness.other_writes(SECOND * 14);
    harness.run(Duration::from_millis(10));
    let evicted = harness.now;
    harness.admin_deletes();
    harness.run(LEASE * 3);
    let wait = harness.begins()[0] - evicted;
    assert!(wait >= SECOND * 13, "{wait:?}");
    harness
}

/// Answers requests until `done`, those that are to be `refused` with a conflict: not in a storm of
/// them.
fn refuse(
    harness: &mut Harness,
    refused: impl Fn(&Request) -> bool,
    done: impl Fn(&Harness) -> bool,
) {
    harness.holds = true;
    let mut requests = 0;
    while !done(harness) {
        if refused(&harness.next_request()) {
            harness.fail(LockErrorKind::Conflict);
        } else {
            harness.serve();
        }
        requests += 1;
        assert!(requests < 60, "{requests} requests within {:?}", harness.now);
    }
}

/// A cluster refuses a write while another one is in flight: looked at and tried again at once,
/// forever, it was a storm.
#[test]
fn an_unconfirmed_conflict_is_retried_after_a_delay() {
    let mut harness = Harness::leading();
    let until = harness.now + SECOND * 5;
    let refused = |request: &Request| matches!(request, Request::Write(_));
    refuse(&mut harness, refused, |h| h.now >= until || h.machine.deadline().is_none());
}

/// A read that failed at once was repeated at once, and kept renewals from being sent.
#[test]
fn failed_reads_are_retried_later_and_delay_no_renewal() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.event(Event::Hint(Hint::Recheck));
    let (mut reads, mut writes) = (0, 0);
    let until = harness.now + LEASE * 3;
    while harness.now < until {
        match harness.next_request() {
            Request::Read { .. } => {
                reads += 1;
                harness.fail(LockErrorKind::Denied);
            }
            _ => {
                writes += 1;
                harness.serve();
            }
        }
        assert!(reads < 80, "{reads} reads within {:?}", harness.now);
    }
    assert!(writes >= 8, "{writes} renewals in three leases");
    assert_eq!(harness.ends(), []);
}

/// A release that was refused though the entry was still there was repeated at once, forever.
#[test]
fn a_refused_release_is_retried_after_a_delay() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.event(Event::Stop);
    refuse(&mut harness, |r| matches!(r, Request::Release(_)), Harness::is_finished);
}

/// A create that was refused while an earlier one was in doubt was repeated at once, forever.
#[test]
fn a_refused_create_is_retried_after_a_delay() {
    let mut harness = Harness::started();
    harness.holds = true;
    harness.next_request();
    harness.serve();
    harness.next_write();
    harness.fail(LockErrorKind::OutcomeUnknown);
    let until = harness.now + SECOND * 5;
    refuse(&mut harness, |r| matches!(r, Request::Write(_)), |h| h.now >= until);
}

/// Nothing overflows under any message of a server or a peer.
#[test]
fn durations_without_end_do_not_panic() {
    let mut lock = capabilities();
    lock.max_lease = Duration::MAX;
    let mut harness = Harness::standby_with(settings(), lock);
    harness.other_writes(Duration::MAX);
    let (token, revision) = (incumbent::lock::Token(1), incumbent::lock::Revision(1));
    let notice = StepDownNotice { by: OTHER, token, revision, left: Duration::MAX };
    harness.event(Event::Hint(Hint::SteppedDown(notice)));
    harness.stores(released(OTHER, Duration::MAX));
    harness.run(LEASE);
    harness.admin_deletes();
    harness.run(LEASE);
    harness.event(Event::Stop);
    harness.run(LEASE);
    assert!(harness.is_finished());
}

/// A lock that never responds hung standbys and leaders that stepped down; and a leader did not
/// repeat its renewal.
#[test]
fn a_lock_that_never_answers_does_not_hang_the_campaign() {
    let mut harness = Harness::started();
    harness.holds = true;
    let looks = |harness: &Harness| harness.requests().len();
    harness.run(SECOND * 60);
    assert!(looks(&harness) > 10, "{} requests a minute", looks(&harness));
    harness.held = None;
    harness.holds = false;
    harness.run(SECOND * 10);
    assert!(harness.leads(), "{:?}", harness.machine);

    harness.holds = true;
    harness.next_write();
    harness.held = None;
    harness.run(SECOND * 3);
    harness.holds = false;
    harness.serve();
    harness.run(SECOND * 60);
    assert_eq!(harness.ends(), [], "one renewal that hangs does not end a term");

    harness.holds = true;
    harness.admin_deletes();
    harness.event(Event::Stop);
    harness.run(SECOND * 20);
    assert!(harness.is_finished(), "{:?}", harness.machine);
}

/// Where the TTL is short, a Choria candidate's renewals follow each other by as long as answers
/// take: the last one that was stored may be answered 5 s later, and the next one hang for 5 s
/// more.
#[test]
fn the_wait_for_choria_on_a_short_ttl_spans_two_timeouts() {
    let ttl = SECOND * 4;
    let options = TimingOptions { with_choria: true, ..TimingOptions::default() };
    let mut ours = settings();
    ours.timing = Timing::new(options, ttl).expect("a valid timing");
    ours.with_choria = true;
    let lock = Capabilities { max_lease: ttl, ..capabilities() };
    let mut harness = Harness::new(ours, lock);
    harness.server = Server::new(ttl, Retention::LeavesMarkers, ttl * 2);
    harness.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    harness.event(Event::Start);
    harness.server.store(harness.now, of_choria(ttl), ttl);
    harness.deliver_last();
    let renewed = harness.now;
    harness.run(SECOND * 20);
    let led = harness.begins()[0];
    assert!(led >= renewed + Duration::from_millis(10_750), "{led:?} after {renewed:?}");
}

/// Choria's candidates do not read the remaining wait in a release: a candidate whose work would
/// not stop was stopped, released its entry, and one of Choria's led beside that work.
#[test]
fn beside_choria_an_entry_with_a_wait_left_is_not_released() {
    for with_choria in [true, false] {
        let mut ours = settings();
        ours.with_choria = with_choria;
        let mut harness = Harness::started_with(ours, capabilities());
        harness.run(LEASE * 2);
        harness.works_on = true;
        let deadline = Harness::time(harness.machine.deadline().expect("it leads"));
        harness.event(Event::Resign);
        harness.run(SECOND * 2);
        harness.event(Event::TermEnded { work_stopped: false });
        harness.event(Event::Stop);
        harness.run(SECOND);
        assert!(harness.is_finished() && harness.now < deadline);
        assert_eq!(harness.holds_entry(), with_choria);
    }
}

/// The elections that a process won at one moment were renewed at one moment forever; then some
/// were renewed at once, and an object store that takes one write per second refused it.
#[test]
fn the_first_renewal_comes_after_a_quarter_to_a_whole_interval() {
    let intervals: Vec<_> = (0..200)
        .map(|seed| {
            let settings = Settings { seed, ..settings() };
            let timing = settings.timing;
            let mut harness = Harness::started_with(settings, capabilities());
            harness.run(SECOND);
            let sent = harness.machine.deadline().expect("it leads") - timing.validity();
            harness.holds = true;
            harness.next_write();
            let waited = harness.local().saturating_since(sent);
            waited.as_secs_f64() / timing.renewal().as_secs_f64()
        })
        .collect();
    let (least, most) =
        intervals.iter().fold((1.0, 0.0), |(a, b), i| (f64::min(a, *i), f64::max(b, *i)));
    assert!((0.25..0.3).contains(&least) && most > 0.95 && most <= 1.0, "{least} to {most}");
}
