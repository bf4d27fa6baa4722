//! Order, deadline, tokens, and what each need means.

use incumbent::clock::{BootClock, Clock};
use incumbent::lock::{Lock, LockErrorKind};
use incumbent::memory::MemoryLock;
use incumbent::{Cause, Change, StartError, all_of, best_effort, new_election, required};

use crate::conformance::{
    Diary, Failing, SwitchableLock, appears, becomes_true, change, leads, leads_before, lost, sees,
    soon, unless_expired, won,
};
use crate::env::{LEASE, NAME, STEADY, candidate, has_second, held, memory, steady};

const OUT_OF_REACH: Failing = Failing::All(LockErrorKind::Unavailable);

/// Two locks and the way to them.
struct Pair {
    locks: [MemoryLock; 2],
    switchable: [SwitchableLock; 2],
    diary: Diary,
}

fn pair() -> Pair {
    pair_of([memory(), memory()])
}

fn steady_pair() -> Pair {
    pair_of([steady(), steady()])
}

fn pair_of(locks: [MemoryLock; 2]) -> Pair {
    let diary = Diary::default();
    let switchable =
        [SwitchableLock::new(&locks[0], "a", &diary), SwitchableLock::new(&locks[1], "b", &diary)];
    Pair { locks, switchable, diary }
}

#[tokio::test]
async fn locks_are_taken_in_order_and_released_in_reverse() {
    let Pair { switchable, diary, .. } = steady_pair();
    let only = candidate(all_of(switchable), "only").lease(STEADY);
    let (election, mut changes) = only.start_with_changes().unwrap();
    won(&mut changes).await;
    assert_eq!(diary.take(), ["a took", "b took"]);
    election.resign();
    assert_eq!(lost(&mut changes).await, Cause::Resigned);
    won(&mut changes).await;
    assert_eq!(diary.take(), ["b released", "a released", "a took", "b took"]);
    election.stop().await;
    assert_eq!(diary.take(), ["b released", "a released"]);
}

#[tokio::test]
async fn a_later_lock_is_released_if_an_earlier_one_is_lost_first() {
    let Pair { locks: [a, b], switchable, diary } = steady_pair();
    b.overwrite(NAME, "somebody");
    b.evict(NAME); // whose end nothing proves, so that the second lock has to be waited for
    let election = candidate(all_of(switchable), "only").lease(STEADY).start().unwrap();
    held(&b, Some("only")).await;
    assert!(!election.is_leader());
    a.evict(NAME);
    drop(leads(&election).await);
    assert_eq!(diary.take(), ["a took", "b took", "b released", "a took", "b took"]);
}

#[tokio::test]
async fn each_lock_has_its_token_and_the_deadline_is_the_earlier_one() {
    let Pair { locks: [a, b], switchable: [to_a, to_b], .. } = steady_pair();
    b.overwrite("another", "somebody"); // so that revisions differ
    let only = candidate(all_of([to_a.clone(), to_b.clone()]), "only").lease(STEADY);
    let election = only.start().unwrap();
    let leadership = leads(&election).await;
    let token = |lock: &MemoryLock| {
        let lock = lock.clone();
        async move {
            let reading = lock.read(NAME, LEASE).await.unwrap();
            let incumbent::lock::Reading::Found(record) = reading else { panic!("{reading:?}") };
            let incumbent::lock::Content::Held(entry) = record.content else { panic!("free") };
            entry.mark.unwrap().token.unwrap_or(record.revision.into())
        }
    };
    let tokens = [Some(token(&a).await), Some(token(&b).await)];
    assert_ne!(tokens[0], tokens[1]);
    assert_eq!(leadership.tokens(), tokens);
    assert_eq!(election.tokens(), tokens);
    assert_eq!(Some(leadership.token()), tokens[0]);
    assert_eq!(election.token(), tokens[0]);

    // The second lock cannot be renewed any more: its deadline is the earlier one.
    to_b.fail(OUT_OF_REACH);
    let failed = BootClock.now();
    let loss = soon("the end", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Expired { last_error: Some(_) }), "{loss:?}");
    assert!(loss.stop_by <= leadership.deadline());
    // The first was renewed all the time, and last at least a fifth of a lease after that.
    assert!(leadership.deadline() <= failed + STEADY);
    assert_eq!(loss.tokens, tokens);
    assert!(!election.is_leader() && election.tokens().is_empty());
}

#[tokio::test]
async fn locks_without_a_required_one_are_refused() {
    let none = |lock| new_election(NAME, lock).start().unwrap_err();
    let refused = none(all_of([best_effort(memory()), best_effort(memory())]));
    assert_eq!(refused, StartError::NothingRequired);
    assert_eq!(none(all_of(<[MemoryLock; 0]>::default())), StartError::NothingRequired);
    let nested = all_of([best_effort(all_of([memory(), memory()])), best_effort(memory())]);
    assert_eq!(none(nested), StartError::NothingRequired);
}

#[tokio::test]
async fn every_lock_must_allow_the_lease_and_hold_the_name() {
    let long = MemoryLock::with_ttl(LEASE * 10);
    let refused = new_election(NAME, all_of([long.clone(), memory()])).lease(LEASE * 5).start();
    assert_eq!(
        refused.unwrap_err().to_string(),
        "a lease of 10s is longer than the lock keeps an entry, 2s"
    );
    let unnamed = new_election("", all_of([long, memory()])).start();
    assert!(matches!(unnamed, Err(StartError::Name { .. })));
}

#[tokio::test]
async fn a_multi_lock_answers_no_requests_itself() {
    let both = all_of([memory(), memory()]);
    let error = both.read(NAME, LEASE).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert_eq!(both.members().map(<[_]>::len), Some(2));
}

#[tokio::test]
async fn a_missing_required_lock_prevents_leading_and_is_named() {
    for kind in
        [LockErrorKind::Unavailable, LockErrorKind::OutcomeUnknown, LockErrorKind::Misconfigured]
    {
        let Pair { locks: [a, _], switchable: [to_a, to_b], .. } = pair();
        to_b.fail(Failing::All(kind));
        let election = candidate(all_of([to_a, to_b.clone()]), "only").start().unwrap();
        let mut changes = election.changes();
        let failure = change(&mut changes, "the failure is reported", |change| match change {
            Change::LockFailing(failure) => Some(failure.clone()),
            _ => None,
        })
        .await;
        assert_eq!(failure.kind, kind);
        assert_eq!(&*failure.message, "lock 2 of 2 (required): so the test wants it");
        assert_eq!(election.lock_failure(), Some(failure));
        // Others, who do not need the second, lead by the first meanwhile.
        let other = candidate(a.clone(), "other").start().unwrap();
        drop(leads(&other).await);
        assert!(!election.is_leader());
        to_b.fail(Failing::Nothing);
        other.stop().await;
        drop(leads(&election).await);
        assert_eq!(election.lock_failure(), None);
        election.stop().await;
    }
}

#[tokio::test]
async fn a_denying_required_lock_is_reported_and_the_others_released() {
    let Pair { locks: [a, _], switchable: [to_a, to_b], diary } = pair();
    to_b.fail(Failing::Writes(LockErrorKind::Denied));
    let election = candidate(all_of([to_a, to_b.clone()]), "only").start().unwrap();
    let mut changes = election.changes();
    let denied = |change: &Change| match change {
        Change::LockFailing(failure) => Some(failure.kind),
        _ => None,
    };
    let kind = change(&mut changes, "the failure is reported", denied).await;
    assert_eq!(kind, LockErrorKind::Denied);
    let other = candidate(a, "other").start().unwrap();
    drop(leads(&other).await);
    sees(&election, "other").await;
    other.stop().await;
    // It is tried again after a rest, and once the permission is there it leads.
    to_b.fail(Failing::Nothing);
    drop(leads(&election).await);
    assert_eq!(&diary.take()[..2], ["a took", "a released"]);
}

#[tokio::test]
async fn a_term_needs_no_unavailable_best_effort_lock() {
    for fails in [
        OUT_OF_REACH,
        Failing::All(LockErrorKind::Misconfigured),
        Failing::Writes(LockErrorKind::Denied),
    ] {
        becomes_true("a term lasts", async || does_without_the_second(fails).await).await;
    }
}

/// False: the lease of the first lock has run out, as it may on a busy machine.
async fn does_without_the_second(fails: Failing) -> bool {
    let Pair { locks: [a, b], switchable: [to_a, to_b], .. } = pair();
    to_b.fail(fails);
    let lock = all_of([required(to_a), best_effort(to_b.clone())]);
    let election = candidate(lock, "only").start().unwrap();
    let leadership = leads(&election).await;
    assert_eq!(leadership.tokens()[1], None);
    let failure = election.lock_failure().expect("it is reported");
    assert_eq!(&*failure.message, "lock 2 of 2 (best effort): so the test wants it");
    assert_eq!(b.holder(NAME), None);

    to_b.fail(Failing::Nothing); // it is taken in the midst of the term
    held(&b, Some("only")).await;
    if !has_second(&leadership, true).await {
        return false;
    }
    to_b.fail(OUT_OF_REACH); // and lost again
    held(&b, None).await;
    if !has_second(&leadership, false).await {
        return false;
    }
    let (is_leader, holder) = (election.is_leader(), a.holder(NAME));
    if !leadership.is_valid() {
        assert!(matches!(leadership.ended().await.cause, Cause::Expired { .. }));
        return false;
    }
    assert!(is_leader);
    assert_eq!(holder.as_deref(), Some("only"));
    true
}

#[tokio::test]
async fn a_best_effort_lock_of_another_holder_prevents_a_term() {
    for writes_denied in [false, true] {
        let Pair { locks: [a, b], switchable: [to_a, to_b], .. } = steady_pair();
        if writes_denied {
            to_b.fail(Failing::Writes(LockErrorKind::Denied));
        }
        let rival = candidate(b.clone(), "rival").lease(STEADY).start().unwrap();
        drop(leads(&rival).await);
        let lock = all_of([required(to_a), best_effort(to_b)]);
        let election = candidate(lock, "only").start().unwrap();
        held(&a, Some("only")).await;
        held(&a, None).await; // it has given back what it held in vain
        assert!(rival.is_leader() && !election.is_leader());
        rival.stop().await;
        drop(leads(&election).await);
    }
}

/// Its holder was seen for the last time when the lock could still be reached.
#[tokio::test]
async fn a_former_holder_of_an_unreachable_best_effort_lock_ends_no_term() {
    let Pair { locks: [a, b], switchable: [to_a, to_b], .. } = steady_pair();
    to_b.fail(Failing::Writes(LockErrorKind::Denied));
    let rival = candidate(b, "rival").lease(STEADY).start().unwrap();
    drop(leads(&rival).await);
    let lock = all_of([required(to_a), best_effort(to_b.clone())]);
    let election = candidate(lock, "only").start().unwrap();
    held(&a, Some("only")).await;
    held(&a, None).await; // it has seen the rival
    to_b.fail(OUT_OF_REACH);
    // Each few leases it asks whether writes are still denied.
    let (mut renewals, mut leadership) = (0, leads(&election).await);
    while renewals < 24 {
        let renewed = soon("a renewal", leadership.renewed(leadership.deadline())).await;
        renewals += 1;
        // The lease may run out on a busy machine.
        if let Err(loss) = renewed {
            assert!(matches!(loss.cause, Cause::Expired { .. }), "{loss}");
            drop(leadership);
            (renewals, leadership) = (0, leads(&election).await);
        }
    }
}

#[tokio::test]
async fn a_best_effort_lock_taken_by_another_holder_ends_the_term() {
    let superseded = async || {
        let Pair { locks: [_, b], switchable: [to_a, to_b], .. } = pair();
        to_b.fail(OUT_OF_REACH);
        let lock = all_of([required(to_a), best_effort(to_b.clone())]);
        let election = candidate(lock, "only").start().unwrap();
        let leadership = leads(&election).await;
        let rival = candidate(b, "rival").start().unwrap();
        drop(leads(&rival).await);
        to_b.fail(Failing::Nothing);
        soon("the end", leadership.ended()).await.cause
    };
    let cause = unless_expired(superseded).await;
    assert_eq!(cause, Cause::Superseded { by: Some("rival".into()) });
}

#[tokio::test]
async fn a_best_effort_lock_may_come_first() {
    let Pair { locks: [_, b], switchable: [to_a, to_b], diary } = steady_pair();
    let lock = || all_of([best_effort(to_a.clone()), required(to_b.clone())]);
    let election = candidate(lock(), "first").lease(STEADY).start().unwrap();
    let leadership = leads(&election).await;
    assert_eq!(diary.take(), ["a took", "b took"]);
    assert_eq!(Some(leadership.token()), leadership.tokens()[1], "of the first required one");
    drop(leadership);
    election.stop().await;
    assert_eq!(diary.take(), ["b released", "a released"]);
    to_a.fail(OUT_OF_REACH);
    let election = candidate(lock(), "second").lease(STEADY).start().unwrap();
    drop(leads(&election).await);
    assert_eq!(b.holder(NAME).as_deref(), Some("second"));
}

/// It acquires the required lock only once it holds the one before.
#[tokio::test]
async fn a_standby_whose_turn_has_not_come_is_handed_over_to() {
    let [a, b] = [steady(), steady()];
    let lock = || all_of([best_effort(a.clone()), required(b.clone())]);
    let first = candidate(lock(), "first").lease(STEADY).start().unwrap();
    drop(leads(&first).await);
    let second = candidate(lock(), "second").lease(STEADY).start().unwrap();
    let leadership = leads_before(&first, &[&second]).await;
    appears("the handover", async || leadership.hand_over("second").await.ok()).await;
    drop(leadership);
    drop(leads(&second).await);
}

#[tokio::test]
async fn candidates_with_different_orders_do_not_deadlock() {
    let [a, b] = [memory(), memory()];
    // Each holds the first lock of its own order when it asks for the second.
    let diary = Diary::default();
    let stuck = Failing::Writes(LockErrorKind::Unavailable);
    let p = [SwitchableLock::new(&a, "a", &diary), SwitchableLock::new(&b, "b", &diary)];
    let q = [SwitchableLock::new(&b, "b", &diary), SwitchableLock::new(&a, "a", &diary)];
    p[1].fail(stuck);
    q[1].fail(stuck);
    let first = candidate(all_of(p.clone()), "p").start().unwrap();
    let second = candidate(all_of(q.clone()), "q").start().unwrap();
    held(&a, Some("p")).await;
    held(&b, Some("q")).await;
    p[1].fail(Failing::Nothing);
    q[1].fail(Failing::Nothing);
    soon("one of them leads", async {
        tokio::select! {
            leads = first.won() => drop(leads),
            leads = second.won() => drop(leads),
        }
    })
    .await;
}

#[tokio::test]
async fn a_candidate_on_one_lock_does_not_block_one_on_both() {
    let Pair { locks: [a, b], switchable: [to_a, to_b], .. } = pair();
    to_b.fail(OUT_OF_REACH);
    let sees_one = candidate(all_of([to_a, to_b]), "sees one").start().unwrap();
    let mut changes = sees_one.changes();
    let failure = |change: &Change| matches!(change, Change::LockFailing(_)).then_some(());
    if sees_one.lock_failure().is_none() {
        change(&mut changes, "the failure is reported", failure).await;
    }
    let sees_both = candidate(all_of([a.clone(), b]), "sees both").start().unwrap();
    drop(leads(&sees_both).await);
    assert!(!sees_one.is_leader());
}
