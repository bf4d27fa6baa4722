//! `kv get` and `keys`.

use clap::Args;
use futures_util::TryStreamExt;

use super::entry::Entry;
use crate::error::{CliError, Code};
use crate::nats::{Bounded, Session};
use crate::output::{self, Format};
use crate::text;
use crate::time_format;

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
