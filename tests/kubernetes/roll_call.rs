//! Roll calls on a Lease: old calls, the leader's record, permissions, and what anybody may write.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::join_all;
use incumbent::lock::{
    CandidateRequest, Coverage, Hint, HintSink, Lock, LockErrorKind, Nonce, RollCall,
};
use incumbent::{CandidateInfo, Election, Leadership, Role};
use incumbent_test_support::eventually;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::conformance::{Service, TIMEOUT, becomes_true, is_passing, leads, soon};
use crate::env::{InConfigMap, InLease, OBJECT, TestEnv};
use crate::faults::cluster_at;
use crate::fresh::made;
use crate::rights::lacks;
use crate::status::has_expired;

const LEASE: Duration = Duration::from_secs(15);
/// A fifth of it is left for the last answer: an answer that comes too late stays in its object.
const WITHIN: Duration = Duration::from_secs(4);
const CALL: &str = "incumbent/roll-call";
const ANSWERS: &str = "my-app-roll-call";

/// Whether the object with the answers has none.
async fn has_no_answers(env: &TestEnv) -> bool {
    let object = env.get(&format!("{}/{ANSWERS}", env.objects())).await;
    let object = object.expect("the object with the answers");
    let annotations = object["metadata"]["annotations"].as_object().expect("annotations");
    annotations.keys().eq(["incumbent/roll-call-of"])
}

async fn annotate(env: &TestEnv, name: &str, annotations: Value) {
    let patch = json!({ "metadata": { "annotations": annotations } });
    env.patch_at(&format!("{}/{name}", env.objects()), &patch).await;
}

async fn call(lock: &dyn Lock) -> Vec<CandidateInfo> {
    eventually("a roll call", async || {
        match lock.call_roll("my_app", CandidateRequest::Identify, WITHIN).await {
            Ok(found) => Some(found),
            Err(error) => {
                assert!(is_passing(error.kind()), "a roll call: {error}");
                None
            }
        }
    })
    .await
}

/// The one candidate. Calls until it hears it: its watch may begin after it leads.
async fn answered(lock: &dyn Lock) -> CandidateInfo {
    eventually("the candidate answers", async || {
        let mut found = call(lock).await;
        assert!(found.len() <= 1, "the candidate alone: {found:?}");
        found.pop()
    })
    .await
}

/// The leader of a new election.
async fn leader(env: &TestEnv) -> (Election, Leadership) {
    made(env).await;
    let leader = env.campaign("first").await;
    let leadership = leads(&leader).await;
    (leader, leadership)
}

/// The hints of a lock of the account, once its watch has begun.
async fn listening(
    lock: &dyn Lock,
) -> (mpsc::UnboundedReceiver<Hint>, incumbent::lock::Subscription) {
    let (told, mut hints) = mpsc::unbounded_channel();
    let subscription = lock.subscribe("my_app", HintSink::new(move |hint| drop(told.send(hint))));
    let full =
        async { while !matches!(hints.recv().await, Some(Hint::Coverage(Coverage::Full))) {} };
    soon("the watch", full).await;
    (hints, subscription)
}

async fn next_call(hints: &mut mpsc::UnboundedReceiver<Hint>) -> RollCall {
    let call = async {
        loop {
            if let Hint::RollCall(call) = hints.recv().await.expect("hints") {
                return call;
            }
        }
    };
    soon("a call", call).await
}

/// A record that nobody renews.
async fn held_by_another_program(env: &TestEnv) {
    let spec = json!({ "holderIdentity": "go", "leaseDurationSeconds": 60 });
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", env.namespace);
    env.post(&path, &json!({ "metadata": { "name": OBJECT }, "spec": spec })).await;
}

/// Waits until the leader has renewed. False: its lease has run out, or the lock was out of reach,
/// as may be on a busy machine.
async fn still_leads(election: &Election, leadership: &Leadership, env: &TestEnv) -> bool {
    let before = env.record().await.expect("a record");
    eventually("a renewal", async || (env.record().await? != before).then_some(())).await;
    let (is_leader, failure) = (election.is_leader(), election.lock_failure());
    if has_expired(leadership).await
        || failure.as_ref().is_some_and(|failure| is_passing(failure.kind))
    {
        return false;
    }
    assert!(is_leader && leadership.is_valid());
    assert_eq!(failure, None);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_disturbs_no_leader_and_leaves_nothing() {
    becomes_true("a leader that is not disturbed", disturbs_no_leader).await;
}

/// False: a lease ran out, or an answer was late.
async fn disturbs_no_leader() -> bool {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let (leader, leadership) = leader(&env).await;
    let lock = env.lock().await;
    let found = answered(&*lock).await;
    assert_eq!((&*found.identity, found.role), ("first", Role::Leader));

    for _ in 0..3 {
        answered(&*lock).await;
    }
    if !still_leads(&leader, &leadership, &env).await || !has_no_answers(&env).await {
        return false;
    }
    let object = env.object().await.expect("the Lease");
    assert_eq!(object["metadata"]["annotations"][CALL], Value::Null, "a renewal removes it");
    assert_eq!(found.token, Some(leadership.token()));
    let lock = env.operators_lock().await;
    let admin = lock.admin().expect("an operator's lock");
    let names = admin.names(TIMEOUT).await.expect("a list");
    assert_eq!(names, [OBJECT], "the object with the answers is no election");
    true
}

/// Each answer is kept, and each call has its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_answer_two_calls_at_once() {
    becomes_true("all answers in time", two_calls_at_once_are_answered).await;
}

/// False: an answer was late.
async fn two_calls_at_once_are_answered() -> bool {
    let env = TestEnv::<InLease>::new(LEASE).await;
    held_by_another_program(&env).await;
    let (lock, candidates) = (env.lock().await, env.lock().await);
    let (mut hints, _subscription) = listening(&*candidates).await;
    let within = Duration::from_secs(20);
    let (began, answered) = (Instant::now(), Cell::new(None));
    let ask = || lock.call_roll("my_app", CandidateRequest::Identify, within);
    let answer = async {
        for call in [next_call(&mut hints).await, next_call(&mut hints).await] {
            join_all((0..15).map(async |number| {
                let info = CandidateInfo::new(format!("c{number}"), Nonce(number));
                let messages = candidates.messages().expect("messages");
                // Thirty requests at once may take a busy machine longer than one may take.
                eventually("an answer is written", async || {
                    messages.answer_roll_call("my_app", &call, &info).await.ok()
                })
                .await;
            }))
            .await;
        }
        answered.set(Some(began.elapsed()));
        std::future::pending().await
    };
    let called = tokio::select! {
        called = async { tokio::join!(ask(), ask()) } => called,
        () = answer => unreachable!("it pends"),
    };
    let found = match called {
        (Ok(first), Ok(second)) => [first.len(), second.len()],
        (Err(error), _) | (_, Err(error)) => {
            assert!(is_passing(error.kind()), "a roll call: {error}");
            return false;
        }
    };
    // The calls remove the answers within 2 s of their end.
    let in_time = answered.get().is_some_and(|at| at <= within * 4 / 5);
    if !in_time || began.elapsed() > within + Duration::from_millis(1500) {
        return false;
    }
    assert_eq!(found, [15, 15]);
    assert!(has_no_answers(&env).await);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_calls_and_answers_do_no_harm() {
    becomes_true("no harm", forged_answers_do_no_harm).await;
}

/// False: a lease ran out, or an answer was late.
async fn forged_answers_do_no_harm() -> bool {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let (leader, leadership) = leader(&env).await;
    let lock = env.lock().await;
    answered(&*lock).await;
    let long = "x".repeat(100_000);
    for junk in ["", "[[[[", r#"{"id":"/../x","within_ms":1}"#, &long] {
        annotate(&env, OBJECT, json!({ CALL: junk })).await;
    }
    let answers = json!({
        "incumbent/answer.junk": "junk",
        "incumbent/answer.ffffffffffffffff.00000000000000aa": long,
    });
    annotate(&env, ANSWERS, answers).await;
    assert_eq!(&*answered(&*lock).await.identity, "first");
    // Junk is removed.
    has_no_answers(&env).await && still_leads(&leader, &leadership, &env).await
}

/// Without the permissions an election is what it was, and a call says which permission it lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_rights_names_the_missing_one() {
    becomes_true("a leader that still leads", lacks_a_right).await;
}

/// False: a lease ran out.
async fn lacks_a_right() -> bool {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let (leader, leadership) = leader(&env).await;
    let lock = env.lock().await;
    answered(&*lock).await;
    for (verb, rule, object) in [("patch", 0, OBJECT), ("get", 2, ANSWERS)] {
        lacks(&env, rule, verb).await;
        eventually(&format!("{verb} of {object} is refused"), async || {
            let refused =
                lock.call_roll("my_app", CandidateRequest::Identify, WITHIN).await.err()?;
            if is_passing(refused.kind()) {
                return None; // the server is busy
            }
            assert_eq!(refused.kind(), LockErrorKind::Denied, "{refused}");
            let (refused, right) = (refused.to_string(), format!("right to {verb} is missing"));
            assert_eq!(refused.lines().count(), 1, "{refused}");
            // The server learns of a change a little later.
            (refused.contains(&right) && refused.contains(object)).then_some(())
        })
        .await;
    }
    lacks(&env, 2, "patch").await;
    let operator = env.operators_lock().await;
    eventually("the candidate may not answer", async || {
        call(&*operator).await.is_empty().then_some(())
    })
    .await;
    still_leads(&leader, &leadership, &env).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_leases_carry_calls() {
    let lease = TestEnv::<InLease>::new(LEASE).await.lock().await;
    assert_eq!(call(&*lease).await, [], "there is no such Lease");
    let config_map = TestEnv::<InConfigMap>::new(LEASE).await.lock().await;
    let refused = config_map.call_roll("my_app", CandidateRequest::Identify, WITHIN).await;
    let refused = refused.expect_err("it carries none");
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured, "{refused}");
}

#[tokio::test]
async fn a_lease_whose_answers_have_no_place_is_refused() {
    let cluster = cluster_at(1).await;
    let refused = cluster.lease_lock().check_name(&"x".repeat(244)).unwrap_err();
    assert!(refused.contains("more than 243 characters"), "{refused}");
    assert_eq!(cluster.lease_lock().check_name(&"x".repeat(243)), Ok(()));
    assert_eq!(cluster.config_map_lock().check_name(&"x".repeat(253)), Ok(()));
}
