//! `kv put`.

use std::io::Read;

use clap::Args;
use serde_json::json;

use crate::error::CliError;
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
