//! In one election with client-go's candidates.

use std::time::Duration;

use incumbent::lock::{Mark, MoveInfo, Nonce, Revision, Token, Write, WriteId};
use incumbent::{Cause, HandOverError, Successor, new_election, observe};
use incumbent_test_support::eventually;
use serde_json::Value;

use crate::conformance::{Process, Service, TIMEOUT, change, leads, lost, sees, soon, working};
use crate::env::{InLease, TestEnv};
use crate::fresh::made;
use crate::peer::{LEASE, Peer};
use crate::work_log::now;

async fn transitions(env: &TestEnv) -> i64 {
    env.record().await.expect("a record")["leaseTransitions"].as_i64().expect("a number")
}

/// Releases hand over in either direction, and each term of either adds one to leaseTransitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn handovers_work_both_ways_and_transitions_are_counted() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let mut go = Peer::start(&env, "go").await;
    go.wait_for_line("won").await;
    assert_eq!(transitions(&env).await, 0);
    let mut last = 0;
    for turn in 0..3 {
        let ours = env.campaign("ours").await;
        sees(&ours, "go").await;
        go.stop().await;
        let leadership = leads(&ours).await;
        assert!(leadership.token().0 > last);
        last = leadership.token().0;
        assert_eq!(transitions(&env).await, 2 * turn + 1);
        go = Peer::start(&env, "go").await;
        go.wait_for_line("sees ours").await;
        drop(leadership);
        ours.stop().await;
        go.wait_for_line("won").await;
        assert_eq!(transitions(&env).await, 2 * turn + 2);
    }
}

/// A release of client-go's may come while its work continues, so it is waited for as long as its
/// own lease lasts, and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_release_of_client_go_hands_over_when_its_lease_is_out() {
    let env = TestEnv::<InLease>::new(Duration::from_secs(3600)).await;
    let mut go = Peer::start(&env, "go").await;
    go.wait_for_line("won").await;
    let ours = env.campaign("ours").await;
    sees(&ours, "go").await;
    go.stop().await;
    // Had it to wait out its own longest lease, it would be an hour.
    let _leadership = leads(&ours).await;
}

/// client-go's candidates ignore successors: one of them may be first, which is an ordinary
/// takeover. A leader of client-go's answers no request, and continues to lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handover_beside_client_go_is_a_takeover_at_worst() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    made(&env).await;
    let first = env.campaign("first").await;
    let leadership = leads(&first).await;
    let second = env.campaign("second").await;
    let mut go = Peer::start(&env, "go").await;
    go.wait_for_line("sees first").await;
    sees(&second, "first").await;
    let to = eventually("the handover", async || leadership.hand_over(Successor::Any).await.ok());
    let to = to.await;
    assert_eq!(&*to, "second");
    drop(leadership);
    tokio::select! {
        _ = second.won() => {
            go.wait_for_line("sees second").await;
            second.stop().await;
            first.stop().await;
            go.wait_for_line("won").await;
        }
        () = go.wait_for_line("won") => {}
    }
    let operator = observe("my_app", env.lock().await).expect("a view");
    eventually("the refusal", async || match operator.move_leader(Successor::Any).await {
        Err(HandOverError::NoAnswer) => Some(()),
        Err(HandOverError::Lock(_)) => None, // the server is busy
        other => panic!("{other:?}"),
    })
    .await;
}

/// Crashes on either side are noticed by the other, by the lease of who crashed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn crashes_on_either_side_are_replaced_by_the_other() {
    let env = std::sync::Arc::new(TestEnv::<InLease>::new(LEASE).await);
    let mut go = Peer::start(&env, "go").await;
    go.wait_for_line("won").await;
    let ours = std::sync::Arc::clone(&env);
    let candidate =
        async move { working(new_election("my_app", ours.lock().await).identity("ours")) };
    let first = Process::run(candidate).await;
    sees(&first.election, "go").await;
    go.kill().await;
    drop(leads(&first.election).await);
    let mut go = Peer::start(&env, "go-again").await;
    go.wait_for_line("sees ours").await;
    first.crash();
    go.wait_for_line("won").await;
    assert_eq!(transitions(&env).await, 2);
    // The mark of the crashed term is still there.
    let next = env.campaign("next").await;
    sees(&next, "go-again").await;
    assert_eq!(next.leader().unwrap().token, None, "the token of our term is not theirs");
}

/// A client-go candidate that was suspended while it led, and is ended when it wakes up, may
/// release a record that is ours: our leader steps down, and no other leads beside it meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_suspended_client_go_leader_does_not_overlap_its_successor() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let mut go = Peer::start(&env, "go").await;
    go.wait_for_line("won").await;
    let ours = env.campaign("ours").await;
    sees(&ours, "go").await;
    go.signal("STOP").await;
    let leadership = leads(&ours).await;
    go.signal("TERM").await;
    go.signal("CONT").await;
    go.wait_for_line("lost").await;
    let record = env.record().await.unwrap();
    let is_emptied = record["holderIdentity"] == "";
    if is_emptied || !leadership.is_valid() {
        let cause = leadership.ended().await.cause;
        // On a busy machine its lease may have run out before.
        let is_expired = matches!(cause, Cause::Expired { .. });
        assert!(is_expired || is_emptied && cause == Cause::Evicted, "{cause:?}");
        drop(leadership);
        drop(leads(&ours).await);
    }
}

/// An evicted leader of client-go's learns of it at its next renewal, and its work may continue
/// until its renew deadline: neither its peer nor ours leads before.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_evicted_client_go_leader_is_waited_for_by_all() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let mut first = Peer::start(&env, "first").await;
    first.wait_for_line("won").await;
    let mut second = Peer::start(&env, "second").await;
    second.wait_for_line("sees first").await;
    let ours = env.campaign("ours").await;
    sees(&ours, "first").await;
    let before = transitions(&env).await;
    let lock = env.cluster().await.lease_lock();
    // The lease of the evicted leader counts from its last renewal.
    let renewed_after = tokio::time::Instant::now();
    let renewed = async || env.record().await.map(|record| record["renewTime"].clone());
    let last = renewed().await;
    eventually("a renewal", async || (renewed().await != last).then_some(())).await;
    crate::status::evict(&lock).await;
    first.wait_for_line("lost").await;
    eventually("a successor", async || (transitions(&env).await > before).then_some(())).await;
    assert!(renewed_after.elapsed() >= LEASE, "{:?}", renewed_after.elapsed());
}

/// An administrator who empties the holder of one of ours evicts it, and the next leader waits
/// until its lease is out.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_emptied_holder_is_an_eviction_and_no_release() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    made(&env).await;
    let ours = env.campaign("ours").await;
    drop(leads(&ours).await);
    let mut changes = ours.changes();
    let mut record = env.record().await.unwrap();
    record["holderIdentity"] = Value::from("");
    record["leaseDurationSeconds"] = Value::from(1);
    let emptied = tokio::time::Instant::now();
    env.write_record(record).await;
    assert_eq!(lost(&mut changes).await, Cause::Evicted);
    let won = |change: &incumbent::Change| {
        matches!(change, incumbent::Change::Won { .. }).then(tokio::time::Instant::now)
    };
    let again = soon("it leads again", change(&mut changes, "a win", won)).await;
    assert!(again - emptied >= LEASE, "{:?}", again - emptied);
}

/// client-go's candidates compare the times of records in whole seconds. They see a renewal of ours
/// within the second of the last one all the same, and wait from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn client_go_waits_from_the_last_renewal_within_a_second() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let lock = Service::lock(&env).await;
    let renew = async |number, last: Option<Revision>| {
        let mark = Mark {
            write: WriteId { nonce: Nonce(1), number },
            lease: LEASE,
            token: last.map(|_| Token(1)),
            since_unix_ms: now() / 1_000_000,
            moves: Box::new(MoveInfo::default()),
        };
        let (identity, timeout) = ("ours".into(), TIMEOUT);
        let write =
            Write { expected: last, identity, mark, ttl: LEASE, advertisement: None, timeout };
        lock.write("my_app", write).await.unwrap()
    };
    let first = renew(1, None).await;
    let timing = ["5s", "4s", "250ms"];
    let mut go = Peer::start_timed(&env, &env.kubeconfig, "go", timing).await;
    go.wait_for_line("sees ours").await;
    // The first renewal soon after a second begins, and the other before it ends.
    tokio::time::sleep(Duration::from_nanos(1_010_000_000 - now() % 1_000_000_000)).await;
    let second = renew(2, Some(first)).await;
    tokio::time::sleep(Duration::from_nanos(900_000_000_u64.saturating_sub(now() % 1_000_000_000)))
        .await;
    let renewed = tokio::time::Instant::now();
    renew(3, Some(second)).await;
    eventually("client-go takes over", async || {
        (env.record().await?["holderIdentity"] == "go").then_some(())
    })
    .await;
    assert!(renewed.elapsed() >= LEASE, "{:?}", renewed.elapsed());
}
