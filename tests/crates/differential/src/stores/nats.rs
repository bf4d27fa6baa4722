//! A bucket of one nats-server, or of three.

use std::time::Duration;

use async_nats::{Client, HeaderMap, RequestErrorKind};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use incumbent::lock::{Lock, LockAdmin, LockErrorKind, Revision};
use incumbent::nats::{self, Bucket, BucketConfig, NatsLock};
use incumbent_sim::Retention;
use incumbent_test_support::{Cluster, Server, Version, client_options, connected, eventually};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::store::{Deed, Rules, Store, Upheaval};

/// The TTL of the bucket.
const TTL: Duration = Duration::from_secs(2);

const BUCKET: &str = "B";

/// Of a request that is sent again.
const ATTEMPT: Duration = Duration::from_secs(2);

/// A bucket, as this library makes one.
#[derive(Debug)]
pub struct Nats {
    version: Version,
    servers: Servers,
    client: Client,
    lock: NatsLock,
}

#[derive(Debug)]
enum Servers {
    One(Box<Server>),
    Three(Box<Cluster>),
}

impl Nats {
    /// Starts a server, or three for a bucket of three replicas.
    pub async fn start(version: Version, replicated: bool) -> Self {
        let servers = if replicated {
            Servers::Three(Box::new(Cluster::builder().version(version).start().await))
        } else {
            Servers::One(Box::new(Server::builder().version(version).start().await))
        };
        let urls = match &servers {
            Servers::One(server) => vec![server.url()],
            Servers::Three(cluster) => cluster.urls(),
        };
        let options = || client_options().reconnect_delay_callback(|_| Duration::from_millis(20));
        let client = connected(|| options().connect(urls.clone())).await;
        make(&client, replicated).await;
        // Who has not made the bucket does not know that it is new.
        let connection = connected(|| nats::connect(urls.clone(), options())).await;
        let bucket = eventually("the bucket just made", async || {
            Bucket::open(connection.clone(), BUCKET).await.ok()
        })
        .await;
        let started = Self { version, servers, client, lock: bucket.lock() };
        started.takes_writes().await;
        started
    }

    /// Waits until writes of both connections reach the leader of the stream: a server of a cluster
    /// has no responder to their subjects until it has learned of the stream.
    async fn takes_writes(&self) {
        let refused = async || {
            let refused = self.lock.evict("probe", Revision(1), ATTEMPT).await;
            let stored = timeout(ATTEMPT, self.commit("probe", Deed::Purge, None)).await;
            let is_stored = stored.is_ok_and(|stored| stored.is_ok());
            let is_refused = refused.is_err_and(|error| error.kind() == LockErrorKind::Conflict);
            (is_refused && is_stored).then_some(())
        };
        eventually("writes reach the bucket", refused).await;
    }
}

async fn make(client: &Client, replicated: bool) {
    let replicas = if replicated { 3 } else { 1 };
    let config = BucketConfig::new(BUCKET).ttl(TTL).replicas(replicas);
    eventually("a bucket", async || Bucket::create(client.clone(), config.clone()).await.ok())
        .await;
}

async fn api(client: &Client, verb: &str, body: Value) -> Option<Value> {
    let answer = client.request(format!("$JS.API.{verb}"), body.to_string().into()).await.ok()?;
    serde_json::from_slice(&answer.payload).ok()
}

impl Store for Nats {
    fn lock(&self) -> &dyn Lock {
        &self.lock
    }

    fn rules(&self) -> Rules {
        let old = self.version == Version::V2_10;
        Rules {
            per_write_ttl: !old,
            // Lives are whole seconds, and the server's timer may be late.
            slack: Duration::from_millis(if old { 2_000 } else { 1_250 }),
            replicated: matches!(self.servers, Servers::Three(_)),
            ..Rules::new(if old { Retention::Expires } else { Retention::LeavesMarkers }, TTL)
        }
    }

    fn deeds(&self) -> &'static [Deed] {
        &[Deed::Delete, Deed::Purge, Deed::Vanish, Deed::Put, Deed::PutOver]
    }

    fn commit<'a>(
        &'a self,
        name: &'a str,
        deed: Deed,
        expected: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Revision>, LockErrorKind>> {
        let mut headers = HeaderMap::new();
        let subject = format!("$KV.{BUCKET}.{name}");
        match deed {
            Deed::Delete => headers.insert("KV-Operation", "DEL"),
            Deed::Purge => {
                headers.insert("KV-Operation", "PURGE");
                headers.insert("Nats-Rollup", "sub");
            }
            Deed::PutOver => {
                if let Some(expected) = expected {
                    let expected = expected.0.to_string();
                    headers.insert("Nats-Expected-Last-Subject-Sequence", expected.as_str());
                }
            }
            _ => {}
        }
        async move {
            if deed == Deed::Vanish {
                let purge = json!({ "filter": subject });
                let verb = format!("STREAM.PURGE.KV_{BUCKET}");
                return match api(&self.client, &verb, purge).await {
                    Some(answer) if answer["error"].is_null() => Ok(None),
                    Some(_) => Err(LockErrorKind::Unavailable),
                    None => Err(LockErrorKind::OutcomeUnknown),
                };
            }
            let value = match deed {
                Deed::Delete | Deed::Purge => "",
                _ => "junk",
            };
            let asked = self.client.request_with_headers(subject, headers, value.into()).await;
            let answer = asked.map_err(|error| match error.kind() {
                RequestErrorKind::TimedOut => LockErrorKind::OutcomeUnknown,
                _ => LockErrorKind::Unavailable,
            })?;
            let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
            match answer["error"]["err_code"].as_u64() {
                None => Ok(answer["seq"].as_u64().map(Revision)),
                Some(10071 | 10164) => Err(LockErrorKind::Conflict),
                Some(_) => Err(LockErrorKind::Unavailable),
            }
        }
        .boxed()
    }

    fn upheavals(&self) -> &'static [Upheaval] {
        match self.servers {
            Servers::One(_) => &[Upheaval::Remade, Upheaval::Killed],
            Servers::Three(_) => &[Upheaval::Remade],
        }
    }

    fn take_away(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            match (&self.servers, upheaval) {
                (Servers::One(server), Upheaval::Killed) => server.stop().await,
                _ => {
                    let verb = format!("STREAM.DELETE.KV_{BUCKET}");
                    let deleted = async || api(&self.client, &verb, json!({})).await;
                    eventually("no bucket", deleted).await;
                }
            }
        }
        .boxed_local()
    }

    fn bring_back(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            match (&self.servers, upheaval) {
                (Servers::One(server), Upheaval::Killed) => {
                    server.start_again().await;
                    let info = format!("STREAM.INFO.KV_{BUCKET}");
                    let there =
                        async || timeout(ATTEMPT, api(&self.client, &info, json!({}))).await;
                    eventually("the server", async || there().await.ok().flatten()).await;
                    // The lock has a connection of its own.
                    let reads = async || self.lock.read("e0", ATTEMPT).await.ok();
                    eventually("the lock", reads).await;
                }
                (servers, _) => {
                    make(&self.client, matches!(servers, Servers::Three(_))).await;
                    self.takes_writes().await;
                }
            }
        }
        .boxed_local()
    }
}
