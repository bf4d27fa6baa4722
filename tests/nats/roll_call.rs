//! Roll calls on NATS: rights, and answers that anybody may send.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use incumbent::lock::{CandidateRequest, Lock, LockErrorKind};
use incumbent::nats::BucketConfig;
use incumbent::{Role, new_election};
use incumbent_test_support::eventually;

use crate::conformance::leads;
use crate::env::{BUCKET, TestEnv};
use crate::rights::{bucket_as, documented_server, start_as};

const WITHIN: Duration = Duration::from_millis(300);
const CALLS: &str = "incumbent-roll-call.CHORIA_LEADER_ELECTION.my_app";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice() {
    let server = documented_server().await;
    let election = start_as(&server, "candidate", "first").await;
    let _leadership = leads(&election).await;
    let lock = bucket_as(&server, "observer").await.lock();
    let found = eventually("the candidate answers", async || {
        lock.call_roll("my_app", CandidateRequest::Identify, WITHIN)
            .await
            .expect("a roll call")
            .pop()
    })
    .await;
    assert_eq!((&*found.identity, found.role), ("first", Role::Leader));
}

/// An election goes on without the right, with all its hints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_without_the_right_leads_and_is_not_found() {
    let server = documented_server().await;
    let rights = include_str!("../../deploy/nats-permissions.conf");
    let calls = r#""incumbent-roll-call.CHORIA_LEADER_ELECTION.>""#;
    server.reload(without(rights, calls)).await;
    let election = start_as(&server, "candidate", "first").await;
    let _leadership = leads(&election).await;
    let lock = bucket_as(&server, "observer").await.lock();
    let refused = lock
        .call_roll("my_app", CandidateRequest::Identify, WITHIN)
        .await
        .expect_err("no right to call");
    assert_eq!(refused.kind(), LockErrorKind::Denied, "{refused}");
    assert!(refused.to_string().contains(CALLS), "{refused}");
    let admin = bucket_as(&server, "admin").await.lock();
    assert_eq!(
        admin.call_roll("my_app", CandidateRequest::Identify, WITHIN).await.expect("a roll call"),
        []
    );
    assert_eq!(election.lock_failure(), None);
}

fn without(rights: &str, right: &str) -> String {
    let passwords = "ADMIN_PASSWORD: pw\nCANDIDATE_PASSWORD: pw\nOBSERVER_PASSWORD: pw\n";
    format!("{passwords}{}", rights.replace(right, "\"nothing\""))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_answers_are_bounded_and_do_no_harm() {
    let env = TestEnv::with_ttl(Duration::from_secs(5)).await;
    let client = env.server.connect().await;
    let mut calls = client.subscribe(CALLS).await.unwrap();
    let forger = tokio::spawn(async move {
        let call = calls.next().await.expect("a call");
        let to = call.reply.expect("where to answer");
        let answer = |identity: &str, nonce: &str| {
            let json = serde_json::json!({
                "identity": identity, "nonce": nonce, "role": "standby", "priority": 0,
                "version": "1\u{1b}[31m", "since_unix_ms": u64::MAX, "leader": "a\nb", "token": 1,
            });
            Bytes::from(json.to_string())
        };
        let evil = "x\u{1b}]0;pwned\u{7}\u{202e}";
        let nonce = "00000000000000ff";
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
    });
    let bucket = incumbent::nats::Bucket::create_or_open(
        env.server.connect().await,
        BucketConfig::new(BUCKET),
    )
    .await
    .unwrap();
    let found = bucket
        .lock()
        .call_roll("my_app", CandidateRequest::Identify, Duration::from_secs(2))
        .await
        .unwrap();
    forger.await.unwrap();
    let [only] = &found[..] else { panic!("one of one nonce: {found:?}") };
    for text in [&only.identity, &only.version, only.leader.as_ref().expect("a leader")] {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

/// Calls that nobody waits for cost a few answers, and no election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_calls_is_answered_by_a_few() {
    let env = TestEnv::with_ttl(Duration::from_secs(5)).await;
    let election = new_election("my_app", env.lock().await).identity("first").start().unwrap();
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
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.unwrap();
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Incumbent-Within-Ms", "1000");
    for _ in 0..1000 {
        let (headers, inbox) = (headers.clone(), inbox.clone());
        let sent = client.publish_with_reply_and_headers(CALLS, inbox, headers, Bytes::new());
        sent.await.unwrap();
    }
    client.flush().await.unwrap();
    let mut count = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(2), answers.next()).await {
        count += 1;
    }
    assert!((1..=8).contains(&count), "{count} answers");
    assert!(leadership.is_valid());
}
