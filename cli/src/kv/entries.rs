//! `kv get`, `keys`, `put`, `del` and `watch`: entries, as the stream stores them.

use std::io::Read;
use std::time::Duration;

use async_nats::jetstream::kv;
use async_nats::jetstream::message::StreamMessage;
use clap::Args;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::error::{CliError, Code};
use crate::lock::nats::{Bounded, Session};
use crate::output::text::{self, is_printable};
use crate::output::{self, Format};
use crate::output::{confirm, time_format};

/// One value of a key, or the marker of its deletion.
pub struct Entry {
    pub bucket: String,
    pub key: String,
    pub value: Vec<u8>,
    pub revision: u64,
    pub created: OffsetDateTime,
    pub operation: &'static str,
}

impl Entry {
    /// Parses a message of a bucket's stream; `None` for another subject.
    pub fn read(bucket: &str, message: &StreamMessage) -> Option<Self> {
        let key = message.subject.as_str().strip_prefix(&format!("$KV.{bucket}."))?;
        let header = |name: &str| message.headers.get(name).map(|value| value.as_str());
        let operation = match (header("KV-Operation"), header("Nats-Marker-Reason")) {
            (Some("DEL"), _) | (None, Some("Remove")) => "DEL",
            (Some("PURGE"), _) | (None, Some("Purge")) => "PURGE",
            (None, Some("MaxAge")) => "EXPIRED",
            _ => "PUT",
        };
        Some(Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            value: message.payload.to_vec(),
            revision: message.sequence,
            created: message.time,
            operation,
        })
    }

    pub fn is_there(&self) -> bool {
        self.operation == "PUT"
    }

    pub fn json(&self) -> Value {
        let mut entry = json!({
            "bucket": self.bucket,
            "key": self.key,
            "revision": self.revision,
            "created": time_format::rfc3339(self.created),
            "operation": self.operation,
        });
        let (name, value) = match std::str::from_utf8(&self.value) {
            Ok(text) => ("value", text.to_owned()),
            Err(_) => ("value_base64", base64(&self.value)),
        };
        if let Some(fields) = entry.as_object_mut() {
            fields.insert(name.to_owned(), value.into());
        }
        entry
    }

    /// The value as text that is safe on a terminal: Base64 if it is not printable.
    pub fn text(&self) -> String {
        match std::str::from_utf8(&self.value) {
            Ok(text) if text.split(['\n', '\t']).all(is_printable) => text.to_owned(),
            _ => base64(&self.value),
        }
    }
}

impl From<kv::Entry> for Entry {
    fn from(entry: kv::Entry) -> Self {
        Self {
            bucket: entry.bucket,
            key: entry.key,
            value: entry.value.to_vec(),
            revision: entry.revision,
            created: entry.created,
            operation: match entry.operation {
                kv::Operation::Put => "PUT",
                kv::Operation::Delete => "DEL",
                kv::Operation::Purge => "PURGE",
            },
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Print the value of a key.
#[derive(Args)]
pub struct Get {
    /// The bucket.
    bucket: String,
    /// The key.
    pub key: String,
    /// Print only the value, byte for byte.
    #[arg(long)]
    raw: bool,
    /// Print the value of this revision, if the bucket still has it.
    #[arg(long)]
    revision: Option<u64>,
}

/// List the keys of a bucket.
#[derive(Args)]
pub struct Keys {
    /// The bucket.
    bucket: String,
}

impl Get {
    pub async fn run(self, session: &Session, format: Format) -> Result<(), CliError> {
        let entry = self.read(session).await?;
        if self.raw {
            return output::bytes(&entry.value);
        }
        if format == Format::Json {
            return output::json(&entry.json());
        }
        let Entry { bucket, key, revision, created, .. } = &entry;
        let created = time_format::rfc822(*created);
        output::line(format!("{bucket} > {key} sequence {revision} created @ {created}\n"))?;
        output::line(entry.text())
    }

    /// Reads from the leader of the stream: a replica may return an older value.
    async fn read(&self, session: &Session) -> Result<Entry, CliError> {
        let Self { bucket, key, .. } = self;
        let doing = format!("{bucket} > {key}");
        let stream = session.store(bucket).await?.stream;
        let message = match self.revision {
            Some(revision) => session.request(&doing, stream.get_raw_message(revision)).await?,
            None => {
                let subject = format!("$KV.{bucket}.{key}");
                session.request(&doing, stream.get_last_raw_message_by_subject(&subject)).await?
            }
        };
        match Entry::read(bucket, &message) {
            Some(entry) if entry.key == *key && (entry.is_there() || self.revision.is_some()) => {
                Ok(entry)
            }
            Some(entry) if entry.key == *key => {
                let how = match entry.operation {
                    "EXPIRED" => "it expired",
                    _ => "it was deleted",
                };
                Err(CliError::new(Code::NotFound, format!("{doing}: no value: {how}")))
            }
            _ => {
                let message =
                    format!("{doing}: revision {} belongs to another key", message.sequence);
                Err(CliError::new(Code::NotFound, message))
            }
        }
    }
}

impl Keys {
    pub async fn run(self, session: &Session, format: Format) -> Result<(), CliError> {
        let doing = format!("keys of bucket {}", self.bucket);
        let store = session.store(&self.bucket).await?;
        let mut keys: Vec<String> = session
            .wait(&doing, Bounded::No, async {
                let keys = store.keys().await.map_err(|e| CliError::from_request(&doing, &e))?;
                keys.try_collect().await.map_err(|e| CliError::from_request(&doing, &e))
            })
            .await?;
        keys.sort_unstable();
        if format == Format::Json {
            return output::json(&keys);
        }
        keys.iter().try_for_each(|key| output::line(text::printable(key)))
    }
}

/// Write a value, and print its revision.
#[derive(Args)]
pub struct Put {
    /// The bucket.
    bucket: String,
    /// The key.
    pub key: String,
    /// The value; read from standard input if it is missing or `-`.
    value: Option<String>,
}

impl Put {
    pub async fn run(self, session: &Session, format: Format) -> Result<(), CliError> {
        let value = value(self.value)?;
        let doing = format!("write of {} > {}", self.bucket, self.key);
        let store = session.store(&self.bucket).await?;
        let revision = session.request(&doing, store.put(&self.key, value.into())).await?;
        done(format, &self.bucket, &self.key, revision)
    }
}

fn value(argument: Option<String>) -> Result<Vec<u8>, CliError> {
    match argument {
        Some(value) if value != "-" => Ok(value.into_bytes()),
        _ => {
            let mut value = Vec::new();
            std::io::stdin().lock().read_to_end(&mut value)?;
            Ok(value)
        }
    }
}

fn done(format: Format, bucket: &str, key: &str, revision: u64) -> Result<(), CliError> {
    match format {
        Format::Text => output::line(revision),
        Format::Json => output::json(&json!({"bucket": bucket, "key": key, "revision": revision})),
    }
}

/// Delete a key, or a whole bucket.
///
/// Deleting the key of an election evicts its leader, as `incumbent election evict` does, which
/// also reports the successor.
#[derive(Args)]
pub struct Del {
    /// The bucket.
    bucket: String,
    /// The key; without it the bucket and all its entries are deleted.
    pub key: Option<String>,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    force: bool,
}

impl Del {
    pub async fn run(self, session: &Session) -> Result<(), CliError> {
        let Self { bucket, key, force } = self;
        let Some(key) = key else { return delete_bucket(session, &bucket, force).await };
        let doing = format!("{bucket} > {key}");
        let store = session.store(&bucket).await?;
        let subject = format!("$KV.{bucket}.{key}");
        let last = store.stream.get_last_raw_message_by_subject(&subject);
        let last = session.request(&doing, last).await?;
        if !Entry::read(&bucket, &last).is_some_and(|entry| entry.is_there()) {
            let message = format!("{doing}: no value: it was already deleted");
            return Err(CliError::new(Code::NotFound, message));
        }
        confirm(&format!("Delete {doing}"), force)?;
        session.request(&format!("deletion of {doing}"), store.delete(&key)).await?;
        output::note(format!("deleted {doing}"));
        Ok(())
    }
}

async fn delete_bucket(session: &Session, bucket: &str, force: bool) -> Result<(), CliError> {
    let info = session.info(bucket).await?;
    let messages = info.pointer("/state/messages").and_then(Value::as_u64).unwrap_or_default();
    let question = format!("Delete bucket {bucket} with all {messages} entries");
    confirm(&question, force)?;
    let doing = format!("deletion of bucket {bucket}");
    let subject = format!("STREAM.DELETE.KV_{bucket}");
    let _: Value = session.api(&doing, &subject, &json!({})).await?;
    output::note(format!("deleted bucket {bucket}"));
    Ok(())
}

/// Print the values of a bucket, and each change as it happens, until interrupted.
///
/// With --timeout, stop after that time.
#[derive(Args)]
pub struct Watch {
    /// The bucket.
    bucket: String,
    /// The key, or a pattern of keys with `*` and `>`.
    #[arg(default_value = ">")]
    key: String,
    /// Stop after the first value; with --timeout, fail if no value arrives in time.
    #[arg(long)]
    once: bool,
    /// Print changes only, not the current values.
    #[arg(long)]
    updates_only: bool,
}

impl Watch {
    pub async fn run(
        self,
        session: &Session,
        format: Format,
        limit: Option<Duration>,
    ) -> Result<(), CliError> {
        let doing = format!("watch of {} > {}", self.bucket, self.key);
        let store = session.store(&self.bucket).await?;
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let watch = async {
            let watch = match self.updates_only {
                true => store.watch(&self.key).await,
                false => store.watch_with_history(&self.key).await,
            };
            let mut watch = watch.map_err(|error| CliError::from_request(&doing, &error))?;
            while let Some(entry) = watch.next().await {
                match entry {
                    Ok(entry) => print(&entry.into(), format)?,
                    Err(error) => return Err(CliError::from_request(&doing, &error)),
                }
                if self.once {
                    break;
                }
            }
            Ok(())
        };
        tokio::select! {
            answer = session.wait(&doing, Bounded::No, watch) => answer,
            () = time_format::until(end) => match (self.once, limit) {
                (true, Some(limit)) => {
                    let message = format!("{doing}: no value within {}", time_format::span(limit));
                    Err(CliError::new(Code::Failed, message))
                }
                _ => Ok(()),
            },
        }
    }
}

fn print(entry: &Entry, format: Format) -> Result<(), CliError> {
    if format == Format::Json {
        return output::json_line(&entry.json());
    }
    let Entry { bucket, key, operation, revision, .. } = entry;
    let (created, key) = (time_format::rfc3339(entry.created), text::printable(key));
    let value = match entry.is_there() {
        true => format!(": {}", text::printable(&entry.text())),
        false => String::new(),
    };
    output::line(format!("[{created}] {operation} {bucket} > {key} sequence {revision}{value}"))
}
