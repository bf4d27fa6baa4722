//! The settings of the bucket, and its writers.

use std::collections::{HashMap, HashSet};

use async_nats::jetstream::message::StreamMessage;
use incumbent::nats::Bucket;
use serde_json::Value;

use super::report::{Level, Report};
use crate::error::{CliError, Code};
use crate::lock::nats::Session;
use incumbent::lock_url::NatsBucket;

/// The maximum number of messages that are read.
const MAX_MESSAGES: usize = 1_000;

/// The library's own findings about the bucket.
pub async fn health(session: &Session, bucket: &NatsBucket, report: &mut Report) {
    const CHECK: &str = "bucket";
    let bucket = Bucket::deferred(session.connection(), bucket.config());
    let found = async { Ok::<_, CliError>(bucket?.health().await?) };
    match found.await {
        Ok(findings) if findings.is_empty() => report.ok(CHECK, "its settings fit elections"),
        Ok(found) => {
            found.iter().for_each(|finding| report.diagnosed(CHECK, finding, Level::Warning));
        }
        Err(failure) => report.error(CHECK, failure.to_string()),
    }
}

/// Looks for two candidates with the same identity that alternate.
pub async fn identities(session: &Session, bucket: &str, info: &Value, report: &mut Report) {
    const CHECK: &str = "identities";
    let kept = info.pointer("/config/max_msgs_per_subject").and_then(Value::as_i64);
    if kept == Some(1) {
        return report.unknown(
            CHECK,
            "the bucket keeps the last write of each election only, so duplicate identities cannot be detected",
        );
    }
    match duplicates(session, bucket).await {
        Ok(found) if found.is_empty() => {
            report.ok(CHECK, format!("no duplicate identities in the last {MAX_MESSAGES} writes"));
        }
        Ok(found) => {
            report.warning(
                CHECK,
                format!(
                    "two candidates share the identity {}; give each its own --identity",
                    found.join(", and ")
                ),
            );
        }
        Err(failure) => report.unknown(CHECK, format!("cannot read the writes: {failure}")),
    }
}

/// Identities with which one process wrote, then another one, then the first one again. A restarted
/// process has a new number, and never writes with the former one.
async fn duplicates(session: &Session, bucket: &str) -> Result<Vec<String>, CliError> {
    let stream = session.store(bucket).await?.stream;
    let last = stream.cached_info().state.last_sequence;
    let operation = format!("bucket {bucket}");
    // By subject and identity: the last writer, and the writers before it.
    let mut writers: HashMap<(String, String), (String, HashSet<String>)> = HashMap::new();
    let mut found = Vec::new();
    let mut next = last.saturating_sub(MAX_MESSAGES as u64).max(1);
    for _ in 0..=MAX_MESSAGES {
        let message = stream
            .raw_message_builder()
            .sequence(next)
            .next_by_subject(format!("$KV.{bucket}.>"))
            .send();
        let message = match session.request(&operation, message).await {
            Ok(message) => message,
            Err(CliError::Message { code: Code::NotFound, .. }) => break,
            Err(failure) => return Err(failure),
        };
        next = message.sequence + 1;
        let Some((identity, writer)) = signature(&message) else { continue };
        let seen = writers.entry((message.subject.to_string(), identity.clone())).or_default();
        if seen.0 != writer {
            let before = std::mem::replace(&mut seen.0, writer.clone());
            let election = message.subject.trim_start_matches(&format!("$KV.{bucket}.")).to_owned();
            let name = format!("{identity:?} in {election}");
            if seen.1.contains(&writer) && !found.contains(&name) {
                found.push(name);
            }
            seen.1.insert(before);
        }
    }
    Ok(found)
}

/// The identity and the process number of a write that has both.
fn signature(message: &StreamMessage) -> Option<(String, String)> {
    let write = message.headers.get("Incumbent-Write")?.as_str();
    let (writer, _) = write.split_once('-')?;
    let identity = String::from_utf8_lossy(&message.payload).into_owned();
    Some((identity, writer.to_owned()))
}
