//! Roll calls on NATS: permissions, and answers that anybody may send.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use incumbent::lock::{CandidateRequest, Content, Lock, LockErrorKind, Messages, Reading};
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::{Successor, new_election, observe};
use incumbent_test_support::{NATS_PERMISSIONS, eventually};
use tokio::time::Instant;

use crate::conformance::{TIMEOUT, is_passing, leads, sees, soon};
use crate::env::{BUCKET, CALM, TestEnv, answered};
use crate::rights::{bucket_as, documented_server, start_as};

/// A busy machine holds up an answer, or a refusal.
const WITHIN: Duration = Duration::from_secs(3);
const CALLS: &str = "incumbent-roll-call.CHORIA_LEADER_ELECTION.my_app";
const ANSWERS: &str = "incumbent-answer.CHORIA_LEADER_ELECTION";

/// A call as anybody who may call can send it.
fn call_with(id: &str, within_ms: u64) -> Bytes {
    serde_json::json!({ "id": id, "within_ms": within_ms, "request": "identify" })
        .to_string()
        .into()
}

/// A candidate publishes its answer with its own permissions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_has_candidates_write_nowhere_but_to_its_own_answers() {
    let server = documented_server().await;
    let election = start_as(&server, "candidate", "first").await;
    let leadership = leads(&election).await;
    let bucket = bucket_as(&server, "observer").await;
    let observer = crate::rights::connect_as(&server, "observer").await;
    let client = observer.client();
    let mut answers = client.subscribe(format!("{ANSWERS}.>")).await.unwrap();
    for to in ["$KV.CHORIA_LEADER_ELECTION.my_app", "incumbent.CHORIA_LEADER_ELECTION.my_app"] {
        for id in ["00000000000000ff", to] {
            client.publish_with_reply(CALLS, to, call_with(id, 1)).await.unwrap();
        }
    }
    client.flush().await.unwrap();
    let answer = soon("an answer", answers.next()).await.expect("an answer");
    assert_eq!(*answer.subject, *format!("{ANSWERS}.my_app.00000000000000ff"));
    let lock = bucket.lock();
    eventually("the only candidate answers", async || {
        let call = lock.call_roll("my_app", CandidateRequest::Identify, WITHIN);
        let answers = call.await.ok()?;
        assert!(answers.len() <= 1, "{answers:?}");
        (answers.len() == 1).then_some(())
    })
    .await;
    let read = lock.read("my_app", TIMEOUT).await.unwrap();
    let Reading::Found(record) = read else { panic!("none") };
    let Content::Held(entry) = record.content else { panic!("{record:?}") };
    assert_eq!(entry.mark.expect("of this library").token, Some(leadership.token()));
    assert!(leadership.is_valid());
}

/// An election continues without the permission, with all its hints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_without_the_right_leads_and_is_not_found() {
    let server = documented_server().await;
    let calls = r#""incumbent-roll-call.CHORIA_LEADER_ELECTION.>""#;
    server.reload(NATS_PERMISSIONS.replace(calls, "\"nothing\"")).await;
    let election = start_as(&server, "candidate", "first").await;
    let _leadership = leads(&election).await;
    let lock = bucket_as(&server, "observer").await.lock();
    let refused = eventually("no right to call", async || {
        lock.call_roll("my_app", CandidateRequest::Identify, WITHIN).await.err()
    })
    .await;
    assert_eq!(refused.kind(), LockErrorKind::Denied, "{refused}");
    assert!(refused.to_string().contains(CALLS), "{refused}");
    let admin = bucket_as(&server, "admin").await.lock();
    assert_eq!(
        admin.call_roll("my_app", CandidateRequest::Identify, WITHIN).await.expect("a roll call"),
        []
    );
    eventually("no failure", async || {
        let Some(failure) = election.lock_failure() else { return Some(()) };
        assert!(is_passing(failure.kind), "{failure:?}"); // of a busy machine, for a moment
        None
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_answers_are_bounded_and_do_no_harm() {
    let env = TestEnv::with_ttl(CALM).await;
    let client = env.server.connect().await;
    let mut calls = client.subscribe(CALLS).await.unwrap();
    let forger = tokio::spawn(async move {
        let answer = |identity: &str, nonce: &str| {
            let json = serde_json::json!({
                "identity": identity, "nonce": nonce, "role": "standby", "priority": 0,
                "version": "1\u{1b}[31m", "since_unix_ms": u64::MAX, "leader": "a\nb", "token": 1,
            });
            Bytes::from(json.to_string())
        };
        let evil = "x\u{1b}]0;pwned\u{7}\u{202e}";
        let nonce = "00000000000000ff";
        while let Some(call) = calls.next().await {
            let call: serde_json::Value = serde_json::from_slice(&call.payload).expect("JSON");
            let to = format!("{ANSWERS}.my_app.{}", call["id"].as_str().expect("an id"));
            for payload in [
                Bytes::from_static(b""),
                Bytes::from_static(b"\xff\xfe"),
                Bytes::from_static(b"[[[[[[[["),
                Bytes::from(vec![b'x'; 100_000]),
                answer(&"y".repeat(5_000), nonce),
                answer("not a nonce", "zz"),
                answer(evil, nonce),
                answer(evil, nonce),
            ] {
                client.publish(to.clone(), payload).await.unwrap();
            }
            client.flush().await.unwrap();
        }
    });
    let caller = env.server.connect().await;
    let open = || Bucket::create_or_open(caller.clone(), BucketConfig::new(BUCKET));
    let lock = answered(open).await.unwrap().lock();
    let found = eventually("an answer in time", async || {
        let found = lock.call_roll("my_app", CandidateRequest::Identify, WITHIN).await.unwrap();
        (!found.is_empty()).then_some(found)
    })
    .await;
    forger.abort();
    let [only] = &found[..] else { panic!("one of one nonce: {found:?}") };
    for text in [&only.identity, &only.version, only.leader.as_ref().expect("a leader")] {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

/// Calls that nobody waits for cost a few answers, and no election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_calls_is_answered_by_a_few() {
    /// The answers are spread over this time: their places are not free again while calls come.
    const WINDOW: Duration = Duration::from_secs(10);
    let env = TestEnv::with_ttl(CALM).await;
    let election = new_election("my_app", env.bucket.lock()).identity("first").start().unwrap();
    let leadership = leads(&election).await;
    let lock = env.lock().await;
    eventually("it answers", async || {
        lock.call_roll("my_app", CandidateRequest::Identify, WITHIN)
            .await
            .expect("a roll call")
            .pop()
    })
    .await;
    let client = env.server.connect().await;
    let mut answers = client.subscribe(format!("{ANSWERS}.>")).await.unwrap();
    for number in 0..1000 {
        let call = call_with(&format!("{number:016x}"), WINDOW.as_secs() * 1_000);
        client.publish(CALLS, call).await.unwrap();
    }
    client.flush().await.unwrap();
    let until = Instant::now() + WINDOW;
    soon("an answer", answers.next()).await.expect("an answer");
    let mut count = 1;
    while let Ok(Some(_)) = tokio::time::timeout_at(until, answers.next()).await {
        count += 1;
    }
    assert!(count <= 8, "{count} answers");
    assert!(leadership.is_valid());
}

/// Who may call the roll may not move the leader, pause the election, or ask to be preferred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_may_not_move_the_leader_but_a_candidate_may() {
    let server = documented_server().await;
    let first = start_as(&server, "candidate", "first").await;
    let leadership = leads(&first).await;
    let second = start_as(&server, "candidate", "second").await;
    sees(&second, "first").await;
    let operator = |user| {
        let server = &server;
        async move { observe("my_app", bucket_as(server, user).await.lock()).unwrap() }
    };
    let control = "incumbent-control.CHORIA_LEADER_ELECTION.my_app";
    let observer = operator("observer").await;
    // A refusal that comes late is none.
    eventually("no right to move", async || {
        let refused = observer.move_leader(Successor::Any).await.expect_err("no right");
        refused.to_string().contains(control).then_some(())
    })
    .await;
    eventually("no right to pause", async || {
        match observer.pause(Duration::from_secs(60)).await {
            Ok(holders) => assert_eq!(holders, []),
            Err(refused) if refused.kind() == LockErrorKind::Denied => return Some(()),
            Err(late) => drop(late),
        }
        None
    })
    .await;
    assert!(leadership.is_valid());

    eventually("the handover", async || leadership.hand_over("second").await.ok()).await;
    drop(leadership);
    drop(leads(&second).await);
    let admin = operator("admin").await;
    eventually("the move", async || admin.move_leader("first").await.ok()).await;
    drop(leads(&first).await);
}

/// What anybody may send on the subject of requests moves nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_none_are_ignored() {
    let env = TestEnv::with_ttl(CALM).await;
    let election = new_election("my_app", env.bucket.lock()).identity("first").start().unwrap();
    let leadership = leads(&election).await;
    let observer = observe("my_app", env.lock().await).unwrap();
    eventually("it answers", async || {
        observer.roll_call(WITHIN).await.ok().filter(|found| found.len() == 1)
    })
    .await;
    let client = env.server.connect().await;
    let subject = "incumbent-control.CHORIA_LEADER_ELECTION.my_app";
    let long = format!(r#"{{"hand_over":{{"identity":"{}"}}}}"#, "x".repeat(100_000));
    let most = format!(r#"{{"pause":{{"until_unix_ms":{}}}}}"#, u64::MAX);
    for request in ["", "null", "\u{ff}", "{\"hand_over\":7}", "{\"prefer\":{}}", &long, &most] {
        let call = format!(r#"{{"id":"00000000000000ff","within_ms":1000,"request":{request}}}"#);
        client.publish(subject, call.into()).await.unwrap();
    }
    client.flush().await.unwrap();
    // The last of them was a pause, which is bounded to a day, and ends.
    let paused = eventually("the pause", async || election.watch().current().paused_until_unix_ms);
    assert!(paused.await < u64::MAX / 2);
    eventually("the end of the pause", async || {
        observer.pause(Duration::ZERO).await.ok()?;
        election.watch().current().paused_until_unix_ms.is_none().then_some(())
    })
    .await;
    assert!(leadership.is_valid());
}
