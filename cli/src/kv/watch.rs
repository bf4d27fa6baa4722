//! `kv watch`.

use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use tokio::time::Instant;

use super::entry::Entry;
use crate::error::{CliError, Code};
use crate::nats::{Bounded, Session};
use crate::output::{self, Format};
use crate::text;
use crate::time_format;

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
            () = until(end) => match (self.once, limit) {
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

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}
