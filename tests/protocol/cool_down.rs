//! How long a winner waits, for each kind of vacancy and each policy.

use std::time::Duration;

use incumbent::lock::{
    Capabilities, Content, Coverage, Hint, LockErrorKind, Release, Request, Revision,
    StepDownNotice, Token, Tombstone,
};
use incumbent::protocol::{
    Action, CoolDown, Event, Rank, Settings, Timing, TimingOptions, WaitReason,
};

use incumbent_sim::{Retention, Time};

use super::harness::{
    Harness, LEASE, OTHER, SECOND, capabilities, of_choria, of_other, released, settings, stored,
};

/// How long a candidate may wait before it acquires.
const ASKING: Duration = Duration::from_millis(350);

/// What the candidate knows of the last holder, and how that one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vacancy {
    Released {
        left: Duration,
    },
    /// Deleted, with a step-down notice of the holder.
    SteppedDown {
        left: Duration,
    },
    /// Deleted three seconds after its last write, which was received.
    Watched,
    /// Expired, its last write received.
    WatchedExpiry,
    /// Expired, its last write not received.
    Expired,
    /// Expired, its last write read some time later: of a writer that waited for longer than the
    /// lock keeps an entry.
    ReadExpiry {
        right: Duration,
    },
    /// Deleted, its last write not received.
    Evicted,
    /// Nothing there.
    Empty {
        proof: bool,
    },
    /// One of Choria's, deleted three seconds after its last write, which was received.
    Foreign,
    /// One of Choria's, expired.
    ForeignExpiry,
}

/// A candidate on standby that has just learned of the vacancy, and the instant of the holder's
/// last write.
fn vacant(vacancy: Vacancy, policy: CoolDown, with_choria: bool) -> (Harness, Time) {
    let mut ours = settings();
    ours.cool_down = policy;
    ours.with_choria = with_choria;
    let options = TimingOptions { with_choria, ..TimingOptions::default() };
    ours.timing = Timing::new(options, LEASE).expect("a valid timing");
    let mut harness = Harness::new(ours, capabilities());
    harness.server.revision = 100;
    harness.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    let foreign = matches!(vacancy, Vacancy::Foreign | Vacancy::ForeignExpiry);
    let holder = || if foreign { of_choria(LEASE) } else { of_other(LEASE) };
    harness.stores(holder());
    harness.event(Event::Start);
    harness.run(SECOND);
    // The last write.
    let unheard =
        matches!(vacancy, Vacancy::Expired | Vacancy::Evicted | Vacancy::ReadExpiry { .. });
    let revision = match vacancy {
        Vacancy::Empty { .. } => Revision(0),
        Vacancy::ReadExpiry { right } => harness.server.store(harness.now, of_other(right), right),
        _ if unheard => harness.server.store(harness.now, holder(), LEASE),
        _ => harness.stores(holder()),
    };
    let last_write = harness.now;
    match vacancy {
        Vacancy::ReadExpiry { .. } => {
            harness.run(SECOND);
            harness.event(Event::Hint(Hint::Recheck));
            harness.run(LEASE - SECOND);
            harness.deliver_last();
        }
        Vacancy::WatchedExpiry | Vacancy::Expired | Vacancy::ForeignExpiry => {
            harness.run(LEASE);
            harness.deliver_last();
        }
        Vacancy::Released { left } => {
            harness.run(SECOND * 3);
            harness.stores(released(OTHER, left));
        }
        Vacancy::SteppedDown { left } => {
            harness.run(SECOND * 3);
            let notice = StepDownNotice { by: OTHER, token: Token(1), revision, left };
            harness.event(Event::Hint(Hint::SteppedDown(notice)));
            harness.admin_deletes();
        }
        Vacancy::Watched | Vacancy::Evicted | Vacancy::Foreign => {
            harness.run(SECOND * 3);
            harness.admin_deletes();
        }
        Vacancy::Empty { proof } => {
            harness.server.last = None;
            harness.server.retention =
                if proof { Retention::LeavesMarkers } else { Retention::Expires };
            harness.server.age = LEASE * 100;
        }
    }
    (harness, last_write)
}

/// A candidate that leads after this vacancy.
pub fn until_it_leads(vacancy: Vacancy, policy: CoolDown, with_choria: bool) -> Harness {
    let (mut harness, _) = vacant(vacancy, policy, with_choria);
    while !harness.leads() {
        harness.run(ASKING);
    }
    harness
}

fn wait(vacancy: Vacancy, policy: CoolDown, with_choria: bool) -> Duration {
    let (mut harness, last_write) = vacant(vacancy, policy, with_choria);
    let foreign = matches!(vacancy, Vacancy::Foreign | Vacancy::ForeignExpiry);
    let vacant = if foreign { last_write } else { harness.now };
    harness.run(LEASE * 3);
    if matches!(vacancy, Vacancy::Empty { .. }) {
        let create = harness.log.iter().find(|(_, action)| {
            matches!(action, Action::Request { request: Request::Write(_), .. })
        });
        return harness.begins()[0] - create.expect("it created the entry").0;
    }
    assert_eq!(harness.begins().len(), 1, "{:?}", harness.machine);
    harness.begins()[0] - vacant
}

fn assert_wait(vacancy: Vacancy, policy: CoolDown, with_choria: bool, least: Duration) {
    let waited = wait(vacancy, policy, with_choria);
    let most = least.mul_f64(1.01) + ASKING;
    assert!(
        least <= waited && waited <= most,
        "{vacancy:?} under {policy:?}, choria peers {with_choria}: waited {waited:?} instead of {least:?}"
    );
}

#[test]
fn proven_waits_without_proof() {
    let proven = |vacancy, least| assert_wait(vacancy, CoolDown::Proven, false, least);
    proven(Vacancy::Released { left: Duration::ZERO }, Duration::ZERO);
    proven(Vacancy::Released { left: SECOND * 4 }, SECOND * 4);
    proven(Vacancy::SteppedDown { left: Duration::ZERO }, Duration::ZERO);
    proven(Vacancy::SteppedDown { left: SECOND * 4 }, SECOND * 4);
    proven(Vacancy::Watched, LEASE - SECOND * 3);
    proven(Vacancy::WatchedExpiry, Duration::ZERO);
    proven(Vacancy::Expired, Duration::ZERO);
    proven(Vacancy::Evicted, LEASE);
    proven(Vacancy::Empty { proof: true }, Duration::ZERO);
    proven(Vacancy::Empty { proof: false }, LEASE);
    // 0.75 of the TTL and 5 s after its last write.
    proven(Vacancy::Foreign, SECOND * 14);
    proven(Vacancy::ForeignExpiry, SECOND * 14);
}

#[test]
fn a_cool_down_states_its_reason() {
    let reason = |vacancy, policy, with_choria| {
        let (mut harness, _) = vacant(vacancy, policy, with_choria);
        harness.run(ASKING);
        assert!(harness.begins().is_empty());
        let (leads_at, reason) = harness.machine.cool_down().expect("it cools down");
        harness.run(Harness::time(leads_at) - harness.now);
        assert_eq!(harness.begins(), [Harness::time(leads_at)]);
        assert_eq!(harness.machine.cool_down(), None);
        reason
    };
    let proven = |vacancy| reason(vacancy, CoolDown::Proven, false);
    assert_eq!(proven(Vacancy::Released { left: SECOND * 4 }), WaitReason::PassedOn);
    assert_eq!(proven(Vacancy::SteppedDown { left: SECOND * 4 }), WaitReason::PassedOn);
    assert_eq!(proven(Vacancy::Watched), WaitReason::SeenLease);
    assert_eq!(proven(Vacancy::Evicted), WaitReason::UnknownHolder);
    assert_eq!(proven(Vacancy::Foreign), WaitReason::ChoriaCandidate);
    assert_eq!(reason(Vacancy::Expired, CoolDown::Proven, true), WaitReason::ChoriaCandidate);
    let released = Vacancy::Released { left: Duration::ZERO };
    assert_eq!(reason(released, CoolDown::For(SECOND), false), WaitReason::Policy);
}

#[test]
fn strict_does_not_trust_the_server_clock() {
    let strict = |vacancy, least| assert_wait(vacancy, CoolDown::Strict, false, least);
    strict(Vacancy::Released { left: Duration::ZERO }, Duration::ZERO);
    strict(Vacancy::SteppedDown { left: Duration::ZERO }, Duration::ZERO);
    strict(Vacancy::Watched, LEASE - SECOND * 3);
    strict(Vacancy::WatchedExpiry, Duration::ZERO);
    strict(Vacancy::Expired, LEASE);
    strict(Vacancy::Evicted, LEASE);
    strict(Vacancy::Empty { proof: true }, LEASE);
}

#[test]
fn other_policies_wait_no_less_than_proven() {
    let released = Vacancy::Released { left: Duration::ZERO };
    assert_wait(Vacancy::Expired, CoolDown::For(SECOND * 2), false, SECOND * 2);
    assert_wait(Vacancy::Evicted, CoolDown::For(SECOND * 2), false, LEASE);
    assert_wait(released, CoolDown::For(SECOND * 2), false, SECOND * 2);
    assert_wait(Vacancy::Watched, CoolDown::For(SECOND * 2), false, LEASE - SECOND * 3);
}

#[test]
fn beside_choria_an_unknown_holder_counts_as_choria_candidate() {
    let beside = |vacancy, least| assert_wait(vacancy, CoolDown::Proven, true, least);
    beside(Vacancy::Released { left: Duration::ZERO }, Duration::ZERO);
    beside(Vacancy::Watched, LEASE - SECOND * 3);
    beside(Vacancy::Evicted, SECOND * 14);
    // Its entry was written a TTL before the marker.
    beside(Vacancy::Expired, SECOND * 2);
    beside(Vacancy::WatchedExpiry, Duration::ZERO);
    beside(Vacancy::Empty { proof: false }, SECOND * 14);
    beside(Vacancy::Empty { proof: true }, SECOND * 2);
    beside(Vacancy::Foreign, SECOND * 14);
}

/// No lock keeps an entry for longer than its longest lease: its expiry proves the end of no
/// right that is longer.
#[test]
fn a_wait_that_outlasts_an_expired_entry_is_kept() {
    let longer = |by| Vacancy::ReadExpiry { right: LEASE + by };
    for beside_choria in [false, true] {
        let proven = |vacancy, least| assert_wait(vacancy, CoolDown::Proven, beside_choria, least);
        proven(longer(Duration::ZERO), Duration::ZERO);
        // By the candidate's own clock, from when it read the entry, a second old.
        proven(longer(SECOND * 5), SECOND * 6);
    }
    assert_wait(longer(SECOND * 5), CoolDown::Strict, false, SECOND * 6);
}

const RAISED: Duration = Duration::from_secs(60);

fn raised() -> Event {
    Event::Capabilities(Capabilities { max_lease: RAISED, ..capabilities() })
}

/// An operator has raised the bucket's TTL, of which a standby knows nothing.
#[test]
pub fn a_lease_beyond_the_known_ttl_is_waited_for() -> Harness {
    let mut harness = Harness::standby();
    harness.server.bucket_ttl = RAISED;
    let last_write = harness.now;
    harness.other_writes(RAISED);
    harness.run(SECOND);
    harness.admin_deletes();
    harness.run(RAISED * 2);
    assert!(harness.begins()[0] >= last_write + RAISED, "{:?}", harness.begins());
    harness
}

#[test]
fn a_ttl_that_is_raised_during_a_create_is_waited_for() {
    let mut harness = Harness::standby();
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.holds = true;
    harness.admin_deletes();
    harness.next_write();
    harness.event(raised());
    let stored = harness.now;
    harness.holds = false;
    harness.serve();
    harness.run(RAISED * 2);
    assert!(harness.begins()[0] >= stored + RAISED, "{:?}", harness.begins());
}

/// An expiry proves no more than the TTL that was in force when the entry was written.
#[test]
fn a_ttl_that_is_raised_makes_no_expiry_prove_more() {
    let lease = LEASE + SECOND * 5;
    let (mut harness, last_write) =
        vacant(Vacancy::ReadExpiry { right: lease }, CoolDown::Proven, false);
    harness.event(raised());
    harness.run(RAISED);
    assert!(harness.begins()[0] >= last_write + lease, "{:?}", harness.begins());
}

/// The expired entry may have been written in the moment before.
#[test]
fn strict_beside_choria_waits_in_full_for_a_choria_candidate() {
    assert_wait(Vacancy::Expired, CoolDown::Strict, true, SECOND * 14);
}

/// A step-down notice that arrives while the winner already cools down ends the wait; one of
/// another holder does not.
#[test]
pub fn a_step_down_notice_ends_a_running_cool_down() -> Harness {
    let mut harness = Harness::standby();
    let revision = harness.server.last_revision().expect("the other leads");
    harness.admin_deletes();
    harness.run(SECOND);
    let says = |by, token, revision| {
        Event::Hint(Hint::SteppedDown(StepDownNotice { by, token, revision, left: Duration::ZERO }))
    };
    harness.event(says(OTHER, Token(77), Revision(1)));
    harness.run(SECOND);
    assert!(harness.begins().is_empty());
    harness.event(says(OTHER, Token(1), revision));
    assert_eq!(harness.begins(), [harness.now]);
    harness
}

/// A candidate that has not received the last write of an evicted holder, whose lease is longer
/// than the longest that the candidate knows of.
#[test]
fn an_evicted_holder_is_waited_for_unless_its_notice_comes() {
    for stepped_down in [false, true] {
        let mut harness = Harness::standby();
        let revision = harness.server.store(harness.now, of_other(LEASE * 2), LEASE * 2);
        let held = &harness.server.last.as_ref().expect("the other leads").record;
        let eviction = Release::evicting(held, LEASE, true, LEASE).expect("a holder");
        let (by, left) = (eviction.by, eviction.left);
        harness.stores(released(by, left));
        let evicted = harness.now;
        harness.run(SECOND);
        assert!(harness.begins().is_empty());
        if stepped_down {
            let (by, token, left) = (OTHER, Token(1), Duration::ZERO);
            let notice = StepDownNotice { by, token, revision, left };
            harness.event(Event::Hint(Hint::SteppedDown(notice)));
            assert_eq!(harness.begins(), [harness.now]);
        } else {
            harness.run(LEASE * 3);
            let waited = harness.begins()[0] - evicted;
            assert!(waited >= LEASE * 2 && waited <= LEASE.mul_f64(2.02), "{waited:?}");
        }
    }
}

/// Rule 6: a holder that ends while it cools down passes on what it had left to wait.
#[test]
pub fn the_rest_of_a_cool_down_is_passed_on() -> Harness {
    let mut harness = Harness::standby();
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.admin_deletes();
    let evicted = harness.now;
    harness.run(SECOND * 2);
    assert!(harness.holds_entry() && !harness.leads());
    harness.event(Event::Stop);
    harness.run(SECOND);
    assert!(harness.is_finished());
    let last = harness.server.last.as_ref().map(|last| &last.record.content);
    let Some(Content::Vacant(Tombstone::Released { left, .. })) = last else {
        panic!("{last:?} instead of a release");
    };
    assert!(*left >= LEASE - (harness.now - evicted), "{left:?}");
    harness
}

/// Rule 6: an evicted holder states what it had left to wait in its step-down notice.
#[test]
pub fn an_evicted_holder_passes_on_its_remaining_cool_down() -> Harness {
    let mut harness = Harness::standby();
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.admin_deletes();
    harness.run(SECOND * 2);
    assert!(harness.holds_entry() && !harness.leads());
    harness.admin_deletes();
    let said = harness.requests().into_iter().find_map(|request| match request {
        Request::NotifyStepDown(notice) => Some(*notice),
        _ => None,
    });
    let left = said.expect("it concedes").left;
    assert!(left >= LEASE - SECOND * 3 && left <= LEASE.mul_f64(1.01), "{left:?}");
    harness
}

/// The entry of one that cools down lives until its wait is over, so its expiry proves as much as
/// any.
#[test]
pub fn an_entry_outlives_the_cool_down_of_its_writer() -> Harness {
    let mut harness = Harness::standby_with(of_two_seconds(), capabilities());
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.holds = true;
    let evicted = harness.now;
    harness.admin_deletes();
    let write = harness.next_write();
    let left = LEASE - (harness.now - evicted);
    assert!(write.ttl >= left.mul_f64(1.003), "{write:?}");
    assert_eq!(write.mark.lease, write.ttl);
    harness
}

fn of_two_seconds() -> Settings {
    let options = TimingOptions { lease: Some(SECOND * 2), ..TimingOptions::default() };
    let mut settings = settings();
    settings.timing = Timing::new(options, LEASE).expect("a valid timing");
    settings
}

/// Mixed leases: the holder's counts, not one's own.
#[test]
pub fn the_lease_of_the_holder_counts() -> Harness {
    let mut harness = Harness::standby_with(of_two_seconds(), capabilities());
    let last_write = harness.now;
    harness.other_writes(SECOND * 8);
    harness.run(SECOND);
    harness.admin_deletes();
    harness.run(LEASE * 2);
    let begun = harness.begins()[0];
    assert!(begun >= last_write + SECOND * 8 && begun < last_write + SECOND * 9, "{begun:?}");
    harness
}

/// A create whose reply is lost, found standing: its wait counts as if it had been answered.
#[test]
pub fn a_create_in_doubt_keeps_its_wait() -> Harness {
    let mut harness = Harness::standby();
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.holds = true;
    let evicted = harness.now;
    harness.admin_deletes();
    harness.next_write();
    harness.lose_the_reply();
    // Its own hint arrives sooner than a second create.
    harness.deliver_last();
    harness.holds = false;
    harness.serve();
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= evicted + LEASE, "{:?}", harness.begins());
    harness
}

/// A member whose shards are enough by now leaves the entry of a create in doubt to others: it
/// stood until its lease ended.
#[test]
fn a_create_in_doubt_that_is_not_wanted_any_more_is_released() {
    let mut harness = Harness::standby();
    harness.holds = true;
    harness.admin_deletes();
    harness.next_write();
    harness.event(Event::Rank(Rank::Never));
    harness.lose_the_reply();
    harness.deliver_last();
    assert!(harness.holds_entry());
    harness.holds = false;
    harness.serve();
    harness.run(SECOND * 2);
    assert!(harness.begins().is_empty());
    assert!(!harness.holds_entry(), "no other candidate can lead");
}

/// Hints of an eviction that come in the wrong order do not make it look watched.
#[test]
fn an_eviction_over_an_unseen_write_is_not_a_watched_one() {
    let mut harness = Harness::standby();
    let unheard = harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.run(SECOND);
    let evicted = harness.now;
    harness.server.store(harness.now, Content::Vacant(Tombstone::Deleted), LEASE);
    let last = harness.server.last.clone().expect("the tombstone");
    assert_eq!(last.previous, Some(Some(unheard)));
    harness.event(Event::Hint(stored(last.record.clone(), last.previous)));
    // The unheard write comes late: it is older than what is known.
    let late = incumbent::lock::Record { revision: unheard, content: of_other(LEASE) };
    harness.event(Event::Hint(stored(late, None)));
    harness.run(LEASE * 2);
    assert!(harness.begins()[0] >= evicted + LEASE);
}

/// Refusals of the lock do not shorten a wait.
#[test]
pub fn a_refused_create_is_retried_and_waits_as_long() -> Harness {
    let mut harness = Harness::standby();
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.refuses = Some(LockErrorKind::Unavailable);
    let evicted = harness.now;
    harness.admin_deletes();
    harness.run(SECOND * 5);
    harness.refuses = None;
    harness.run(LEASE * 2);
    let begun = harness.begins()[0];
    assert!(begun >= evicted + LEASE && begun < evicted + LEASE.mul_f64(1.1), "{begun:?}");
    harness
}
