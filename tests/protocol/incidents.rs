//! What went wrong for others, each as a scenario that ends well here.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    Content, Entry, Hint, LockErrorKind, Mark, Nonce, Reading, Record, Request, Revision, Token,
    Tombstone, WriteId,
};
use incumbent::protocol::{Action, Cause, Event, Response, State};

use super::harness::{Harness, LEASE, ME, OTHER, found, of_other, settings, stored};

const SECOND: Duration = Duration::from_secs(1);

/// kubernetes/kubernetes#44887: a renewal was answered after a minute; a rival had taken over at 15 s, and both led.
#[test]
fn a_renewal_answered_after_a_minute_does_not_prolong_a_term() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.next_write();
    let (id, _) = harness.held.clone().expect("the renewal");
    let deadline = Harness::time(harness.machine.deadline().expect("it leads"));
    harness.now = deadline;
    assert!(!harness.leads(), "no event is needed for a right to end");
    harness.now += SECOND * 60;
    harness.event(Event::Response { id, response: Response::Written(Ok(Revision(9))) });
    assert_eq!(harness.ends(), [Cause::Expired { last_error: None }]);
    assert_eq!(harness.machine.deadline(), None);
}

/// The same before the minute is over: the right counts from before the sending, however slow the answer.
#[test]
fn a_right_counts_from_before_the_write_was_sent() {
    let mut harness = Harness::leading();
    let tenure = harness.machine.settings().timing.validity();
    harness.holds = true;
    for _ in 0..5 {
        harness.next_write();
        let sent = harness.now;
        harness.now += SECOND;
        harness.serve();
        assert_eq!(harness.machine.deadline().map(Harness::time), Some(sent + tenure));
    }
}

/// kubernetes/kubernetes#23731, elastic/beats#38543: every renewal was forbidden, and the holder still reported that it led.
#[test]
fn a_holder_without_the_right_to_renew_stops_in_time() {
    let mut harness = Harness::leading();
    let deadline = Harness::time(harness.machine.deadline().expect("it leads"));
    harness.refuses = Some(LockErrorKind::Denied);
    harness.run(deadline - harness.now);
    assert_eq!(harness.ends(), [Cause::Denied { error: "no".into() }]);
    let ended = harness.log.iter().find(|(_, action)| matches!(action, Action::End { .. }));
    assert!(ended.expect("it ended").0 <= deadline - LEASE / 6);
    assert_eq!(harness.machine.state(), State::Candidate);
}

/// cirello-io/dynamolock#280: the write was applied, its reply was lost, the lock was thrown away.
#[test]
fn a_renewal_whose_reply_is_lost_is_found_and_counts_from_its_own_sending() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.next_write();
    let sent = harness.now;
    harness.now += SECOND;
    harness.lose_the_reply();
    harness.next_write();
    harness.serve();
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    let tenure = harness.machine.settings().timing.validity();
    assert_eq!(harness.machine.deadline().map(Harness::time), Some(sent + tenure));
    harness.holds = false;
    harness.run(LEASE * 4);
    assert_eq!((harness.ends(), harness.begins().len()), (vec![], 1));
}

/// home-operations/kopiur#324: the first slow call made the leader abdicate, 90 times in six days.
#[test]
fn slow_calls_cost_nothing_while_the_lease_lasts() {
    let mut harness = Harness::leading();
    for kind in
        [LockErrorKind::OutcomeUnknown, LockErrorKind::Unavailable, LockErrorKind::Misconfigured]
    {
        harness.refuses = Some(kind);
        harness.run(LEASE / 3);
        harness.refuses = None;
        harness.run(LEASE);
    }
    assert_eq!((harness.ends(), harness.begins().len()), (vec![], 1));
}

/// kuberhealthy#1533, elastic/beats#38543: after a loss it never campaigned again: 19 hours without a leader.
#[test]
fn every_loss_leads_back_to_the_campaign() {
    let mut harness = Harness::leading();
    harness.refuses = Some(LockErrorKind::Unavailable);
    harness.run(Duration::from_secs(19 * 3600));
    harness.refuses = None;
    harness.run(SECOND * 2);
    assert!(harness.leads());
    for lose in [Event::Resign, Event::WorkEnded { panicked: true }] {
        harness.event(lose);
        assert!(!harness.leads());
        harness.run(SECOND * 6);
        assert!(harness.leads());
    }
    harness.admin_deletes();
    assert!(!harness.leads());
    harness.run(SECOND * 6);
    assert!(harness.leads());
}

/// fabric8io/kubernetes-client#7350: the start callback ran before the conditional write had succeeded.
#[test]
fn a_term_begins_after_the_create_has_succeeded() {
    let mut harness = Harness::started();
    harness.holds = true;
    harness.next_request();
    harness.serve();
    harness.next_write();
    harness.now += Duration::from_millis(200);
    harness.event(Event::Wake);
    assert!(harness.begins().is_empty());
    harness.fail(LockErrorKind::Conflict);
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.next_request();
    harness.serve();
    assert!(harness.begins().is_empty());
}

/// kubernetes-client/python#2670: the guarded task had died, and renewals went on.
#[test]
fn a_holder_whose_work_has_ended_releases_its_entry() {
    for (panicked, cause) in [(false, Cause::WorkEnded), (true, Cause::WorkPanicked)] {
        let mut harness = Harness::leading();
        harness.event(Event::WorkEnded { panicked });
        assert_eq!(harness.ends(), [cause]);
        assert!(!harness.holds_entry());
    }
}

/// kubernetes/kubernetes#61151, Project-HAMi/HAMi#2481: two replicas showed one identity, and each took the other's
/// lock for its own.
#[test]
fn two_candidates_with_one_identity_are_distinct() {
    let twin = |revision| Record {
        revision: Revision(revision),
        content: Content::Held(Entry {
            identity: settings().identity,
            mark: Some(Mark {
                write: WriteId { nonce: Nonce(ME.0 + 1), number: 1 },
                lease: LEASE,
                token: None,
                since_unix_ms: 0,
            }),
            ttl: LEASE,
            advertisement: None,
        }),
    };
    let mut harness = Harness::leading();
    let token = harness.server.revision;
    harness.event(Event::Hint(stored(twin(token + 5), None)));
    assert_eq!(harness.ends(), [Cause::Superseded { by: Some("me".into()) }]);

    let mut harness = Harness::started();
    harness.holds = true;
    harness.next_request();
    harness.answer(Response::Read(Ok(Reading::Found(twin(3)))));
    harness.holds = false;
    harness.run(SECOND);
    assert_eq!(harness.machine.leader().map(|leader| leader.is_me), Some(false));
    assert!(harness.requests().iter().all(|request| matches!(request, Request::Read { .. })));
}

/// kubernetes/kubernetes#112023, google/trillian#3789, etcd-io/etcd#22123: the release on exit was silently lost.
#[test]
fn a_release_on_exit_is_retried_until_its_response() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.event(Event::Stop);
    assert!(matches!(harness.next_request(), Request::Release(_)));
    harness.fail(LockErrorKind::Unavailable);
    assert!(matches!(harness.next_request(), Request::Release(_)));
    harness.fail(LockErrorKind::OutcomeUnknown);
    assert!(!harness.is_finished());
    assert!(matches!(harness.next_request(), Request::Release(_)));
    harness.serve();
    harness.holds = false;
    harness.run(SECOND);
    assert!(harness.is_finished() && !harness.holds_entry());
}

/// etcd-io/etcd#11007, #21128, jepsen etcd 3.4.3: a "leader" with no live lease behind it.
#[test]
fn a_leader_whose_process_hangs_does_not_lead_when_it_wakes() {
    let mut harness = Harness::leading();
    harness.now += LEASE;
    assert!(!harness.leads());
    harness.event(Event::Hint(Hint::Recheck));
    assert_eq!(harness.machine.state(), State::Candidate);
    assert_eq!(harness.ends().len(), 1);
}

/// apache/curator#1211, #1137, #1169: two leaders after a reconnect.
#[test]
fn a_reconnect_after_a_lease_does_not_revive_a_term() {
    let mut harness = Harness::leading();
    harness.refuses = Some(LockErrorKind::Unavailable);
    harness.run(LEASE * 2);
    assert_eq!(harness.ends().len(), 1);
    harness.other_writes(LEASE);
    harness.refuses = None;
    harness.event(Event::Hint(Hint::Coverage(incumbent::lock::Coverage::Full)));
    harness.run(LEASE / 2);
    assert_eq!(harness.begins().len(), 1);
    assert_eq!(harness.machine.leader().map(|leader| leader.is_me), Some(false));
}

/// ShedLock#231, leapmux#403: a clock three minutes off defeated the lock; a suspended machine stopped its clock. Time is
/// an argument here: whatever comes first after a suspension finds the term over.
#[test]
fn a_machine_that_was_suspended_does_not_lead_when_it_wakes() {
    let events = [Event::Wake, Event::Resign, Event::WorkEnded { panicked: false }];
    for event in events {
        let mut harness = Harness::leading();
        harness.now += SECOND * 180;
        harness.event(event);
        assert_eq!(harness.ends(), [Cause::Expired { last_error: None }]);
        let by = harness.log.iter().find_map(|(_, action)| match action {
            Action::End { by, .. } => Some(*by),
            _ => None,
        });
        assert!(by <= Some(Instant::from_origin(harness.local().since_origin())));
    }
}

/// patroni#3572: an unknown error of the backend was treated as fatal.
#[test]
fn no_error_of_the_lock_ends_a_campaign() {
    let kinds = [
        LockErrorKind::OutcomeUnknown,
        LockErrorKind::Unavailable,
        LockErrorKind::Denied,
        LockErrorKind::Misconfigured,
        LockErrorKind::Conflict,
    ];
    for kind in kinds {
        let mut harness = Harness::started();
        harness.refuses = Some(kind);
        harness.run(SECOND * 60);
        assert!(!harness.is_finished());
        assert!(harness.requests().len() < 200, "{} requests a minute", harness.requests().len());
        harness.refuses = None;
        harness.run(SECOND * 3);
        assert!(harness.leads(), "after {kind:?}");
    }
}

/// nats.go#2097, nats.py#782: the server refused a write because another one was in flight (error 10164).
#[test]
fn a_conflict_is_verified_by_a_read() {
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.next_write();
    harness.fail(LockErrorKind::Conflict);
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    harness.next_write();
    harness.serve();
    assert_eq!(harness.ends(), []);
    assert!(harness.leads());
}

/// nats-server#6712, #6711, nats.py#966: an expiry marker blocked the create, or was read as a value.
#[test]
fn an_expiry_marker_is_a_vacancy_and_is_created_over() {
    let mut harness = Harness::started();
    harness.holds = true;
    harness.next_request();
    harness.answer(found(41, Content::Vacant(Tombstone::Expired)));
    assert_eq!(harness.machine.leader(), None);
    let write = harness.next_write();
    assert_eq!((write.expected, write.mark.token), (Some(Revision(41)), None));
}

/// nats-server#8505: a purged value came back after the server was killed.
#[test]
fn a_reappearing_own_entry_is_respected_and_does_not_lead() {
    let mut harness = Harness::standby();
    let dead = harness.server.last.clone().expect("the other's entry");
    harness.admin_deletes();
    harness.event(Event::Hint(stored(dead.record.clone(), None)));
    assert_eq!(harness.machine.leader(), None, "an older revision revives nobody");
    harness.server.last = Some(dead);
    harness.run(SECOND * 2);
    assert!(harness.begins().is_empty());
    // A read returns the current state of the lock.
    assert_eq!(harness.machine.leader().map(|leader| &*leader.identity), Some("other"));
}

/// nats-server#4710, #4162, #6857: reads went back in time between replicas.
#[test]
fn a_stale_read_begins_no_term_and_costs_no_entry() {
    // A standby that reads an old vacancy: its create is refused.
    let mut harness = Harness::standby();
    harness.holds = true;
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(Duration::from_millis(20));
    harness.next_request();
    harness
        .answer(found(5, Content::Vacant(Tombstone::Released { by: OTHER, left: Duration::ZERO })));
    assert_eq!(harness.next_write().expected, Some(Revision(5)));
    harness.serve();
    assert!(harness.begins().is_empty());

    // A holder that reads the entry before its own: its entry does not block others.
    let mut harness = Harness::leading();
    harness.holds = true;
    harness.event(Event::Hint(Hint::Recheck));
    harness.next_request();
    harness.answer(found(0, Content::Vacant(Tombstone::Deleted)));
    while harness.held.is_some() {
        harness.serve();
    }
    assert!(harness.leads() || !harness.holds_entry());
}

/// nats-server#7564, #7549, #7556, jepsen nats 2.12.1: acknowledged writes were lost.
#[test]
fn a_holder_whose_acknowledged_renewal_was_lost_notices_at_its_next_one() {
    let mut harness = Harness::leading();
    let before = harness.server.last.clone();
    harness.run(LEASE / 2);
    // The server forgets the renewal, and another candidate creates over what it remembers.
    harness.server.last = before;
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.run(LEASE / 3);
    assert_eq!(harness.ends(), [Cause::Superseded { by: Some("other".into()) }]);
}

/// kube-lease-manager: a standby cleared an expired lease with an unconditional patch, and wiped one just renewed.
#[test]
fn a_silent_entry_is_read_and_never_overwritten() {
    let mut harness = Harness::standby();
    // The holder renews, unheard.
    for _ in 0..20 {
        harness.run(LEASE / 3);
        harness.server.store(harness.now, of_other(LEASE), LEASE);
    }
    assert!(harness.requests().len() > 2);
    assert!(harness.requests().iter().all(|request| matches!(request, Request::Read { .. })));
}

/// kubert, kube-lease-manager, kubernetes/kubernetes#47671: expiry was judged by the other machine's wall clock.
#[test]
fn nothing_depends_on_a_wall_clock() {
    let scenario = |origin_unix_ms, since_unix_ms| {
        let mut ours = settings();
        ours.origin_unix_ms = origin_unix_ms;
        let mut harness = Harness::standby_with(ours, super::harness::capabilities());
        let write = WriteId { nonce: OTHER, number: 9 };
        let mark = Mark { write, lease: LEASE, token: Some(Token(1)), since_unix_ms };
        let entry =
            Entry { identity: "other".into(), mark: Some(mark), ttl: LEASE, advertisement: None };
        harness.stores(Content::Held(entry));
        harness.run(SECOND);
        harness.admin_deletes();
        harness.run(LEASE * 2);
        harness.begins()
    };
    assert_eq!(scenario(0, u64::MAX), scenario(u64::MAX, 0));
    assert_eq!(scenario(0, 0).len(), 1);
}
