//! `kv del`.

use clap::Args;
use serde_json::{Value, json};

use super::entry::Entry;
use crate::error::{CliError, Code};
use crate::nats::Session;
use crate::{output, prompt};

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
        prompt::confirm(&format!("Delete {doing}"), force)?;
        session.request(&format!("deletion of {doing}"), store.delete(&key)).await?;
        output::note(format!("deleted {doing}"));
        Ok(())
    }
}

async fn delete_bucket(session: &Session, bucket: &str, force: bool) -> Result<(), CliError> {
    let info = session.info(bucket).await?;
    let messages = info.pointer("/state/messages").and_then(Value::as_u64).unwrap_or_default();
    let question = format!("Delete bucket {bucket} with all {messages} entries");
    prompt::confirm(&question, force)?;
    let doing = format!("deletion of bucket {bucket}");
    let subject = format!("STREAM.DELETE.KV_{bucket}");
    let _: Value = session.api(&doing, &subject, &json!({})).await?;
    output::note(format!("deleted bucket {bucket}"));
    Ok(())
}
