//! What an administrator sees and does: through a connection of the harness, which no fault
//! touches.

use std::io;
use std::time::Duration;

use async_nats::{Client, HeaderMap, jetstream};
use incumbent::Successor;
use incumbent::lock::{CandidateRequest, HandoverAnswer, Messages};
use incumbent::nats::{Bucket, BucketConfig};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(2);
/// How long something is tried again, also on a machine that stands still meanwhile.
const TIMEOUT: Duration = Duration::from_secs(180);

/// An administrator of the bucket.
#[derive(Debug, Clone)]
pub struct Admin {
    client: Client,
    bucket: String,
    ttl: Duration,
    /// How many servers store it.
    replicas: usize,
}

impl Admin {
    /// Connects to servers that may just have been started.
    pub async fn connect(urls: Vec<String>, bucket: &str, ttl: Duration) -> io::Result<Self> {
        let replicas = urls.len();
        let client = insist("a connection to the servers", async || {
            let options = async_nats::ConnectOptions::new()
                .ping_interval(Duration::from_secs(1))
                .reconnect_delay_callback(|_| Duration::from_millis(100));
            options.connect(urls.clone()).await.ok()
        })
        .await?;
        Ok(Self { client, bucket: bucket.to_owned(), ttl, replicas })
    }

    pub async fn make_bucket(&self) -> io::Result<()> {
        insist("a bucket", async || {
            let config = BucketConfig::new(&self.bucket).ttl(self.ttl).replicas(self.replicas);
            timeout(REQUEST, Bucket::create(&self.client, config)).await.ok()?.ok().map(drop)
        })
        .await
    }

    pub async fn delete_bucket(&self) -> io::Result<()> {
        insist("the end of the bucket", async || {
            let answer = self.api("STREAM.DELETE", "").await?;
            let gone = answer["error"]["code"] == 404;
            (answer["success"] == true || gone).then_some(())
        })
        .await
    }

    /// Deletes an election's key, as `nats kv del` does.
    pub async fn delete_key(&self, key: &str) -> io::Result<()> {
        let context = jetstream::new(self.client.clone());
        let subject = format!("$KV.{}.{key}", self.bucket);
        insist("the end of the key", async || {
            let mut headers = HeaderMap::new();
            headers.insert("KV-Operation", "DEL");
            let published =
                context.publish_with_headers(subject.clone(), headers, Vec::new().into());
            timeout(REQUEST, async { published.await.ok()?.await.ok() }).await.ok()?.map(drop)
        })
        .await
    }

    /// Requests the leader of an election to hand over, as `incumbent election move` does. Returns
    /// the identity of its successor; `None` if it continues to lead.
    pub async fn move_leader(&self, election: &str) -> io::Result<Option<String>> {
        insist("the answer of the leader", async || {
            let bucket = Bucket::open(&self.client, &self.bucket).await.ok()?;
            let request = CandidateRequest::HandOver(Successor::Any);
            let answers = bucket.lock().call_roll(election, request, REQUEST).await.ok()?;
            match answers.into_iter().find_map(|info| info.handover)? {
                HandoverAnswer::To(successor) => Some(Some(successor.to_string())),
                _ => Some(None),
            }
        })
        .await
    }

    /// The name of the server that leads the bucket's stream, once there is one.
    pub async fn stream_leader(&self) -> io::Result<String> {
        insist("a leader of the stream", async || {
            let info = self.api("STREAM.INFO", "").await?;
            info["cluster"]["leader"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
        })
        .await
    }

    /// Whether the stream has a leader, and every replica is up to date.
    pub async fn is_replicated(&self) -> bool {
        let Some(info) = self.api("STREAM.INFO", "").await else { return false };
        let replicas = info["cluster"]["replicas"].as_array();
        replicas.map_or(self.replicas == 1, |all| {
            all.len() + 1 == self.replicas
                && all.iter().all(|one| one["current"] == true && one["offline"] != true)
        })
    }

    /// Has the servers store large messages without end, in a stream that keeps the last ones.
    pub async fn store_garbage(&self) {
        const IN_FLIGHT: usize = 8;
        let context = jetstream::new(self.client.clone());
        let config = jetstream::stream::Config {
            name: "GARBAGE".to_owned(),
            max_bytes: 128 << 20,
            num_replicas: self.replicas,
            ..Default::default()
        };
        while context.get_or_create_stream(config.clone()).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
        let message = vec![7; 64 << 10];
        let mut acks = std::collections::VecDeque::new();
        loop {
            acks.extend(context.publish("GARBAGE", message.clone().into()).await.ok());
            if acks.len() > IN_FLIGHT
                && let Some(ack) = acks.pop_front()
            {
                let _ = timeout(REQUEST, ack.into_future()).await;
            }
        }
    }

    /// Asks the stream to be led by this server.
    pub async fn prefer_leader(&self, server: &str) {
        let placement = json!({ "placement": { "preferred": server } }).to_string();
        let _ = self.api("STREAM.LEADER.STEPDOWN", &placement).await;
    }

    async fn api(&self, verb: &str, payload: &str) -> Option<Value> {
        let subject = format!("$JS.API.{verb}.KV_{}", self.bucket);
        let request = self.client.request(subject, payload.to_owned().into());
        let answer = timeout(REQUEST, request).await.ok()?.ok()?;
        serde_json::from_slice(&answer.payload).ok()
    }
}

/// Tries until there is an answer, for three minutes.
pub async fn insist<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> io::Result<T> {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = attempt().await {
            return Ok(found);
        }
        if Instant::now() >= end {
            return Err(io::Error::other(format!("waited {TIMEOUT:?} for {what}")));
        }
        sleep(Duration::from_millis(100)).await;
    }
}
