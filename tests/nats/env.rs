//! A server, a bucket, and what an operator and a rival do to them.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::{Client, HeaderMap};
use incumbent::lock::Lock;
use incumbent::nats::{Bucket, BucketConfig, BucketError, BucketErrorKind, Connection, NatsLock};
use incumbent::{Election, ElectionBuilder, new_election};
use incumbent_test_support::{Server, Version, client_options, connected, jetstream_on, repeated};

use crate::conformance::{Service, leads, working};

pub const BUCKET: &str = "CHORIA_LEADER_ELECTION";
pub const KEY: &str = "$KV.CHORIA_LEADER_ELECTION.my_app";
/// A lease that no test waits for: a busy machine loses no term.
pub const CALM: Duration = Duration::from_secs(60);

/// What a request about a bucket leads to, such as to open it: again where a busy machine takes
/// longer than the library waits, or a cluster has no leader yet.
pub async fn answered<T, F>(attempt: impl Fn() -> F) -> Result<T, BucketError>
where
    F: Future<Output = Result<T, BucketError>>,
{
    repeated(attempt, |error: &BucketError| error.kind() == BucketErrorKind::Unavailable).await
}

/// Opens a bucket that exists.
pub async fn opened(connection: impl Into<Connection>, config: BucketConfig) -> Bucket {
    let connection = connection.into();
    answered(|| Bucket::open_with(&connection, config.clone())).await.expect("the bucket")
}

/// A bucket that is new to who creates it, which knows that nobody led before. On a single server:
/// what an attempt has created whose answer came too late is deleted.
pub async fn created<F>(client: &Client, name: &str, create: impl Fn() -> F) -> Bucket
where
    F: Future<Output = Result<Bucket, BucketError>>,
{
    let (context, stream) = (jetstream_on(client.clone()), format!("KV_{name}"));
    let attempt = || async {
        let bucket = create().await;
        if bucket.as_ref().is_err_and(|error| error.kind() == BucketErrorKind::Unavailable) {
            let _ = context.delete_stream(&stream).await; // an error: there is none
        }
        bucket
    };
    answered(attempt).await.expect("a bucket")
}

/// Creates a bucket, on a cluster or elsewhere, and ends a term of `my_app` in it with a release:
/// the first candidate leads at once, who would wait for a lease in a bucket of another process.
pub async fn prepared(connection: impl Into<Connection>, config: BucketConfig) {
    let connection = connection.into();
    let bucket = answered(|| Bucket::create(&connection, config.clone())).await;
    let lock = bucket.expect("a bucket").lock();
    let election = new_election("my_app", lock).start().expect("a start");
    drop(leads(&election).await);
    election.stop().await;
}

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
        Self::with(server, BucketConfig::new(BUCKET).ttl(ttl)).await
    }

    /// With a bucket like this, whose name is [`BUCKET`].
    pub async fn with(server: Server, config: BucketConfig) -> Self {
        let client = server.connect().await;
        let create = || Bucket::create(client.clone(), config.clone());
        let bucket = created(&client, BUCKET, create).await;
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

    pub async fn client(&self) -> Client {
        self.server.connect().await
    }

    /// Publishes to the key without any condition, as `kv put` does.
    pub async fn publish(&self, headers: &[(&str, &str)], value: &str) {
        let js = jetstream_on(self.client().await);
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
    pub async fn message(&self) -> Option<StreamMessage> {
        let js = jetstream_on(self.client().await);
        let stream = js.get_stream(format!("KV_{BUCKET}")).await.expect("the stream");
        stream.get_last_raw_message_by_subject(KEY).await.ok()
    }
}

pub async fn lock_at(url: &str) -> NatsLock {
    let options = || client_options().reconnect_delay_callback(|_| Duration::from_millis(50));
    let client = connected(|| options().connect(url)).await;
    opened(client, BucketConfig::new(BUCKET)).await.lock()
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
