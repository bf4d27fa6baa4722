//! Leases below a second: standbys judge silence by their own clocks, also where the lock frees
//! entries, which it does by the second.

use std::time::Duration;

use incumbent::lock::{Coverage, Hint, LockErrorKind, Request};
use incumbent::protocol::{Event, Settings, Timing, TimingOptions};

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
    let [full, ..] = [Coverage::Full, Coverage::Partial, Coverage::None].map(|coverage| {
        let mut harness = standby(SHORT, coverage, false);
        harness.run(LEASE / 2);
        let led = harness.begins()[0];
        assert!((SHORT..SHORT + 60 * MS).contains(&led), "{coverage:?}: {led:?}");
        harness
    });
    full
}

#[test]
fn the_short_lease_of_the_holder_begins_anew_with_each_renewal() {
    for coverage in [Coverage::Full, Coverage::None] {
        let mut harness = standby(SHORT, coverage, false);
        let mut renewed = harness.now;
        for _ in 0..40 {
            harness.run(SHORT / 3);
            harness.server.store(harness.now, of_other(SHORT), LEASE);
            renewed = harness.now;
            if coverage == Coverage::Full {
                harness.deliver_last();
            }
        }
        harness.run(LEASE);
        let led = harness.begins()[0];
        // What is polled is seen up to a lease after it was written.
        assert!((renewed + SHORT..renewed + SHORT * 3).contains(&led), "{coverage:?}: {led:?}");
    }
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
/// what a few of a large fleet hear of.
#[test]
fn other_entries_stay_until_the_lock_frees_them() {
    let second = Duration::from_secs(1);
    for (lease, coverage, with_choria) in [
        (second, Coverage::Full, false),
        (SHORT, Coverage::Full, true),
        (SHORT, Coverage::Sampled, false),
    ] {
        let mut harness = standby(lease, coverage, with_choria);
        harness.run(LEASE - MS);
        assert!(harness.begins().is_empty(), "{lease:?}, {coverage:?}, {with_choria}");
        assert!(!harness.holds_entry());
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
