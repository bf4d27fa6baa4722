//! The lock in a NATS bucket, against real servers: what it promises to the protocol above it.

mod buckets;
mod domains;
mod emptiness;
mod hints;
mod listening;
mod quirks;
mod rights;

use std::time::Duration;

use incumbent::lock::{
    Content, Entry, Hint, HintSink, Lock, LockError, LockErrorKind, Mark, MoveInfo, Nonce, Reading,
    Record, Release, Revision, Subscription, Write, WriteId,
};
use incumbent::nats::{Bucket, BucketConfig, NatsLock};
use incumbent_test_support::{Server, client_options, connected, eventually};
use tokio::sync::mpsc;

use crate::conformance::{TIMEOUT, is_passing};
use crate::env::{answered, created, opened};

/// How long a request to a cluster may take, which may lose it.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Longer than a busy machine stands still.
const TTL: Duration = Duration::from_secs(60);

/// Creates an entry on a cluster, which may be without a leader for a moment: a candidate tries
/// again, too, and reads what became of its attempt.
async fn tried_again(lock: &NatsLock, name: &str) -> Revision {
    let create = within(ATTEMPT, entry(1, 1, None));
    eventually("a create on the cluster", async || {
        let error = match lock.write(name, create.clone()).await {
            Ok(created) => return Some(created),
            Err(error) => error,
        };
        let kind = error.kind();
        assert!(is_passing(kind) || kind == LockErrorKind::Conflict, "{error}");
        match lock.read(name, ATTEMPT).await.ok()? {
            Reading::Found(Record { revision, content: Content::Held(entry) }) => {
                let is_ours = entry.mark.is_some_and(|mark| mark.write == create.mark.write);
                is_ours.then_some(revision)
            }
            _ => None,
        }
    })
    .await
}

/// The bucket `B`, which is created if there is none.
async fn bucket_on(server: &Server) -> Bucket {
    bucket_like(server, BucketConfig::new("B").ttl(TTL)).await
}

async fn bucket_like(server: &Server, config: BucketConfig) -> Bucket {
    let client = server.connect().await;
    answered(|| Bucket::create_or_open(&client, config.clone())).await.unwrap()
}

/// The bucket `B` as who creates it knows it.
async fn new_bucket(server: &Server, config: BucketConfig) -> Bucket {
    let client = server.connect().await;
    created(&client, "B", || Bucket::create_or_open(&client, config.clone())).await
}

async fn opened_on(server: &Server) -> Bucket {
    opened(server.connect().await, BucketConfig::new("B")).await
}

/// A write of candidate `nonce`, its `number`th, whose entry lives as long as the bucket's TTL.
pub fn entry(nonce: u64, number: u64, expected: Option<Revision>) -> Write {
    Write {
        expected,
        identity: format!("host{nonce}").into(),
        mark: Mark {
            write: WriteId { nonce: Nonce(nonce), number },
            lease: TTL,
            token: None,
            since_unix_ms: 1_700_000_000_000,
            moves: Box::new(MoveInfo::default()),
        },
        ttl: TTL,
        advertisement: None,
        timeout: TIMEOUT,
    }
}

/// The next write of the term that `created` began.
fn renewal(nonce: u64, number: u64, created: Revision) -> Write {
    let create = entry(nonce, number, Some(created));
    Write { mark: Mark { token: Some(created.into()), ..create.mark }, ..create }
}

fn living(life: Duration, write: Write) -> Write {
    Write { ttl: life, ..write }
}

fn within(timeout: Duration, write: Write) -> Write {
    Write { timeout, ..write }
}

fn release(nonce: u64, expected: Revision) -> Release {
    Release {
        expected,
        by: Nonce(nonce),
        left: Duration::from_millis(1_500),
        cause: "resigned",
        to: None,
        pause: None,
        timeout: TIMEOUT,
    }
}

async fn read(lock: &NatsLock, name: &str) -> Result<Reading, LockError> {
    lock.read(name, TIMEOUT).await
}

async fn found(lock: &NatsLock, name: &str) -> Record {
    match read(lock, name).await.unwrap() {
        Reading::Found(record) => record,
        empty @ Reading::Empty { .. } => panic!("{name}: {empty:?}"),
    }
}

async fn held(lock: &NatsLock, name: &str) -> (Revision, Entry) {
    match found(lock, name).await {
        Record { revision, content: Content::Held(entry) } => (revision, entry),
        vacant => panic!("{name}: {vacant:?}"),
    }
}

/// The options of a user whose password is its name after `pw-`.
fn user(name: &str) -> async_nats::ConnectOptions {
    client_options().user_and_password(name.to_owned(), format!("pw-{name}"))
}

/// A client of that user.
async fn client_of(name: &str, url: String) -> async_nats::Client {
    connected(|| user(name).connect(&url)).await
}

/// Asks the server something in JetStream's own words.
async fn api(
    client: &async_nats::Client,
    verb: &str,
    body: serde_json::Value,
) -> serde_json::Value {
    asked(client, verb, body).await.unwrap()
}

/// The answer to that, if there is one in time.
async fn asked(
    client: &async_nats::Client,
    verb: &str,
    body: serde_json::Value,
) -> Option<serde_json::Value> {
    let answer = client.request(format!("$JS.API.{verb}"), body.to_string().into()).await.ok()?;
    Some(serde_json::from_slice(&answer.payload).unwrap())
}

/// The hints of one election, in their order.
struct Hints {
    hints: mpsc::UnboundedReceiver<Hint>,
    _subscription: Subscription,
}

impl Hints {
    fn of(lock: &NatsLock, name: &str) -> Self {
        let (sender, hints) = mpsc::unbounded_channel();
        let sink = HintSink::new(move |hint| drop(sender.send(hint)));
        Self { hints, _subscription: lock.subscribe(name, sink) }
    }

    /// Drops hints until one that is wanted.
    async fn until<T>(&mut self, what: &str, mut wanted: impl FnMut(&Hint) -> Option<T>) -> T {
        let mut others = Vec::new();
        let wait = tokio::time::timeout(TIMEOUT, async {
            loop {
                let hint = self.hints.recv().await.expect("hints have ended");
                match wanted(&hint) {
                    Some(wanted) => return wanted,
                    None => others.push(hint),
                }
            }
        });
        match wait.await {
            Ok(wanted) => wanted,
            Err(_) => panic!("no {what} hints, but {others:?}"),
        }
    }

    async fn coverage(&mut self, coverage: incumbent::lock::Coverage) {
        self.until(&format!("{coverage:?}"), |hint| {
            (*hint == Hint::Coverage(coverage)).then_some(())
        })
        .await;
    }

    async fn look(&mut self) {
        self.until("look", |hint| (*hint == Hint::Recheck).then_some(())).await;
    }

    async fn stored(&mut self) -> (Record, Option<Option<Revision>>) {
        self.until("write", |hint| match hint {
            Hint::Stored { record, previous, .. } => Some((record.clone(), *previous)),
            _ => None,
        })
        .await
    }
}
