//! Fenced objects, on each kind of store.

use bytes::Bytes;
use incumbent::fence::{FenceError, FenceErrorKind, FencedObject};
use incumbent::lock::Token;
use incumbent::memory::MemoryLock;
use incumbent::new_election;
use incumbent_test_support::{HttpFault, HttpMessage, s3_error};
use object_store::{Attribute, Attributes, ObjectStoreExt, PutMode, PutOptions};

use crate::env::{Kind, LEASE, S3, TestEnv};

const STALE_9: FenceErrorKind = FenceErrorKind::Stale { greatest: Token(9) };

async fn claim<K: Kind>(env: &TestEnv<K>, token: u64) -> Result<(FencedObject, Bytes), FenceError> {
    FencedObject::claim_with_token("my_app", Token(token), &env.bucket(), "my_app").await
}

async fn object_refuses_former_leaders<K: Kind>() {
    let env = TestEnv::<K>::new(LEASE).await;
    assert!(FencedObject::read(&env.bucket(), "my_app").await.unwrap().is_none());
    let (mut former, before) = claim(&env, 7).await.unwrap();
    assert_eq!(before, "");
    former.write("7 a").await.unwrap();
    former.write("7 b").await.unwrap();
    // The same contents as before: a version based on the contents alone would be the same.
    former.write("7 a").await.unwrap();
    let (mut leader, before) = claim(&env, 9).await.unwrap();
    assert_eq!(before, "7 a");
    let error = former.write("7 late").await.unwrap_err();
    assert_eq!(error.kind(), STALE_9, "{error}");
    leader.write("9 a").await.unwrap();
    assert_eq!(former.write("7 late").await.unwrap_err().kind(), STALE_9);
    assert_eq!(claim(&env, 8).await.unwrap_err().kind(), STALE_9);
    let (token, contents) = FencedObject::read(&env.bucket(), "my_app").await.unwrap().unwrap();
    assert_eq!((token, &*contents), (Token(9), &b"9 a"[..]));
    let stored = env.object().await.unwrap();
    assert!(stored.starts_with(b"incumbent-fence 9 6 ") && stored.ends_with(b" my_app\n9 a"));
}

on_stores!(former_leaders: object_refuses_former_leaders);

/// Why the token is in the object: another one in its metadata leaves the version as it was, and
/// the condition of a late write in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_does_not_change_the_version_on_s3() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let put = async |token: &'static str, mode| {
        let attributes = Attributes::from_iter([(Attribute::Metadata("token".into()), token)]);
        let options = PutOptions { attributes, mode, ..PutOptions::default() };
        env.store.put_opts(&env.path(), "1".into(), options).await.unwrap()
    };
    let first = put("7", PutMode::Overwrite).await;
    assert_eq!(put("9", PutMode::Overwrite).await.e_tag, first.e_tag);
    put("7", PutMode::Update(first.into())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_without_a_response_are_settled_by_the_next() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let (mut leader, _) = claim(&env, 7).await.unwrap();
    env.proxy.once("PUT", HttpFault::LoseResponse);
    let error = leader.write("7 a").await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::OutcomeUnknown, "{error}");
    leader.write("7 b").await.unwrap();
    env.proxy.once("PUT", HttpFault::LoseResponse);
    leader.write("7 c").await.unwrap_err();
    let (_leader, before) = claim(&env, 9).await.unwrap();
    assert_eq!(before, "7 c");
    assert_eq!(leader.write("7 late").await.unwrap_err().kind(), STALE_9);
    // A claim without a response is found.
    env.proxy.once("PUT", HttpFault::LoseResponse);
    let (mut leader, before) = claim(&env, 11).await.unwrap();
    assert_eq!(before, "7 c");
    leader.write("11 a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_outlives_a_failed_read_and_checks_the_store_once() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let bucket = env.bucket();
    for token in [7, 8] {
        let busy = s3_error("500 Internal Server Error", "InternalError", "try again");
        env.proxy.once("GET", HttpFault::Respond(busy));
        FencedObject::claim_with_token("my_app", Token(token), &bucket, "my_app").await.unwrap();
    }
    let puts = env.proxy.requests().into_iter().filter(|request| request.method() == "PUT");
    assert_eq!(puts.count(), 4, "two claims, and two checks of the store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_one_term_exclude_each_other() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let (mut first, _) = claim(&env, 7).await.unwrap();
    first.write("a").await.unwrap();
    let (mut second, before) = claim(&env, 7).await.unwrap();
    assert_eq!(before, "a");
    let error = first.write("b").await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
    second.write("c").await.unwrap();
    let other = FencedObject::claim_with_token("other", Token(8), &env.bucket(), "my_app").await;
    assert_eq!(other.unwrap_err().kind(), FenceErrorKind::Misconfigured);
    assert_eq!(claim(&env, 8).await.unwrap().1, "c");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_others_are_not_claimed() {
    let env = TestEnv::<S3>::new(LEASE).await;
    for body in [&b""[..], b"42", b"incumbent-fence x y z\n", &[7; 5 << 20]] {
        env.put(body.to_vec()).await;
        let error = claim(&env, 7).await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
        assert_eq!(env.object().await.unwrap(), body);
    }
    for name in ["", "/a", "a/", "a//b"] {
        let claimed = FencedObject::claim_with_token("my_app", Token(7), &env.bucket(), name).await;
        assert_eq!(claimed.unwrap_err().kind(), FenceErrorKind::Misconfigured, "{name:?}");
    }
    env.store.delete(&env.path()).await.unwrap();
    let (mut leader, _) = claim(&env, 7).await.unwrap();
    let error = leader.write(vec![7; 4 << 20]).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
    leader.write(vec![7; 3 << 20]).await.unwrap();
    assert_eq!(claim(&env, 8).await.unwrap().1.len(), 3 << 20);
}

/// A store that ignores conditions would store the write of every former leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_ignore_conditions_are_refused() {
    let applied = || HttpMessage::new("HTTP/1.1 200 OK").with("etag", "\"7\"");
    for header in ["If-None-Match", "If-Match"] {
        let env = TestEnv::<S3>::new(LEASE).await;
        env.proxy.once("PUT", HttpFault::Respond(applied()));
        if header == "If-Match" {
            let refused = s3_error("412 Precondition Failed", "PreconditionFailed", "exists");
            env.proxy.once("PUT", HttpFault::Respond(refused));
        }
        env.proxy.once("PUT", HttpFault::Respond(applied()));
        let error = claim(&env, 7).await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(&format!("ignores {header};")), "{error}");
        assert_eq!(env.proxy.pending_faults(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn term_that_is_over_writes_nothing() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let election = new_election("my_app", MemoryLock::new()).start().unwrap();
    let leadership = election.won().await.unwrap();
    let (mut object, _) = FencedObject::claim(&leadership, &env.bucket(), "my_app").await.unwrap();
    object.write("1").await.unwrap();
    leadership.resign();
    leadership.ended().await;
    assert_eq!(object.write("2").await.unwrap_err().kind(), FenceErrorKind::TermOver);
    let claimed = FencedObject::claim(&leadership, &env.bucket(), "my_app").await;
    assert_eq!(claimed.unwrap_err().kind(), FenceErrorKind::TermOver);
}

/// Prints what a fence costs a write: the medians of 500 writes of 100 bytes with and without one,
/// by turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn cost_of_a_fence() {
    let env = TestEnv::<S3>::alone(LEASE).await;
    let (bucket, store) = (S3::bucket(env.server.port()), S3::store(env.server.port()));
    let claimed = FencedObject::claim_with_token("my_app", Token(7), &bucket, "fenced").await;
    let (mut object, _) = claimed.unwrap();
    let plain = object_store::path::Path::from("plain");
    let mut spans = [Vec::new(), Vec::new()];
    for _ in 0..500 {
        let start = std::time::Instant::now();
        object.write(vec![b'x'; 100]).await.unwrap();
        spans[0].push(start.elapsed());
        let start = std::time::Instant::now();
        store.put(&plain, vec![b'x'; 100].into()).await.unwrap();
        spans[1].push(start.elapsed());
    }
    let [fenced, plain] = spans.map(|mut spans| {
        spans.sort();
        spans[spans.len() / 2]
    });
    let start = std::time::Instant::now();
    FencedObject::claim_with_token("my_app", Token(8), &bucket, "fenced").await.unwrap();
    eprintln!("fenced {fenced:?}, plain {plain:?}, claimed in {:?}", start.elapsed());
}
