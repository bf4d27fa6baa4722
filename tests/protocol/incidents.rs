//! What went wrong for others, each as a scenario that ends well here.

use std::time::Duration;

use incumbent::lock::{
    Content, Entry, Hint, LockErrorKind, Mark, MoveInfo, Nonce, Reading, Record, Request, Revision,
    Token, Tombstone, WriteId,
};
use incumbent::protocol::{Action, Cause, Event, Response, State};

use super::harness::{
    Harness, LEASE, ME, OTHER, SECOND, found, of_other, released, settings, stored,
};

/// kubernetes/kubernetes#44887: a renewal was answered after a minute; two led from 15 s on.
#[test]
pub fn a_renewal_answered_after_a_minute_does_not_prolong_a_term() -> Harness {
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
    harness
}

/// Rule 3: the answer to a renewal moves the deadline to a lease after its send, not after itself.
#[test]
pub fn a_right_counts_from_before_the_write_was_sent() -> Harness {
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
    harness
}

/// kubernetes/kubernetes#23731, elastic/beats#38543: forbidden to renew, it reported that it led.
#[test]
pub fn a_holder_without_the_right_to_renew_stops_in_time() -> Harness {
    let mut harness = Harness::leading();
    let deadline = Harness::time(harness.machine.deadline().expect("it leads"));
    harness.refuses = Some(LockErrorKind::Denied);
    harness.run(deadline - harness.now);
    assert_eq!(harness.ends(), [Cause::Denied { error: "no".into() }]);
    let ended = harness.log.iter().find(|(_, action)| matches!(action, Action::End { .. }));
    assert!(ended.expect("it ended").0 <= deadline - LEASE / 6);
    assert_eq!(harness.machine.state(), State::Candidate);
    harness
}

/// cirello-io/dynamolock#280: the write was applied, its reply was lost, the lock was thrown away.
#[test]
pub fn a_renewal_without_a_reply_is_found_and_counts_from_its_send() -> Harness {
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
    harness
}

/// home-operations/kopiur#324: the first slow call made the leader abdicate, 90 times in six days.
#[test]
pub fn slow_calls_cost_nothing_while_the_lease_lasts() -> Harness {
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
    harness
}

/// kuberhealthy#1533, elastic/beats#38543: after a loss it never campaigned again, for 19 hours.
#[test]
pub fn every_loss_leads_back_to_the_campaign() -> Harness {
    let mut harness = Harness::leading();
    harness.refuses = Some(LockErrorKind::Unavailable);
    harness.run(Duration::from_secs(19 * 3600));
    harness.refuses = None;
    harness.run(SECOND * 8);
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
    harness
}

/// fabric8io/kubernetes-client#7350: the start callback ran before the conditional write.
#[test]
pub fn a_term_begins_after_the_create_has_succeeded() -> Harness {
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
    harness
}

/// kubernetes-client/python#2670: the guarded task had died, and renewals continued.
#[test]
pub fn a_holder_whose_work_has_ended_releases_its_entry() -> Harness {
    let ends = [(false, Cause::WorkEnded), (true, Cause::WorkPanicked)];
    let [_, panicked] = ends.map(|(panicked, cause)| {
        let mut harness = Harness::leading();
        harness.event(Event::WorkEnded { panicked });
        assert_eq!(harness.ends(), [cause]);
        assert!(!harness.holds_entry());
        harness
    });
    panicked
}

/// kubernetes/kubernetes#61151, Project-HAMi/HAMi#2481: two replicas showed one identity, and each
/// took the other's lock for its own.
#[test]
pub fn two_candidates_with_one_identity_are_distinct() -> Harness {
    let twin = |revision| Record {
        revision: Revision(revision),
        content: Content::Held(Entry {
            identity: settings().identity,
            mark: Some(Mark::new(WriteId { nonce: Nonce(ME.0 + 1), number: 1 }, LEASE, None)),
            ttl: LEASE,
            advertisement: None,
        }),
    };
    let mut harness = Harness::leading();
    let token = harness.server.revision;
    harness.event(Event::Hint(stored(twin(token + 5), None)));
    assert_eq!(harness.ends(), [Cause::Superseded { by: Some("me".into()) }]);
    let superseded = harness;

    let mut harness = Harness::started();
    harness.holds = true;
    harness.next_request();
    harness.answer(Response::Read(Ok(Reading::Found(twin(3)))));
    harness.holds = false;
    harness.run(SECOND);
    assert_eq!(harness.machine.leader().map(|leader| leader.is_me), Some(false));
    assert!(harness.requests().iter().all(|request| matches!(request, Request::Read { .. })));
    superseded
}

/// kubernetes/kubernetes#112023, google/trillian#3789, etcd-io/etcd#22123: the release was lost.
#[test]
pub fn a_release_on_exit_is_retried_until_its_response() -> Harness {
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
    harness
}

/// etcd-io/etcd#11007, #21128, jepsen etcd 3.4.3: a "leader" with no live lease behind it.
#[test]
pub fn a_leader_whose_process_hangs_does_not_lead_when_it_wakes() -> Harness {
    let mut harness = Harness::leading();
    harness.now += LEASE;
    assert!(!harness.leads());
    harness.event(Event::Hint(Hint::Recheck));
    assert_eq!(harness.machine.state(), State::Candidate);
    assert_eq!(harness.ends().len(), 1);
    harness
}

/// apache/curator#1211, #1137, #1169: two leaders after a reconnect.
#[test]
pub fn a_reconnect_after_a_lease_does_not_revive_a_term() -> Harness {
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
    harness
}

/// ShedLock#231, leapmux#403: a clock three minutes off defeated the lock; a suspended machine
/// stopped its clock. Time is an argument here: whatever comes first after a suspension finds the
/// term over.
#[test]
pub fn a_machine_that_was_suspended_does_not_lead_when_it_wakes() -> Harness {
    let events = [Event::Wake, Event::Resign, Event::WorkEnded { panicked: false }];
    let [woken, ..] = events.map(|event| {
        let mut harness = Harness::leading();
        harness.now += SECOND * 180;
        harness.event(event);
        assert_eq!(harness.ends(), [Cause::Expired { last_error: None }]);
        let at_once = |(_, a): &_| matches!(a, Action::End { by, .. } if *by <= harness.local());
        assert!(harness.log.iter().any(at_once));
        harness
    });
    woken
}

/// patroni#3572: an unknown error of the backend was treated as fatal.
#[test]
pub fn no_error_of_the_lock_ends_a_campaign() -> Harness {
    let kinds = [
        LockErrorKind::OutcomeUnknown,
        LockErrorKind::Unavailable,
        LockErrorKind::Denied,
        LockErrorKind::Misconfigured,
        LockErrorKind::Conflict,
    ];
    let [.., conflict] = kinds.map(|kind| {
        let mut harness = Harness::started();
        harness.refuses = Some(kind);
        harness.run(SECOND * 60);
        assert!(!harness.is_finished());
        assert!(harness.requests().len() < 200, "{} requests a minute", harness.requests().len());
        harness.refuses = None;
        harness.run(SECOND * 3);
        assert!(harness.leads(), "after {kind:?}");
        harness
    });
    conflict
}

/// nats.go#2097, nats.py#782: a write was refused because another one was in flight (10164).
#[test]
pub fn a_conflict_is_verified_by_a_read() -> Harness {
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
    harness
}

/// nats-server#6712, #6711, nats.py#966: an expiry marker blocked the create, or was a value.
#[test]
pub fn an_expiry_marker_is_a_vacancy_and_is_created_over() -> Harness {
    let mut harness = Harness::started();
    harness.holds = true;
    harness.next_request();
    harness.answer(found(41, Content::Vacant(Tombstone::Expired)));
    assert_eq!(harness.machine.leader(), None);
    let write = harness.next_write();
    assert_eq!((write.expected, write.mark.token), (Some(Revision(41)), None));
    harness
}

/// nats-server#8505: a purged value came back after the server was killed.
#[test]
pub fn a_reappearing_own_entry_is_respected_and_does_not_lead() -> Harness {
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
    harness
}

/// nats-server#4710, #4162, #6857: reads went back in time between replicas.
#[test]
pub fn a_stale_read_begins_no_term_and_costs_no_entry() -> Harness {
    // A standby that reads an old vacancy: its create is refused.
    let mut harness = Harness::standby();
    harness.holds = true;
    harness.event(Event::Hint(Hint::Recheck));
    harness.run(Duration::from_millis(20));
    harness.next_request();
    harness.answer(found(5, released(OTHER, Duration::ZERO)));
    assert_eq!(harness.next_write().expected, Some(Revision(5)));
    harness.serve();
    assert!(harness.begins().is_empty());
    let standby = harness;

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
    standby
}

/// nats-server#7564, #7549, #7556, jepsen nats 2.12.1: acknowledged writes were lost.
#[test]
pub fn a_lost_acknowledged_renewal_is_noticed_at_the_next_one() -> Harness {
    let mut harness = Harness::leading();
    let before = harness.server.last.clone();
    harness.run(LEASE / 2);
    // The server forgets the renewal, and another candidate creates over what it remembers.
    harness.server.last = before;
    harness.server.store(harness.now, of_other(LEASE), LEASE);
    harness.run(LEASE / 3);
    assert_eq!(harness.ends(), [Cause::Superseded { by: Some("other".into()) }]);
    harness
}

/// kube-lease-manager: a standby cleared a lease, just renewed, with an unconditional patch.
#[test]
pub fn a_silent_entry_is_read_and_never_overwritten() -> Harness {
    let mut harness = Harness::standby();
    // The holder renews, unheard.
    for _ in 0..20 {
        harness.run(LEASE / 3);
        harness.server.store(harness.now, of_other(LEASE), LEASE);
    }
    assert!(harness.requests().len() > 2);
    assert!(harness.requests().iter().all(|request| matches!(request, Request::Read { .. })));
    harness
}

/// kubert, kube-lease-manager, kubernetes/kubernetes#47671: another's wall clock decided expiry.
#[test]
pub fn nothing_depends_on_a_wall_clock() -> Harness {
    let scenario = |origin_unix_ms, since_unix_ms| {
        let mut ours = settings();
        ours.origin_unix_ms = origin_unix_ms;
        let mut harness = Harness::standby_with(ours, super::harness::capabilities());
        let write = WriteId { nonce: OTHER, number: 9 };
        let mark = Mark {
            write,
            lease: LEASE,
            token: Some(Token(1)),
            since_unix_ms,
            moves: Box::new(MoveInfo::default()),
        };
        let entry =
            Entry { identity: "other".into(), mark: Some(mark), ttl: LEASE, advertisement: None };
        harness.stores(Content::Held(entry));
        harness.run(SECOND);
        harness.admin_deletes();
        harness.run(LEASE * 2);
        harness
    };
    let (early, late) = (scenario(0, u64::MAX), scenario(u64::MAX, 0));
    assert_eq!((early.begins().len(), early.begins()), (1, late.begins()));
    late
}

/// The bucket was deleted and created again, or its memory storage was lost with the server: its
/// revisions begin anew. The leader took what it received of the new bucket for older than what it
/// had seen in the old one, and did not notice that it was evicted.
#[test]
fn a_leader_in_a_recreated_bucket_receives_its_eviction() {
    let mut harness = Harness::standby(); // at revisions above 100
    harness.server.last = None;
    harness.server.revision = 5;
    harness.run(LEASE * 3);
    assert!(harness.leads(), "{:?}", harness.log);
    assert!(harness.server.revision < 50);
    harness.admin_deletes();
    assert!(!harness.leads(), "it learns of its eviction at once");
}

/// A clone of a virtual machine, or a process restored from a checkpoint, has the nonce and the
/// token of the first one. Whose renewal is refused finds a write that it did not send.
#[test]
fn a_leader_that_has_a_twin_steps_down_and_waits_for_it() {
    for is_received in [false, true] {
        let mut harness = Harness::leading();
        harness.run(LEASE);
        let Content::Held(mut entry) = harness.server.last.as_ref().unwrap().record.content.clone()
        else {
            panic!("it leads")
        };
        let mark = entry.mark.as_mut().expect("a mark");
        assert_eq!(mark.write.nonce, ME);
        mark.write.number += 1; // at another instant
        harness.stores(Content::Held(entry));
        if is_received {
            harness.deliver_last();
        }
        let twin = harness.server.last.as_ref().unwrap().record.revision;
        harness.run(LEASE / 2);
        assert_eq!(harness.ends(), [Cause::Superseded { by: Some("me".into()) }]);
        assert_eq!(harness.server.last.as_ref().unwrap().record.revision, twin, "left alone");
        assert_ne!(harness.machine.settings().nonce, ME);
        harness.run(LEASE * 3);
        assert!(harness.leads(), "once the twin is gone");
        assert!(harness.begins()[1] >= harness.begins()[0] + LEASE * 2, "{:?}", harness.begins());
    }
}

/// The clock of a clone that is resumed late, or restored from a snapshot, is behind that of the
/// first one. That took the clone's writes for its own earlier ones, and led beside it at once.
#[test]
fn a_former_leader_takes_no_entry_of_a_late_twin_for_its_own() {
    let mut harness = Harness::leading();
    harness.run(LEASE * 3);
    let Content::Held(mut entry) = harness.server.last.as_ref().unwrap().record.content.clone()
    else {
        panic!("it leads")
    };
    let mark = entry.mark.as_mut().expect("a mark");
    mark.write.number -= 1_000_000_000; // a second before its last renewal
    mark.token = None;
    harness.event(Event::Resign);
    assert!(!harness.holds_entry());
    harness.stores(Content::Held(entry));
    harness.run(LEASE - Duration::from_secs(1));
    assert_eq!(harness.begins().len(), 1, "its twin leads: {:?}", harness.log);
}
