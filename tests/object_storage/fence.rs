//! Fenced objects, on each kind of store.

use bytes::Bytes;
use incumbent::fence::{FenceError, FenceErrorKind, FencedObject};
use incumbent::lock::Token;
use incumbent::memory::MemoryLock;
use incumbent::new_election;
use incumbent_test_support::{HttpFault, HttpMessage, s3_error};
use object_store::{Attribute, Attributes, ObjectStoreExt, PutMode, PutOptions};

use crate::conformance::appears;
use crate::env::{Kind, LEASE, S3, TestEnv};

const STALE_9: FenceErrorKind = FenceErrorKind::Stale { greatest: Token(9) };

async fn claim<K: Kind>(env: &TestEnv<K>, token: u64) -> Result<(FencedObject, Bytes), FenceError> {
    FencedObject::claim_with_token("my_app", Token(token), &env.bucket(), "my_app").await
}

/// Plays it in a new place where a busy machine has held up a request.
async fn settles(play: impl AsyncFn() -> Result<(), FenceError>) {
    appears("requests that are answered in time", async || match play().await {
        Ok(()) => Some(()),
        Err(error) if is_passing(&error) => None,
        Err(error) => panic!("{error}"),
    })
    .await;
}

/// Whether a request may fail so on a busy machine, and be sent again.
pub fn is_passing(error: &FenceError) -> bool {
    matches!(error.kind(), FenceErrorKind::Unavailable | FenceErrorKind::OutcomeUnknown)
}

/// Why a request is refused.
fn refusal<T>(answer: Result<T, FenceError>) -> Result<FenceError, FenceError> {
    let error = answer.err().expect("a refusal");
    if is_passing(&error) { Err(error) } else { Ok(error) }
}

async fn object_refuses_former_leaders<K: Kind>() {
    settles(async || {
        let env = TestEnv::<K>::new(LEASE).await;
        assert!(FencedObject::read(&env.bucket(), "my_app").await?.is_none());
        let (mut former, before) = claim(&env, 7).await?;
        assert_eq!(before, "");
        former.write("7 a").await?;
        former.write("7 b").await?;
        // The same contents as before: a version based on the contents alone would be the same.
        former.write("7 a").await?;
        let (mut leader, before) = claim(&env, 9).await?;
        assert_eq!(before, "7 a");
        let error = refusal(former.write("7 late").await)?;
        assert_eq!(error.kind(), STALE_9, "{error}");
        leader.write("9 a").await?;
        assert_eq!(refusal(former.write("7 late").await)?.kind(), STALE_9);
        assert_eq!(refusal(claim(&env, 8).await)?.kind(), STALE_9);
        let (token, contents) = FencedObject::read(&env.bucket(), "my_app").await?.unwrap();
        assert_eq!((token, &*contents), (Token(9), &b"9 a"[..]));
        let stored = env.object().await.unwrap();
        assert!(stored.starts_with(b"incumbent-fence 9 6 ") && stored.ends_with(b" my_app\n9 a"));
        Ok(())
    })
    .await;
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
    settles(async || {
        let env = TestEnv::<S3>::new(LEASE).await;
        let (mut leader, _) = claim(&env, 7).await?;
        env.proxy.once("PUT", HttpFault::LoseResponse);
        let error = leader.write("7 a").await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::OutcomeUnknown, "{error}");
        leader.write("7 b").await?;
        env.proxy.once("PUT", HttpFault::LoseResponse);
        leader.write("7 c").await.unwrap_err();
        let (_leader, before) = claim(&env, 9).await?;
        assert_eq!(before, "7 c");
        assert_eq!(refusal(leader.write("7 late").await)?.kind(), STALE_9);
        // A claim without a response is found.
        env.proxy.once("PUT", HttpFault::LoseResponse);
        let (mut leader, before) = claim(&env, 11).await?;
        assert_eq!(before, "7 c");
        leader.write("11 a").await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_outlives_a_failed_read_and_checks_the_store_once() {
    settles(async || {
        let env = TestEnv::<S3>::new(LEASE).await;
        let bucket = env.bucket();
        for token in [7, 8] {
            let busy = s3_error("500 Internal Server Error", "InternalError", "try again");
            env.proxy.once("GET", HttpFault::Respond(busy));
            FencedObject::claim_with_token("my_app", Token(token), &bucket, "my_app").await?;
        }
        let puts = env.proxy.requests().into_iter().filter(|request| request.method() == "PUT");
        assert_eq!(puts.count(), 4, "two claims, and two checks of the store");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_one_term_exclude_each_other() {
    settles(async || {
        let env = TestEnv::<S3>::new(LEASE).await;
        let (mut first, _) = claim(&env, 7).await?;
        first.write("a").await?;
        let (mut second, before) = claim(&env, 7).await?;
        assert_eq!(before, "a");
        let error = refusal(first.write("b").await)?;
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
        second.write("c").await?;
        let other =
            FencedObject::claim_with_token("other", Token(8), &env.bucket(), "my_app").await;
        assert_eq!(refusal(other)?.kind(), FenceErrorKind::Misconfigured);
        assert_eq!(claim(&env, 8).await?.1, "c");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_others_are_not_claimed() {
    settles(async || {
        let env = TestEnv::<S3>::new(LEASE).await;
        for body in [&b""[..], b"42", b"incumbent-fence x y z\n", &[7; 5 << 20]] {
            env.put(body.to_vec()).await;
            let error = refusal(claim(&env, 7).await)?;
            assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
            assert_eq!(env.object().await.unwrap(), body);
        }
        for name in ["", "/a", "a/", "a//b"] {
            let claimed =
                FencedObject::claim_with_token("my_app", Token(7), &env.bucket(), name).await;
            assert_eq!(refusal(claimed)?.kind(), FenceErrorKind::Misconfigured, "{name:?}");
        }
        env.store.delete(&env.path()).await.unwrap();
        let (mut leader, _) = claim(&env, 7).await?;
        let error = refusal(leader.write(vec![7; 4 << 20]).await)?;
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
        leader.write(vec![7; 3 << 20]).await?;
        assert_eq!(claim(&env, 8).await?.1.len(), 3 << 20);
        Ok(())
    })
    .await;
}

/// A store that ignores conditions would store the write of every former leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_ignore_conditions_are_refused() {
    settles(async || {
        let applied = || HttpMessage::new("HTTP/1.1 200 OK").with("etag", "\"7\"");
        for header in ["If-None-Match", "If-Match"] {
            let env = TestEnv::<S3>::new(LEASE).await;
            env.proxy.once("PUT", HttpFault::Respond(applied()));
            if header == "If-Match" {
                let refused = s3_error("412 Precondition Failed", "PreconditionFailed", "exists");
                env.proxy.once("PUT", HttpFault::Respond(refused));
            }
            env.proxy.once("PUT", HttpFault::Respond(applied()));
            let error = refusal(claim(&env, 7).await)?;
            assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains(&format!("ignores {header};")), "{error}");
            assert_eq!(env.proxy.pending_faults(), 0);
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn term_that_is_over_writes_nothing() {
    settles(async || {
        let env = TestEnv::<S3>::new(LEASE).await;
        let election = new_election("my_app", MemoryLock::new()).start().unwrap();
        let leadership = election.won().await.unwrap();
        let (mut object, _) = FencedObject::claim(&leadership, &env.bucket(), "my_app").await?;
        object.write("1").await?;
        leadership.resign();
        leadership.ended().await;
        assert_eq!(refusal(object.write("2").await)?.kind(), FenceErrorKind::TermOver);
        let claimed = FencedObject::claim(&leadership, &env.bucket(), "my_app").await;
        assert_eq!(refusal(claimed)?.kind(), FenceErrorKind::TermOver);
        Ok(())
    })
    .await;
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
