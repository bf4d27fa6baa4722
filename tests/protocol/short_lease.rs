//! Leases below a second: standbys judge silence by their own clocks, also where the lock frees
//! entries, which it does by the second.

use std::time::Duration;

use incumbent::lock::{Coverage, Hint, LockErrorKind, Request};
use incumbent::protocol::{
    Backoff, BackoffPolicy, Event, MIN_LEASE, Settings, Timing, TimingOptions,
};

use super::harness::{Harness, LEASE, capabilities, of_other, settings};

const SHORT: Duration = Duration::from_millis(250);
const MS: Duration = Duration::from_millis(1);

fn short(with_choria: bool) -> Settings {
    let options = TimingOptions { lease: Some(SHORT), ..TimingOptions::default() };
    let timing = Timing::new(options, LEASE).expect("a valid lease");
    Settings { timing, with_choria, ..settings() }
}

/// On standby on a bucket that keeps an entry for 12 s, where another candidate has just written
/// one with this lease.
fn standby(lease: Duration, coverage: Coverage, with_choria: bool) -> Harness {
    let mut harness = Harness::new(short(with_choria), capabilities());
    harness.event(Event::Hint(Hint::Coverage(coverage)));
    harness.event(Event::Start);
    harness.other_writes(lease);
    harness
}

#[test]
pub fn a_silent_entry_is_overwritten_after_its_short_lease() -> Harness {
    let mut harness = standby(SHORT, Coverage::Full, false);
    harness.run(LEASE / 2);
    let led = harness.begins()[0];
    assert!((SHORT..SHORT + 60 * MS).contains(&led), "{led:?}");
    harness
}

#[test]
fn the_short_lease_of_the_holder_begins_anew_with_each_renewal() {
    let mut harness = standby(SHORT, Coverage::Full, false);
    for _ in 0..40 {
        harness.run(SHORT / 3);
        harness.server.store(harness.now, of_other(SHORT), LEASE);
        harness.deliver_last();
    }
    let renewed = harness.now;
    harness.run(LEASE);
    let led = harness.begins()[0];
    assert!((renewed + SHORT..renewed + SHORT * 2).contains(&led), "{led:?}");
}

/// No candidate has such a lease: stated by a hostile one, it causes no storm of creates.
#[test]
fn a_lease_below_the_shortest_counts_as_the_shortest() {
    let mut harness = standby(Duration::ZERO, Coverage::Full, false);
    harness.run(MIN_LEASE - MS);
    assert!(!harness.requests().iter().any(|request| matches!(request, Request::Write(_))));
    harness.run(LEASE / 2);
    assert!(harness.leads());
}

/// A pause of the server makes all standbys write, once.
#[test]
fn a_write_in_doubt_over_a_silent_entry_is_read_after_back_off() {
    let mut harness = standby(SHORT, Coverage::Full, false);
    harness.holds = true;
    let write = harness.next_write();
    for attempt in 1..4 {
        harness.now += write.timeout;
        harness.fail(LockErrorKind::OutcomeUnknown);
        let failed = harness.now;
        assert!(matches!(harness.next_request(), Request::Read { .. }), "{attempt}");
        let waited = harness.now - failed;
        assert!(waited >= Backoff::FIVE_SEC.delay(attempt - 1, 0.0), "{attempt}: {waited:?}");
    }
    harness.holds = false;
    harness.serve();
    harness.run(LEASE);
    assert!(harness.leads());
}

/// While hints were missing, another entry may have come into its place.
#[test]
fn a_standby_reads_before_it_overwrites_after_missed_hints() {
    let mut harness = standby(SHORT, Coverage::Full, false);
    harness.event(Event::Hint(Hint::Coverage(Coverage::None)));
    harness.now += SHORT * 2;
    harness.holds = true;
    harness.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.holds = false;
    harness.serve();
    harness.run(LEASE / 2);
    assert!(harness.leads());
}

/// The write over the entry is refused, and a read shows why.
#[test]
fn a_short_renewal_that_was_not_received_is_waited_for() {
    let mut harness = standby(SHORT, Coverage::Full, false);
    harness.run(SHORT - MS);
    harness.server.store(harness.now, of_other(SHORT), LEASE);
    let renewed = harness.now;
    harness.run(LEASE / 2);
    assert!(harness.begins()[0] >= renewed + SHORT, "{:?} after {renewed:?}", harness.begins());
}

/// The server frees these: a second and more as ever, what Choria's candidates may hold on to, and
/// what not all standbys hear of, which would read at the end of each lease.
#[test]
fn other_entries_stay_until_the_lock_frees_them() {
    let second = Duration::from_secs(1);
    for (lease, coverage, with_choria) in [
        (second, Coverage::Full, false),
        (SHORT, Coverage::Full, true),
        (SHORT, Coverage::Sampled, false),
        (SHORT, Coverage::Partial, false),
        (SHORT, Coverage::None, false),
    ] {
        let mut harness = standby(lease, coverage, with_choria);
        harness.run(LEASE - MS);
        assert!(harness.begins().is_empty(), "{lease:?}, {coverage:?}, {with_choria}");
        assert!(!harness.holds_entry());
        let requests = harness.requests().len();
        assert!(requests < 10, "{requests} requests, {lease:?}, {coverage:?}");
    }
}

/// A timeout, a delay and the same write again fit into what a short lease leaves before the work
/// must stop.
#[test]
fn one_lost_renewal_costs_no_short_term() {
    for lost in 0..20 {
        let mut harness = Harness::started_with(short(false), capabilities());
        harness.run(SHORT / 2 + lost * MS);
        assert!(harness.leads());
        harness.holds = true;
        let Request::Write(renewal) = harness.next_request() else { panic!("a renewal") };
        harness.now += renewal.timeout;
        harness.fail(LockErrorKind::OutcomeUnknown);
        harness.next_write();
        harness.holds = false;
        harness.serve();
        harness.run(LEASE);
        assert!(harness.leads() && harness.ends().is_empty(), "{:?}", harness.log);
    }
}
