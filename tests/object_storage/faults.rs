//! What stores and networks do to elections.

use std::time::Duration;

use incumbent::lock::{Content, Lock, LockAdmin, LockErrorKind, Reading, Write};
use incumbent_test_support::object_stores::{ACCESS_KEY, SECRET_KEY};
use incumbent_test_support::{HttpFault, HttpMessage, eventually, s3_error};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::time::Instant;

use crate::conformance::{leads, soon};
use crate::env::{Azure, Fields, Gcs, Kind, LEASE, S3, TIMEOUT, TestEnv, write};

/// What each refusal of a write means: whether it may have been applied, and whether trying again
/// helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn refusals_are_distinguished() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let lock = env.bucket().lock();
    for (status, code, kind) in [
        ("412 Precondition Failed", "PreconditionFailed", LockErrorKind::Conflict),
        ("409 Conflict", "ConditionalRequestConflict", LockErrorKind::Conflict),
        ("429 Too Many Requests", "TooManyRequests", LockErrorKind::Unavailable),
        ("503 Service Unavailable", "SlowDown", LockErrorKind::OutcomeUnknown),
        ("500 Internal Server Error", "InternalError", LockErrorKind::OutcomeUnknown),
        ("403 Forbidden", "AccessDenied", LockErrorKind::Denied),
        ("401 Unauthorized", "InvalidAccessKeyId", LockErrorKind::Denied),
        ("404 Not Found", "NoSuchBucket", LockErrorKind::Misconfigured),
        ("501 Not Implemented", "NotImplemented", LockErrorKind::Misconfigured),
        ("400 Bad Request", "InvalidRequest", LockErrorKind::Misconfigured),
    ] {
        env.proxy.once("PUT", HttpFault::Respond(s3_error(status, code, "said so")));
        let error = lock.write("my_app", write(1)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    env.proxy.once("GET", HttpFault::Respond(s3_error("403 Forbidden", "AccessDenied", "said so")));
    let error = lock.names(TIMEOUT).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Denied, "a list: {error}");
    assert_eq!(env.proxy.pending_faults(), 0, "each was sent once");
    assert_eq!(env.object().await, None);
}

/// A store that states for how long it is too busy gets the request again then, if there is time;
/// what then looks like a foreign write may be the first try.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_request_to_a_busy_store_is_retried_after_its_delay() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let lock = env.bucket().lock();
    let busy = s3_error("429 Too Many Requests", "SlowDown", "later");
    env.proxy.once("PUT", HttpFault::Respond(busy.clone().with("retry-after", "1")));
    let asked = Instant::now();
    let first = lock.write("my_app", write(1)).await.unwrap();
    assert!(asked.elapsed() >= Duration::from_secs(1));

    let expected = Some(first);
    let next = Write { expected, ..write(2) };
    for seconds in [3600, u64::MAX] {
        let busy = busy.clone().with("retry-after", seconds.to_string());
        env.proxy.once("PUT", HttpFault::Respond(busy));
        let error = lock.write("my_app", next.clone()).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    }

    let failed = s3_error("503 Service Unavailable", "Busy", "later").with("retry-after", "1");
    env.proxy.once("PUT", HttpFault::Respond(failed));
    let refused = s3_error("412 Precondition Failed", "PreconditionFailed", "no");
    env.proxy.once("PUT", HttpFault::Respond(refused));
    let error = lock.write("my_app", next).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::OutcomeUnknown, "{error}");
}

/// Where nothing listens nothing was written; where the answer is lost it may have been.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn only_a_lost_response_is_an_unknown_outcome() {
    let env = TestEnv::<Gcs>::new(LEASE).await;
    let lock = env.bucket().lock();
    env.proxy.once("PUT", HttpFault::LoseResponse);
    let error = lock.write("my_app", write(1)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::OutcomeUnknown, "{error}");
    let again = lock.write("my_app", write(1)).await.unwrap_err();
    assert_eq!(again.kind(), LockErrorKind::Conflict, "{again}");
    let Reading::Found(record) = lock.read("my_app", TIMEOUT).await.unwrap() else { panic!() };
    let Content::Held(entry) = record.content else { panic!("{record:?}") };
    assert_eq!(entry.mark.unwrap().write, write(1).mark.write);

    env.proxy.once("PUT", HttpFault::Hold);
    let timeout = Duration::from_millis(300);
    let hangs = Write { expected: Some(record.revision), timeout, ..write(2) };
    let error = lock.write("my_app", hangs).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::OutcomeUnknown, "{error}");

    let nobody = Gcs::bucket(1).lock();
    let timeout = Duration::from_secs(5);
    let error = nobody.write("my_app", Write { timeout, ..write(1) }).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
}

/// A store that applies conditional writes in any case would elect every candidate. Any may stand
/// at an address that is not a cloud's own.
async fn is_refused<K: Kind>() {
    let env = TestEnv::<K>::new(LEASE).await;
    let applied = HttpMessage::new("HTTP/1.1 200 OK").with("etag", "\"1\"");
    env.proxy.always("PUT", HttpFault::Respond(applied.with("x-goog-generation", "7")));
    let error = env.bucket().lock().write("my_app", write(1)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("ignores If-None-Match"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_store_that_ignores_conditions_is_refused() {
    is_refused::<S3>().await;
    is_refused::<Gcs>().await;
    is_refused::<Azure>().await;
}

/// It says which condition the store ignores, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_probe_continues_where_a_create_was_not_refused() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let path = Path::parse(format!("{}/incumbent-doctor", env.prefix)).unwrap();
    env.store.put(&path, "left by an earlier one".into()).await.unwrap();
    let applied = || HttpMessage::new("HTTP/1.1 200 OK").with("etag", "\"7\"");
    let refused = s3_error("412 Precondition Failed", "PreconditionFailed", "no");
    for answer in [applied(), applied(), refused] {
        env.proxy.once("PUT", HttpFault::Respond(answer));
    }
    let facts = env.bucket().probe(TIMEOUT).await.unwrap();
    assert!(!facts.refuses_to_create && facts.refuses_to_replace, "{facts:?}");
    let puts = env.proxy.requests().into_iter().filter(|request| request.method() == "PUT");
    let versions: Vec<_> = puts.map(|put| put.header("if-match").map(str::to_owned)).collect();
    assert_eq!(versions[..2], [None, Some("\"7\"".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_endless_response_of_a_store_is_not_kept() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let mut endless = HttpMessage::new("HTTP/1.1 500 Internal Server Error");
    endless.body = vec![b'x'; 9 << 20];
    env.proxy.always("GET", HttpFault::Respond(endless));
    let error = env.bucket().lock().read("my_app", TIMEOUT).await.unwrap_err();
    assert!(error.to_string().contains("length limit exceeded"), "{error}");
}

/// Some stores name the version of an object to its readers, and not to its writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_write_keeps_its_revision_with_and_without_a_version_id() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let lock = env.bucket().lock();
    let revision = lock.write("my_app", write(1)).await.unwrap();
    env.proxy.always("GET", HttpFault::AddHeader("x-amz-version-id", "v1"));
    for _ in 0..2 {
        let Reading::Found(record) = lock.read("my_app", TIMEOUT).await.unwrap() else { panic!() };
        assert_eq!(record.revision, revision, "{record:?}");
    }
    let renewal = Write { expected: Some(revision), ..write(2) };
    assert!(lock.write("my_app", renewal).await.unwrap() > revision);
}

/// A store is seen to heed conditions though no more than one request fits into the time for a
/// write.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_slow_store_gets_a_leader_in_the_end() {
    let env = TestEnv::<S3>::new(LEASE).await;
    env.proxy.always("PUT", HttpFault::Delay(LEASE / 8 * 3 / 5));
    let only = env.campaign("only");
    drop(leads(&only).await);
}

/// No key is ever shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn keys_are_not_shown_in_errors() {
    let env = TestEnv::<S3>::new(LEASE).await;
    let bucket = env.bucket();
    let mut told = format!("{bucket:?} {:?}", bucket.lock());
    let body = format!("it signs with {SECRET_KEY}, key {ACCESS_KEY}");
    let mut answer = s3_error("403 Forbidden", "SignatureDoesNotMatch", "see to the key");
    answer.body.extend(format!("<StringToSign>{body}</StringToSign>").bytes());
    env.proxy.once("PUT", HttpFault::Respond(answer));
    let error = bucket.lock().write("my_app", write(1)).await.unwrap_err();
    told.push_str(&format!("{error} {error:?}"));
    assert!(!told.contains(SECRET_KEY) && !told.contains(ACCESS_KEY), "{told}");
    assert!(told.contains("see to the key"), "{told}");
}

/// A leader outlives a store that is paused for less than its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_short_pause_of_the_store_costs_nothing() {
    let lease = Duration::from_secs(24);
    let env = TestEnv::<S3>::alone(lease).await;
    let only = env.describe("only").renewal(Duration::from_secs(1)).start().unwrap();
    let leadership = leads(&only).await;
    let before = leadership.deadline();
    let stood = soon("a renewal", leadership.renewed(before)).await.unwrap();
    env.server.pause();
    tokio::time::sleep(Duration::from_secs(4)).await;
    env.server.resume();
    soon("a renewal", leadership.renewed(stood)).await.unwrap();
    assert!(leadership.is_valid());
    assert_eq!(only.token(), Some(leadership.token()));
}

/// A store that is killed and started again has kept the election.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_election_continues_after_a_killed_store() {
    let env = TestEnv::<S3>::alone(Duration::from_secs(60)).await;
    let only = env.describe("only").renewal(Duration::from_secs(1)).start().unwrap();
    // Nothing is known of an earlier leader.
    let number = async || env.object().await.map(|object| Fields::of(&object).number(1));
    let token = eventually("it is in office", number).await;
    env.server.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    env.server.restart().await;
    let kept = number().await.expect("what was written");
    assert!(kept >= token, "{kept} after {token}");
    eventually("a renewal", async || number().await.filter(|number| *number > kept)).await;
    eventually("its failure is over", async || only.lock_failure().is_none().then_some(())).await;
}
