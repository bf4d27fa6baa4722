//! The lock refuses a candidate's writes, as where a permission is missing.

use std::time::Duration;

use incumbent::lock::{LockErrorKind, Readiness, Request};
use incumbent::protocol::Cause;

use super::harness::{Harness, LEASE, OTHER, SECOND, released};

const REFUSALS: [LockErrorKind; 3] =
    [LockErrorKind::Denied, LockErrorKind::Misconfigured, LockErrorKind::Conflict];

fn creates(harness: &Harness) -> usize {
    harness.requests().iter().filter(|it| matches!(it, Request::Write(_))).count()
}

/// On standby, refused with the first create after a release. Another candidate leads then.
fn refused(kind: LockErrorKind) -> Harness {
    let mut harness = Harness::standby();
    harness.refuses_writes = Some(kind);
    harness.stores(released(OTHER, Duration::ZERO));
    harness.run(SECOND * 5);
    harness.other_writes(LEASE);
    harness.log.clear();
    harness
}

#[test]
fn a_candidate_whose_writes_are_refused_is_sick() {
    for kind in REFUSALS {
        assert_eq!(refused(kind).machine.readiness(), Readiness::Unhealthy, "{kind:?}");
    }
    for kind in [LockErrorKind::Unavailable, LockErrorKind::OutcomeUnknown] {
        assert_eq!(refused(kind).machine.readiness(), Readiness::Ready, "{kind:?}");
    }
}

/// So it does not pull the leadership, whoever else there is.
#[test]
pub fn a_refused_candidate_lets_others_go_first() -> Harness {
    let mut harness = refused(LockErrorKind::Denied);
    harness.stores(released(OTHER, Duration::ZERO));
    harness.run(LEASE - SECOND);
    assert_eq!(creates(&harness), 0);
    harness.run(SECOND * 2);
    assert!(creates(&harness) > 0, "it tries once nobody else has");
    harness
}

#[test]
fn a_refused_candidate_leads_once_a_write_is_accepted() {
    let mut harness = refused(LockErrorKind::Denied);
    harness.refuses_writes = None;
    harness.stores(released(OTHER, Duration::ZERO));
    harness.run(LEASE + SECOND);
    assert!(harness.leads());
    assert_eq!(harness.machine.readiness(), Readiness::Ready);
}

/// While another candidate leads no write would show it.
#[test]
pub fn a_refused_candidate_asks_whether_writes_are_accepted() -> Harness {
    let mut harness = refused(LockErrorKind::Denied);
    let renewals = |harness: &mut Harness| {
        for _ in 0..6 * 3 {
            harness.run(LEASE / 3);
            harness.other_writes(LEASE);
        }
    };
    renewals(&mut harness);
    assert_eq!(harness.machine.readiness(), Readiness::Unhealthy);
    let asked = harness.requests().len();
    assert!((1..=3).contains(&asked), "{:?}", harness.requests());
    harness.refuses_writes = None;
    renewals(&mut harness);
    assert_eq!(harness.machine.readiness(), Readiness::Ready);
    let asked = harness.requests();
    let is_check = |request: &&Request| matches!(request, Request::Release(it) if it.is_check());
    assert!(asked.iter().all(is_check), "{asked:?}");
    harness
}

#[test]
fn a_leader_with_refused_renewals_is_unhealthy_after_its_term() {
    let mut harness = Harness::leading();
    harness.refuses_writes = Some(LockErrorKind::Denied);
    harness.run(LEASE / 2);
    assert!(harness.leads());
    assert_eq!(harness.machine.readiness(), Readiness::Ready);
    harness.run(LEASE);
    assert!(matches!(harness.ends()[..], [Cause::Denied { .. }]));
    assert_eq!(harness.machine.readiness(), Readiness::Unhealthy);
}
