//! A fleet shared with candidates that behave as Choria's do.

use std::time::Duration;

use async_nats::jetstream;
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::new_election;
use incumbent_test_support::Server;

use crate::conformance::{leads, working};
use crate::env::{BUCKET, TestEnv};

const TTL: Duration = Duration::from_secs(2);

/// As a Choria broker makes it: 1024 bytes a message, no markers, no republish.
async fn choria_made_bucket(server: &Server) -> jetstream::Context {
    let js = jetstream::new(server.connect().await);
    js.create_stream(jetstream::stream::Config {
        name: format!("KV_{BUCKET}"),
        subjects: vec![format!("$KV.{BUCKET}.>")],
        max_messages_per_subject: 1,
        max_age: TTL,
        max_message_size: 1024,
        discard: jetstream::stream::DiscardPolicy::New,
        deny_delete: true,
        allow_rollup: true,
        allow_direct: true,
        ..Default::default()
    })
    .await
    .unwrap();
    js
}

/// A Choria broker's bucket carries elections of ours: entries fit its messages, expiry is its max
/// age.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_created_by_choria_carries_elections() {
    let server = Server::start().await;
    choria_made_bucket(&server).await;
    let bucket = Bucket::open(server.connect().await, BUCKET).await.unwrap();
    let lock = bucket.lock();
    let start = |identity: &str| {
        let builder = new_election("my_app", lock.clone()).identity(identity);
        working(builder).start().unwrap()
    };
    let first = start("first");
    drop(leads(&first).await);
    let second = start("second");
    first.stop().await;
    drop(leads(&second).await);
    let longest = "x".repeat(2000);
    let refused = new_election("my_app", lock.clone()).identity(longest).start().unwrap_err();
    assert!(refused.to_string().contains("2000 bytes"), "{refused}");
    let findings = bucket.health().await.unwrap();
    assert!(!findings.is_empty(), "no markers, no republish");
}

/// What `kv get` of Choria and of nats shows is the identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_value_is_the_identity_as_choria_writes_it() {
    let env = TestEnv::with_ttl(TTL).await;
    let election = env.start("c1.example.net").await;
    drop(leads(&election).await);
    let message = env.message().await.unwrap();
    assert_eq!(&message.payload[..], b"c1.example.net");
    let config = BucketConfig::new(BUCKET);
    let again = Bucket::create_or_open(env.client().await, config).await;
    assert!(again.is_ok(), "an existing bucket is taken as it is");
}
