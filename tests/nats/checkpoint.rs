//! The checkpoint of an election: a key that outlives the bucket's age.

use std::time::Duration;

use async_nats::jetstream;
use incumbent::lock::{CheckpointStore, Lock, LockAdmin, LockErrorKind};
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::{StartError, new_election};
use incumbent_test_support::{Server, Version, jetstream_on, on_versions};

use crate::conformance::{TIMEOUT, becomes_true, leads};
use crate::env::{BUCKET, CALM, TestEnv, answered, lock_at, opened};

/// Longer than a busy machine holds up a leader.
const TTL: Duration = Duration::from_secs(12);

const KEY: &str = "$KV.CHORIA_LEADER_ELECTION.$checkpoint.my_app";

suite!(TestEnv, checkpoint);

on_versions!(
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    a_checkpoint_outlives_the_age_of_its_bucket
);
async fn a_checkpoint_outlives_the_age_of_its_bucket(version: Version) {
    let env = TestEnv::of_version(version, TTL).await;
    let started = env.maker("first").checkpoint().start();
    if version == Version::V2_10 {
        let refused = started.expect_err("2.10 has no message TTLs");
        assert!(matches!(refused, StartError::Checkpoint { .. }), "{refused}");
        assert!(refused.to_string().contains("nats-server 2.11 or later"), "{refused}");
        return;
    }
    let election = started.expect("a start");
    let leadership = leads(&election).await;
    leadership.checkpoint().expect("it").save("kept").await.expect("a save");
    let token = leadership.token();
    drop(leadership);
    election.stop().await;
    // The release and its marker are gone, and with them all that the bucket's age removes.
    let js = jetstream_on(env.client().await);
    let stream = js.get_stream(format!("KV_{BUCKET}")).await.expect("the stream");
    becomes_true("nothing but the checkpoint is left", async || {
        stream.get_info().await.expect("an answer").state.messages == 1
    })
    .await;
    let message = stream.get_last_raw_message_by_subject(KEY).await.expect("the checkpoint");
    assert_eq!(message.headers.get("Nats-TTL").map(|ttl| ttl.as_str()), Some("never"));
    env.server.restart().await;

    let lock = lock_at(&env.server.url()).await;
    assert_eq!(lock.names(TIMEOUT).await.expect("a list"), [""; 0]);
    assert_eq!(lock.list(TIMEOUT).await.expect("a list"), []);
    let bucket = opened(env.client().await, BucketConfig::new(BUCKET)).await;
    let findings = answered(|| bucket.health()).await;
    assert_eq!(findings.expect("a check"), []);
    let next = env.candidate("second").await.checkpoint().start().expect("a start");
    let leadership = leads(&next).await;
    assert!(leadership.token() > token);
    assert_eq!(&*leadership.checkpoint().expect("it").data(), b"kept");
}

/// An operator may delete it like any key.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_deleted_checkpoint_begins_anew() {
    let env = TestEnv::with_ttl(CALM).await;
    let election = env.maker("first").checkpoint().start().expect("a start");
    let leadership = leads(&election).await;
    let checkpoint = leadership.checkpoint().expect("it");
    checkpoint.save("one").await.expect("a save");
    let js = jetstream_on(env.client().await);
    let deletes = [("KV-Operation", "DEL"), ("KV-Operation", "PURGE")];
    for (name, value) in deletes {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(name, value);
        let sent = js.publish_with_headers(KEY, headers, "".into()).await.expect("a publish");
        sent.await.expect("an acknowledgement");
        let lock: &dyn Lock = &env.lock().await;
        let stored = lock.checkpoint("my_app", TIMEOUT).await.expect("a read");
        assert_eq!(stored, None);
        checkpoint.save("two").await.expect("a save");
    }
}

/// As a bucket that Choria's broker makes.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_bucket_with_small_messages_is_refused() {
    let server = Server::start().await;
    let js = jetstream_on(server.connect().await);
    let config = jetstream::kv::Config {
        bucket: "SMALL".to_owned(),
        max_age: TTL,
        max_value_size: 1024,
        limit_markers: Some(TTL),
        ..Default::default()
    };
    js.create_key_value(config).await.expect("a bucket");
    let bucket = opened(server.connect().await, BucketConfig::new("SMALL")).await;
    let refused = new_election("my_app", bucket.lock()).checkpoint().start().expect_err("small");
    assert!(refused.to_string().contains("set max_msg_size to"), "{refused}");
    // What is not known at the start is refused by the request.
    let deferred = Bucket::deferred(server.connect().await, BucketConfig::new("SMALL")).unwrap();
    let refused = deferred.lock().store("my_app", vec![1], None, TIMEOUT).await;
    assert_eq!(refused.unwrap_err().kind(), LockErrorKind::Misconfigured);
}
