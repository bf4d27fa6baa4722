//! The elections of a NATS bucket. `docs/nats.md` describes the headers.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv;
use async_nats::{HeaderMap, Message, Subscriber};
use futures_util::{StreamExt, TryStreamExt, stream};
use incumbent::lock::Lock;
use incumbent::lock_url::NatsBucket;
use incumbent::nats::{self, Bucket, Finding};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::status::{ElectionStatus, LeaderStatus, Position};
use super::watcher::{Hint, Update};
use crate::error::{CliError, Code};
use crate::lock_args::check_name;
use crate::nats::Session;
use crate::text::one_line;
use crate::time_format;

/// How many entries are read concurrently.
const READS: usize = 32;

/// The most stored writes of one election that are read; a key-value bucket has 64 at most.
const MAX_STORED: usize = 1000;

/// How many elections are sampled for entries without a mark.
const SAMPLE: usize = 200;

/// The elections whose holder has no mark of this library, among the first ones of a bucket.
pub async fn unmarked(session: &Session, bucket: &NatsBucket) -> Result<Vec<String>, CliError> {
    let store = session.store(&bucket.bucket).await?;
    let elections = NatsElections { session: session.clone(), bucket: bucket.clone(), store };
    let mut names = elections.names().await?;
    names.truncate(SAMPLE);
    let reads = stream::iter(&names).map(|name| elections.read(name)).buffered(READS);
    let found: Vec<Option<ElectionStatus>> = reads.try_collect().await?;
    let foreign =
        |status: &ElectionStatus| status.holder().is_some_and(|holder| holder.token.is_none());
    Ok(found.into_iter().flatten().filter(foreign).map(|status| status.election).collect())
}

/// The elections of a bucket.
pub struct NatsElections {
    pub session: Session,
    bucket: NatsBucket,
    store: kv::Store,
}

/// A plain subscription to the stored writes, if the bucket republishes them.
pub struct NatsWatcher {
    messages: Subscriber,
    stream: String,
    /// The prefix of the subjects, and whether only stored writes arrive.
    prefix: String,
    stored: bool,
}

impl NatsElections {
    pub async fn open(bucket: NatsBucket) -> Result<Self, CliError> {
        let session = Session::connect(&bucket.connection).await?;
        let store = session.store(&bucket.bucket).await?;
        Ok(Self { session, bucket, store })
    }

    pub fn bucket(&self) -> &str {
        &self.bucket.bucket
    }

    /// When the bucket was created.
    pub fn created(&self) -> OffsetDateTime {
        self.store.stream.cached_info().created
    }

    /// The maximum lease of the bucket, if it has one.
    pub fn ttl(&self) -> Option<Duration> {
        let config = &self.store.stream.cached_info().config;
        let spans = [Some(config.max_age), config.subject_delete_marker_ttl];
        spans.into_iter().flatten().filter(|span| !span.is_zero()).max()
    }

    /// The problems of the bucket.
    pub async fn findings(&self) -> Result<Vec<Finding>, CliError> {
        let bucket = Bucket::deferred(self.session.connection(), self.bucket.config())?;
        Ok(bucket.health().await?)
    }

    /// The lock, for roll calls: it needs no request to the server.
    pub fn deferred(&self) -> Result<Arc<dyn Lock>, CliError> {
        let bucket = Bucket::deferred(self.session.connection(), self.bucket.config())?;
        Ok(Arc::new(bucket.lock()))
    }

    /// The lock, for what changes an election: it has the TTL of the bucket.
    pub async fn lock(&self) -> Result<Arc<dyn Lock>, CliError> {
        let bucket = Bucket::open_with(self.session.connection(), self.bucket.config()).await?;
        Ok(Arc::new(bucket.lock()))
    }

    /// The names that have or had an entry.
    async fn names(&self) -> Result<Vec<String>, CliError> {
        let asked = json!({"subjects_filter": format!("$KV.{}.>", self.bucket())});
        let subject = format!("STREAM.INFO.KV_{}", self.bucket());
        let doing = format!("bucket {}", self.bucket());
        let info: Value = self.session.api(&doing, &subject, &asked).await?;
        let subjects = info.pointer("/state/subjects").and_then(Value::as_object);
        let prefix = format!("$KV.{}.", self.bucket());
        let mut names: Vec<String> = (subjects.into_iter().flatten())
            .filter_map(|(subject, _)| subject.strip_prefix(&prefix).map(str::to_owned))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The last revision of the bucket, and how many keys it has.
    pub async fn position(&self) -> Result<Option<Position>, CliError> {
        let (doing, subject) =
            (format!("bucket {}", self.bucket()), format!("STREAM.INFO.KV_{}", self.bucket()));
        let info: Value = self.session.api(&doing, &subject, &json!({})).await?;
        let number = |field| info.pointer(field).and_then(Value::as_u64);
        let (last, entries) = (number("/state/last_seq"), number("/state/num_subjects"));
        // An empty bucket has no field for the number of its keys.
        Ok(last.map(|last| Position { last, entries: entries.unwrap_or_default() }))
    }

    /// The last write to an election, read from the leader of the stream; `None` if there is none.
    pub async fn read(&self, name: &str) -> Result<Option<ElectionStatus>, CliError> {
        let subject = format!("$KV.{}.{name}", self.bucket());
        let doing = format!("election {name}");
        let last = self.store.stream.get_last_raw_message_by_subject(&subject);
        match self.session.request(&doing, last).await {
            // A name with a wildcard is none of an election.
            Ok(message) if message.subject.as_str() != subject => Ok(None),
            Ok(message) => Ok(Some(of_message(
                name,
                message.sequence,
                message.time,
                &message.headers,
                &message.payload,
            ))),
            Err(CliError::Message { code: Code::NotFound, .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// How many writes of an election the bucket stores at most.
    pub fn history(&self) -> i64 {
        self.store.stream.cached_info().config.max_messages_per_subject
    }

    /// All writes to an election that the bucket still stores, in their order.
    ///
    /// Reads one after the other, as an observer may: a consumer would need more rights.
    pub async fn stored(&self, name: &str) -> Result<Vec<ElectionStatus>, CliError> {
        let (subject, doing) =
            (format!("$KV.{}.{name}", self.bucket()), format!("election {name}"));
        let mut stored: Vec<ElectionStatus> = Vec::new();
        while stored.len() < MAX_STORED {
            let next = stored.last().map_or(1, |last| last.revision.saturating_add(1));
            let next = self.store.stream.get_first_raw_message_by_subject(&subject, next);
            let message = match self.session.request(&doing, next).await {
                Ok(message) => message,
                Err(CliError::Message { code: Code::NotFound, .. }) => break,
                Err(failure) => return Err(failure),
            };
            let (sequence, time) = (message.sequence, message.time);
            if stored.last().is_some_and(|last| last.revision >= sequence) {
                break; // never, from a server that keeps its order
            }
            stored.push(of_message(name, sequence, time, &message.headers, &message.payload));
        }
        Ok(stored)
    }

    /// All elections, sorted by name.
    pub async fn list(&self) -> Result<Vec<ElectionStatus>, CliError> {
        let names = self.names().await?;
        let read = |name: String| async move { self.read(&name).await };
        let reads = stream::iter(names).map(read).buffered(READS);
        reads.try_filter_map(async |status| Ok(status)).try_collect().await
    }

    /// Watches one election, or all.
    pub async fn watch(&self, only: Option<&str>) -> Result<NatsWatcher, CliError> {
        let bucket = self.bucket();
        let info = self.store.stream.cached_info();
        let repeated = info.config.republish.as_ref().map(|repeat| repeat.destination.clone());
        let stored = repeated.is_some();
        let all = repeated.unwrap_or_else(|| format!("$KV.{bucket}.>"));
        let prefix = all.strip_suffix('>').unwrap_or(&all).to_owned();
        let subject = only.map_or(all, |name| format!("{prefix}{name}"));
        let messages = self.session.client().subscribe(subject).await.map_err(|error| {
            CliError::new(Code::Failed, format!("watch of bucket {bucket}: {}", one_line(&error)))
        })?;
        Ok(NatsWatcher { messages, stream: format!("KV_{bucket}"), prefix, stored })
    }
}

impl NatsWatcher {
    /// Whether every stored change is reported.
    pub fn reports_every_change(&self) -> bool {
        self.stored
    }

    /// Cancel safe.
    pub async fn next(&mut self) -> Update {
        loop {
            let Some(message) = self.messages.next().await else {
                let message = "the connection to the server was closed";
                return Update::Failed(CliError::new(Code::Unreachable, message));
            };
            if !self.stored {
                return Update::Recheck; // received before it is stored or refused
            }
            if let Some(hint) = self.hint_of(&message) {
                return Update::Hint(hint);
            }
        }
    }

    fn hint_of(&self, message: &Message) -> Option<Hint> {
        let headers = message.headers.as_ref()?;
        let header = |name: &str| headers.get(name).map(|value| value.as_str());
        // Step-down notices arrive here too, and are not stored.
        if header("Nats-Stream") != Some(&self.stream) {
            return None;
        }
        let number = |name| header(name).and_then(|text| text.parse::<u64>().ok());
        let revision = number("Nats-Sequence")?;
        let previous = number("Nats-Last-Sequence").filter(|previous| *previous > 0);
        let name = message.subject.as_str().strip_prefix(&self.prefix)?;
        check_name(name).ok()?;
        let now = OffsetDateTime::now_utc();
        let time = header("Nats-Time-Stamp").and_then(time_format::parse).unwrap_or(now);
        let status = of_message(name, revision, time, headers, &message.payload);
        Some(Hint { status, previous })
    }
}

/// Decodes the message of an entry.
fn of_message(
    election: &str,
    revision: u64,
    written: OffsetDateTime,
    headers: &HeaderMap,
    value: &[u8],
) -> ElectionStatus {
    let state = LeaderStatus::of(nats::decode(headers, value), revision, true);
    ElectionStatus { election: election.to_owned(), revision, written: Some(written), state }
}
