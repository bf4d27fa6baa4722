//! What went wrong for others, each as a story that ends well here.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    Content, Entry, Hint, LockErrorKind, Mark, Nonce, Reading, Record, Request, Revision, Token,
    Tombstone, WriteId,
};
use incumbent::protocol::{Action, Answer, Cause, Event, State};

use super::desk::{Desk, LEASE, ME, OTHER, found, of_other, settings, stored};

const SECOND: Duration = Duration::from_secs(1);

/// kubernetes/kubernetes#44887: a renewal was answered after a minute; a rival had taken over at 15 s, and both led.
#[test]
fn a_renewal_answered_after_a_minute_does_not_prolong_a_term() {
    let mut desk = Desk::leading();
    desk.holds = true;
    desk.next_write();
    let (id, _) = desk.held.clone().expect("the renewal");
    let deadline = Desk::time(desk.machine.deadline().expect("it leads"));
    desk.now = deadline;
    assert!(!desk.leads(), "no event is needed for a right to end");
    desk.now += SECOND * 60;
    desk.event(Event::Answered { id, answer: Answer::Written(Ok(Revision(9))) });
    assert_eq!(desk.ends(), [Cause::Expired { last_error: None }]);
    assert_eq!(desk.machine.deadline(), None);
}

/// The same before the minute is over: the right counts from before the sending, however slow the answer.
#[test]
fn a_right_counts_from_before_the_write_was_sent() {
    let mut desk = Desk::leading();
    let tenure = desk.machine.settings().timing.tenure();
    desk.holds = true;
    for _ in 0..5 {
        desk.next_write();
        let sent = desk.now;
        desk.now += SECOND;
        desk.serve();
        assert_eq!(desk.machine.deadline().map(Desk::time), Some(sent + tenure));
    }
}

/// kubernetes/kubernetes#23731, elastic/beats#38543: every renewal was forbidden, and the holder still said it led.
#[test]
fn a_holder_that_may_not_renew_any_more_stops_in_time() {
    let mut desk = Desk::leading();
    let deadline = Desk::time(desk.machine.deadline().expect("it leads"));
    desk.refuses = Some(LockErrorKind::Denied);
    desk.run(deadline - desk.now);
    assert_eq!(desk.ends(), [Cause::Denied { error: "no".into() }]);
    let ended = desk.log.iter().find(|(_, action)| matches!(action, Action::End { .. }));
    assert!(ended.expect("it ended").0 <= deadline - LEASE / 6);
    assert_eq!(desk.machine.state(), State::Candidate);
}

/// cirello-io/dynamolock#280: the write was applied, its reply was lost, the lock was thrown away.
#[test]
fn a_renewal_whose_reply_is_lost_is_found_and_counts_from_its_own_sending() {
    let mut desk = Desk::leading();
    desk.holds = true;
    desk.next_write();
    let sent = desk.now;
    desk.now += SECOND;
    desk.lose_the_reply();
    desk.next_write();
    desk.serve();
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.serve();
    let tenure = desk.machine.settings().timing.tenure();
    assert_eq!(desk.machine.deadline().map(Desk::time), Some(sent + tenure));
    desk.holds = false;
    desk.run(LEASE * 4);
    assert_eq!((desk.ends(), desk.begins().len()), (vec![], 1));
}

/// home-operations/kopiur#324: the first slow call made the leader abdicate, 90 times in six days.
#[test]
fn slow_calls_cost_nothing_while_the_lease_lasts() {
    let mut desk = Desk::leading();
    for kind in [LockErrorKind::Unknown, LockErrorKind::Unavailable, LockErrorKind::Misconfigured] {
        desk.refuses = Some(kind);
        desk.run(LEASE / 3);
        desk.refuses = None;
        desk.run(LEASE);
    }
    assert_eq!((desk.ends(), desk.begins().len()), (vec![], 1));
}

/// kuberhealthy#1533, elastic/beats#38543: after a loss it never campaigned again: 19 hours without a leader.
#[test]
fn every_loss_leads_back_to_the_campaign() {
    let mut desk = Desk::leading();
    desk.refuses = Some(LockErrorKind::Unavailable);
    desk.run(Duration::from_secs(19 * 3600));
    desk.refuses = None;
    desk.run(SECOND * 2);
    assert!(desk.leads());
    for lose in [Event::Resign, Event::WorkEnded { panicked: true }] {
        desk.event(lose);
        assert!(!desk.leads());
        desk.run(SECOND * 6);
        assert!(desk.leads());
    }
    desk.admin_deletes();
    assert!(!desk.leads());
    desk.run(SECOND * 6);
    assert!(desk.leads());
}

/// fabric8io/kubernetes-client#7350: the start callback ran before the conditional write had succeeded.
#[test]
fn a_term_begins_after_the_create_has_succeeded() {
    let mut desk = Desk::started();
    desk.holds = true;
    desk.next_request();
    desk.serve();
    desk.next_write();
    desk.now += Duration::from_millis(200);
    desk.event(Event::Wake);
    assert!(desk.begins().is_empty());
    desk.fail(LockErrorKind::Conflict);
    desk.server.store(desk.now, of_other(LEASE), LEASE);
    desk.next_request();
    desk.serve();
    assert!(desk.begins().is_empty());
}

/// kubernetes-client/python#2670: the guarded task had died, and renewals went on.
#[test]
fn a_holder_whose_work_has_ended_releases_its_entry() {
    for (panicked, cause) in [(false, Cause::WorkEnded), (true, Cause::WorkPanicked)] {
        let mut desk = Desk::leading();
        desk.event(Event::WorkEnded { panicked });
        assert_eq!(desk.ends(), [cause]);
        assert!(!desk.holds_entry());
    }
}

/// kubernetes/kubernetes#61151, Project-HAMi/HAMi#2481: two replicas showed one identity, and each took the other's
/// lock for its own.
#[test]
fn two_campaigners_with_one_identity_are_two() {
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
            life: LEASE,
            advertisement: None,
        }),
    };
    let mut desk = Desk::leading();
    let token = desk.server.revision;
    desk.event(Event::Hint(stored(twin(token + 5), None)));
    assert_eq!(desk.ends(), [Cause::Usurped { by: Some("me".into()) }]);

    let mut desk = Desk::started();
    desk.holds = true;
    desk.next_request();
    desk.answer(Answer::Read(Ok(Reading::Found(twin(3)))));
    desk.holds = false;
    desk.run(SECOND);
    assert_eq!(desk.machine.leader().map(|leader| leader.is_me), Some(false));
    assert!(desk.requests().iter().all(|request| matches!(request, Request::Read { .. })));
}

/// kubernetes/kubernetes#112023, google/trillian#3789, etcd-io/etcd#22123: the release on exit was silently lost.
#[test]
fn a_release_on_exit_is_tried_until_it_is_answered() {
    let mut desk = Desk::leading();
    desk.holds = true;
    desk.event(Event::Stop);
    assert!(matches!(desk.next_request(), Request::Release(_)));
    desk.fail(LockErrorKind::Unavailable);
    assert!(matches!(desk.next_request(), Request::Release(_)));
    desk.fail(LockErrorKind::Unknown);
    assert!(!desk.is_finished());
    assert!(matches!(desk.next_request(), Request::Release(_)));
    desk.serve();
    desk.holds = false;
    desk.run(SECOND);
    assert!(desk.is_finished() && !desk.holds_entry());
}

/// etcd-io/etcd#11007, #21128, jepsen etcd 3.4.3: a "leader" with no live lease behind it.
#[test]
fn a_leader_whose_process_hangs_is_none_when_it_wakes() {
    let mut desk = Desk::leading();
    desk.now += LEASE;
    assert!(!desk.leads());
    desk.event(Event::Hint(Hint::Look));
    assert_eq!(desk.machine.state(), State::Candidate);
    assert_eq!(desk.ends().len(), 1);
}

/// apache/curator#1211, #1137, #1169: two leaders after a reconnect.
#[test]
fn a_reconnect_after_a_lease_does_not_revive_a_term() {
    let mut desk = Desk::leading();
    desk.refuses = Some(LockErrorKind::Unavailable);
    desk.run(LEASE * 2);
    assert_eq!(desk.ends().len(), 1);
    desk.other_writes(LEASE);
    desk.refuses = None;
    desk.event(Event::Hint(Hint::Coverage(incumbent::lock::Coverage::Full)));
    desk.run(LEASE / 2);
    assert_eq!(desk.begins().len(), 1);
    assert_eq!(desk.machine.leader().map(|leader| leader.is_me), Some(false));
}

/// ShedLock#231, leapmux#403: a clock three minutes off defeated the lock; a suspended machine stopped its clock. Time is
/// an argument here: whatever comes first after a suspension finds the term over.
#[test]
fn a_machine_that_was_suspended_does_not_lead_when_it_wakes() {
    let events = [Event::Wake, Event::Resign, Event::WorkEnded { panicked: false }];
    for event in events {
        let mut desk = Desk::leading();
        desk.now += SECOND * 180;
        desk.event(event);
        assert_eq!(desk.ends(), [Cause::Expired { last_error: None }]);
        let by = desk.log.iter().find_map(|(_, action)| match action {
            Action::End { by, .. } => Some(*by),
            _ => None,
        });
        assert!(by <= Some(Instant::from_origin(desk.local().since_origin())));
    }
}

/// patroni#3572: an unknown error of the backend was treated as fatal.
#[test]
fn no_error_of_the_lock_ends_a_campaign() {
    let kinds = [
        LockErrorKind::Unknown,
        LockErrorKind::Unavailable,
        LockErrorKind::Denied,
        LockErrorKind::Misconfigured,
        LockErrorKind::Conflict,
    ];
    for kind in kinds {
        let mut desk = Desk::started();
        desk.refuses = Some(kind);
        desk.run(SECOND * 60);
        assert!(!desk.is_finished());
        assert!(desk.requests().len() < 200, "{} requests a minute", desk.requests().len());
        desk.refuses = None;
        desk.run(SECOND * 3);
        assert!(desk.leads(), "after {kind:?}");
    }
}

/// nats.go#2097, nats.py#782: the server refused a write because another one was in flight (error 10164).
#[test]
fn a_conflict_is_looked_into_before_it_is_believed() {
    let mut desk = Desk::leading();
    desk.holds = true;
    desk.next_write();
    desk.fail(LockErrorKind::Conflict);
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.serve();
    desk.next_write();
    desk.serve();
    assert_eq!(desk.ends(), []);
    assert!(desk.leads());
}

/// nats-server#6712, #6711, nats.py#966: an expiry marker blocked the create, or was read as a value.
#[test]
fn an_expiry_marker_is_a_vacancy_and_is_created_over() {
    let mut desk = Desk::started();
    desk.holds = true;
    desk.next_request();
    desk.answer(found(41, Content::Vacant(Tombstone::Expired)));
    assert_eq!(desk.machine.leader(), None);
    let write = desk.next_write();
    assert_eq!((write.expected, write.mark.token), (Some(Revision(41)), None));
}

/// nats-server#8505: a purged value came back after the server was killed.
#[test]
fn an_entry_that_comes_back_from_the_dead_is_respected_and_not_led_by() {
    let mut desk = Desk::standing_by();
    let dead = desk.server.last.clone().expect("the other's entry");
    desk.admin_deletes();
    desk.event(Event::Hint(stored(dead.record.clone(), None)));
    assert_eq!(desk.machine.leader(), None, "an older revision revives nobody");
    desk.server.last = Some(dead);
    desk.run(SECOND * 2);
    assert!(desk.begins().is_empty());
    // What is read is what the lock says now.
    assert_eq!(desk.machine.leader().map(|leader| &*leader.identity), Some("other"));
}

/// nats-server#4710, #4162, #6857: reads went back in time between replicas.
#[test]
fn a_stale_read_begins_no_term_and_costs_no_entry() {
    // A stand-by that is shown an old vacancy: its create is refused.
    let mut desk = Desk::standing_by();
    desk.holds = true;
    desk.event(Event::Hint(Hint::Look));
    desk.run(Duration::from_millis(20));
    desk.next_request();
    desk.answer(found(5, Content::Vacant(Tombstone::Released { by: OTHER, left: Duration::ZERO })));
    assert_eq!(desk.next_write().expected, Some(Revision(5)));
    desk.serve();
    assert!(desk.begins().is_empty());

    // A holder that is shown what stood before it: whatever it makes of that, its entry does not keep others out.
    let mut desk = Desk::leading();
    desk.holds = true;
    desk.event(Event::Hint(Hint::Look));
    desk.next_request();
    desk.answer(found(0, Content::Vacant(Tombstone::Deleted)));
    while desk.held.is_some() {
        desk.serve();
    }
    assert!(desk.leads() || !desk.holds_entry());
}

/// nats-server#7564, #7549, #7556, jepsen nats 2.12.1: acknowledged writes were lost.
#[test]
fn a_holder_whose_acknowledged_renewal_was_lost_notices_at_its_next_one() {
    let mut desk = Desk::leading();
    let before = desk.server.last.clone();
    desk.run(LEASE / 2);
    // The server forgets the renewal, and somebody creates over what it remembers.
    desk.server.last = before;
    desk.server.store(desk.now, of_other(LEASE), LEASE);
    desk.run(LEASE / 3);
    assert_eq!(desk.ends(), [Cause::Usurped { by: Some("other".into()) }]);
}

/// kube-lease-manager: a stand-by cleared an expired lease with an unconditional patch, and wiped one just renewed.
#[test]
fn a_silent_entry_is_looked_at_and_never_overwritten() {
    let mut desk = Desk::standing_by();
    // The holder renews, unheard.
    for _ in 0..20 {
        desk.run(LEASE / 3);
        desk.server.store(desk.now, of_other(LEASE), LEASE);
    }
    assert!(desk.requests().len() > 2);
    assert!(desk.requests().iter().all(|request| matches!(request, Request::Read { .. })));
}

/// kubert, kube-lease-manager, kubernetes/kubernetes#47671: expiry was judged by the other machine's wall clock.
#[test]
fn nothing_depends_on_a_wall_clock() {
    let story = |origin_unix_ms, since_unix_ms| {
        let mut ours = settings();
        ours.origin_unix_ms = origin_unix_ms;
        let mut desk = Desk::standing_by_with(ours, super::desk::capabilities());
        let write = WriteId { nonce: OTHER, number: 9 };
        let mark = Mark { write, lease: LEASE, token: Some(Token(1)), since_unix_ms };
        let entry =
            Entry { identity: "other".into(), mark: Some(mark), life: LEASE, advertisement: None };
        desk.stores(Content::Held(entry));
        desk.run(SECOND);
        desk.admin_deletes();
        desk.run(LEASE * 2);
        desk.begins()
    };
    assert_eq!(story(0, u64::MAX), story(u64::MAX, 0));
    assert_eq!(story(0, 0).len(), 1);
}
