//! `kv put`, `create` and `update`.

use std::io::Read;

use async_nats::jetstream::kv;
use clap::Args;
use serde_json::json;

use crate::error::{CliError, Code};
use crate::nats::Session;
use crate::output::{self, Format};

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

/// Write a value unless the key has one, and print its revision.
#[derive(Args)]
pub struct Create {
    /// The bucket.
    bucket: String,
    /// The key.
    pub key: String,
    /// The value; read from standard input if it is missing or `-`.
    value: Option<String>,
}

/// Replace the value of a revision, and print the new revision.
#[derive(Args)]
pub struct Update {
    /// The bucket.
    bucket: String,
    /// The key.
    pub key: String,
    /// The value; read from standard input if it is `-`.
    value: String,
    /// The revision to replace, which must be the last one.
    revision: u64,
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

impl Create {
    pub async fn run(self, session: &Session, format: Format) -> Result<(), CliError> {
        let value = value(self.value)?;
        let doing = format!("creation of {} > {}", self.bucket, self.key);
        let store = session.store(&self.bucket).await?;
        let create = async {
            match store.create(&self.key, value.into()).await {
                Ok(revision) => Ok(revision),
                Err(error) if error.kind() == kv::CreateErrorKind::AlreadyExists => {
                    let hint = "see `kv get`, or replace it with `kv put` or `kv update`";
                    let message = format!("{doing}: already exists; {hint}");
                    Err(CliError::new(Code::Failed, message))
                }
                Err(error) => Err(CliError::from_request(&doing, &error)),
            }
        };
        let revision = session.wait(&doing, crate::nats::Bounded::Yes, create).await?;
        done(format, &self.bucket, &self.key, revision)
    }
}

impl Update {
    pub async fn run(self, session: &Session, format: Format) -> Result<(), CliError> {
        let value = value(Some(self.value))?;
        let doing = format!("update of {} > {}", self.bucket, self.key);
        let store = session.store(&self.bucket).await?;
        let update = store.update(&self.key, value.into(), self.revision);
        let revision = session.request(&doing, update).await?;
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
        Format::Table => output::line(revision),
        Format::Json => output::json(&json!({"bucket": bucket, "key": key, "revision": revision})),
    }
}
