//! Buckets in a domain, below an API prefix, and buckets that do not exist yet.

use std::time::Duration;

use incumbent::lock::{Coverage, Lock, LockErrorKind};
use incumbent_test_support::{Proxy, Server, eventually};
use serde_json::json;

use super::*;

#[tokio::test]
async fn a_bucket_in_a_domain() {
    let server = Server::builder().domain("hub").start().await;
    let config = BucketConfig::new("B").ttl(TTL).domain("hub");
    let proxy = Proxy::start(server.address());
    let mut outside = proxy.lose_request(|request| {
        request.reply.is_some() && !request.subject.starts_with("$JS.hub.API.")
    });
    let client = proxy.connect().await;
    let bucket = answered(|| Bucket::create_or_open(&client, config.clone())).await;
    let lock = bucket.unwrap().lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    assert_eq!(hints.stored().await.0.revision, created);
    assert_eq!(held(&lock, "a").await.0, created);
    lock.release("a", release(1, created)).await.unwrap();
    assert_eq!(outside.caught(), None);
}

/// Another account's JetStream, as Choria lends it.
#[tokio::test]
async fn a_bucket_below_an_api_prefix() {
    let accounts = r#"
        accounts: {
          streams: {
            jetstream: enabled
            users: [ { user: admin, password: pw-admin } ]
            exports: [
              { service: "$JS.API.>" }, { service: "$KV.B.>" }, { stream: "incumbent.B.>" },
            ]
          }
          users: {
            users: [ { user: a, password: pw-a } ]
            imports: [
              { service: { account: streams, subject: "$JS.API.>" }, to: "choria.streams.>" },
              { service: { account: streams, subject: "$KV.B.>" }, to: "choria.streams.$KV.B.>" },
              { stream: { account: streams, subject: "incumbent.B.>" } },
            ]
          }
        }"#;
    let server = Server::builder().config(accounts).start().await;
    let (admin, config) = (client_of("admin", server.url()).await, BucketConfig::new("B").ttl(TTL));
    answered(|| Bucket::create(&admin, config.clone())).await.unwrap();

    let client = client_of("a", server.url()).await;
    let config = BucketConfig::new("B").api_prefix("choria.streams");
    let lock = opened(client, config).await.lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    assert_eq!(hints.stored().await.0.revision, created);
    assert_eq!(held(&lock, "a").await.0, created);
}

#[tokio::test]
async fn a_campaign_may_begin_before_its_bucket() {
    let server = Server::start().await;
    let config = BucketConfig::new("B").ttl(TTL);
    let bucket = Bucket::deferred(server.connect().await, config.clone()).unwrap();
    let lock = bucket.lock();
    assert_eq!(lock.capabilities().max_lease, TTL);
    let mut hints = Hints::of(&lock, "a");
    let missing = lock.write("a", entry(1, 1, None)).await.unwrap_err();
    assert_eq!(missing.kind(), LockErrorKind::Unavailable);
    assert!(missing.to_string().contains("bucket B does not exist"), "{missing}");

    bucket_like(&server, config).await;
    hints.coverage(Coverage::Full).await;
    lock.write("a", entry(1, 1, None)).await.unwrap();
}

#[tokio::test]
async fn a_campaign_may_begin_before_its_server() {
    let server = Server::start().await;
    server.stop().await;
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let client = options.connect(server.url()).await.unwrap();
    let config = BucketConfig::new("B").ttl(TTL).create_if_missing(true);
    let lock = Bucket::deferred(client, config).unwrap().lock();
    let mut hints = Hints::of(&lock, "a");
    let away = lock.write("a", entry(1, 1, None)).await.unwrap_err();
    assert_eq!(away.kind(), LockErrorKind::Unavailable, "{away}");
    server.start_again().await;
    hints.coverage(Coverage::Full).await;
    lock.write("a", entry(1, 1, None)).await.unwrap();
}

#[tokio::test]
async fn many_elections_wait_together_for_their_bucket() {
    let server = Server::start().await;
    let bucket = Bucket::deferred(server.connect().await, BucketConfig::new("B").ttl(TTL)).unwrap();
    let lock = bucket.lock();
    let proxied = (0..1_000).map(|n| {
        let lock = &lock;
        async move { lock.read(&format!("e{n}"), TIMEOUT).await.unwrap_err().kind() }
    });
    let answers = futures_util::future::join_all(proxied).await;
    assert!(answers.iter().all(|kind| *kind == LockErrorKind::Unavailable));
    let asked = server.varz().await["in_msgs"].as_u64().unwrap();
    assert!(asked < 100, "{asked} messages");
}

#[tokio::test]
async fn a_bucket_with_a_shorter_ttl_than_declared_is_refused() {
    let server = Server::start().await;
    let config = BucketConfig::new("B").ttl(TTL);
    let lock = Bucket::deferred(server.connect().await, config.clone()).unwrap().lock();
    bucket_like(&server, config.ttl(TTL / 2)).await;
    let refused = lock.write("a", entry(1, 1, None)).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
    assert!(refused.to_string().contains("its TTL is 30s"), "{refused}");
}

/// A write that waits in a client's buffer until the server is back is one of long ago.
#[tokio::test]
async fn nothing_is_queued_while_there_is_no_connection() {
    let server = Server::start().await;
    let lock = bucket_on(&server).await.lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    server.kill();
    hints.coverage(Coverage::None).await;
    for _ in 0..3 {
        let away = lock.write("a", entry(1, 1, None)).await.unwrap_err();
        assert_eq!(away.kind(), LockErrorKind::Unavailable, "{away}");
    }
    server.start_again().await;
    hints.coverage(Coverage::Full).await;
    assert!(matches!(read(&lock, "a").await.unwrap(), incumbent::lock::Reading::Empty { .. }));
}

/// A bucket made again as Choria makes it: without TTLs a message.
#[tokio::test]
async fn a_bucket_recreated_with_fewer_features_is_used_unchanged() {
    let server = Server::start().await;
    let client = server.connect().await;
    let lock = bucket_on(&server).await.lock();
    lock.write("a", entry(1, 1, None)).await.unwrap();
    api(&client, "STREAM.DELETE.KV_B", json!({})).await;
    let stream = json!({
        "name": "KV_B", "subjects": ["$KV.B.>"], "max_age": TTL.as_nanos() as u64,
        "max_msgs_per_subject": 1, "num_replicas": 1, "storage": "file",
    });
    api(&client, "STREAM.CREATE.KV_B", stream).await;
    let refused = lock.write("a", entry(1, 2, None)).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Unavailable, "{refused}");
    lock.write("a", entry(1, 3, None)).await.unwrap();
    eventually("the mark", async || held(&lock, "a").await.1.mark).await;
    assert_eq!(held(&lock, "a").await.1.ttl, TTL + Duration::from_millis(250));
}
