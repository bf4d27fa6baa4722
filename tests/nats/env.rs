//! A server, a bucket, and what an operator and a rival do to them.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream;
use incumbent::lock::Lock;
use incumbent::nats::{Bucket, BucketConfig, NatsLock};
use incumbent::{Election, ElectionBuilder, new_election};
use incumbent_test_support::{Server, Version};

use crate::conformance::{Service, working};

pub const BUCKET: &str = "CHORIA_LEADER_ELECTION";
pub const KEY: &str = "$KV.CHORIA_LEADER_ELECTION.my_app";

/// A server with a bucket.
pub struct TestEnv {
    pub server: Server,
    pub bucket: Bucket,
}

impl TestEnv {
    pub async fn with_ttl(ttl: Duration) -> Self {
        Self::on(Server::start().await, ttl).await
    }

    pub async fn of_version(version: Version, ttl: Duration) -> Self {
        Self::on(Server::builder().version(version).start().await, ttl).await
    }

    pub async fn on(server: Server, ttl: Duration) -> Self {
        let config = BucketConfig::new(BUCKET).ttl(ttl);
        let bucket = Bucket::create(server.connect().await, config).await.expect("a bucket");
        Self { server, bucket }
    }

    /// The lock as another process would open it.
    pub async fn lock(&self) -> NatsLock {
        lock_at(&self.server.url()).await
    }

    pub async fn candidate(&self, identity: &str) -> ElectionBuilder {
        working(new_election("my_app", self.lock().await).identity(identity))
    }

    /// The candidate that created the bucket: it knows that there was no leader before it, and need
    /// not wait.
    pub fn maker(&self, identity: &str) -> ElectionBuilder {
        working(new_election("my_app", self.bucket.lock()).identity(identity))
    }

    pub async fn start(&self, identity: &str) -> Election {
        self.candidate(identity).await.start().expect("a start")
    }

    pub async fn client(&self) -> async_nats::Client {
        self.server.connect().await
    }

    /// Publishes to the key without any condition, as `kv put` does.
    pub async fn publish(&self, headers: &[(&str, &str)], value: &str) {
        let js = jetstream::new(self.client().await);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, *value);
        }
        js.publish_with_headers(KEY, map, value.to_owned().into())
            .await
            .expect("a publish")
            .await
            .expect("an acknowledgement");
    }

    pub async fn delete_key(&self) {
        self.publish(&[("KV-Operation", "DEL")], "").await;
    }

    /// The last message under the key, with its headers.
    pub async fn message(&self) -> Option<jetstream::message::StreamMessage> {
        let js = jetstream::new(self.client().await);
        let stream = js.get_stream(format!("KV_{BUCKET}")).await.expect("the stream");
        stream.get_last_raw_message_by_subject(KEY).await.ok()
    }
}

pub async fn lock_at(url: &str) -> NatsLock {
    let client = async_nats::ConnectOptions::new()
        .reconnect_delay_callback(|_| Duration::from_millis(50))
        .connect(url)
        .await
        .expect("a connection");
    Bucket::open(client, BUCKET).await.expect("the bucket").lock()
}

impl Service for TestEnv {
    async fn start() -> Self {
        Self::with_ttl(Self::LEASE).await
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        Arc::new(TestEnv::lock(self).await)
    }

    async fn evict(&self, _name: &str) {
        self.delete_key().await;
    }

    async fn overwrite(&self, _name: &str, identity: &str) {
        self.publish(&[], identity).await;
    }

    async fn holder(&self, _name: &str) -> Option<String> {
        let message = self.message().await?;
        let headers = &message.headers;
        if headers.get("KV-Operation").is_some() || headers.get("Nats-Marker-Reason").is_some() {
            return None;
        }
        Some(String::from_utf8_lossy(&message.payload).into_owned())
    }
}
