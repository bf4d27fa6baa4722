//! The bucket's settings, and who writes in it.

use std::collections::{HashMap, HashSet};

use async_nats::jetstream::message::StreamMessage;
use incumbent::nats::{Finding, Severity};
use serde_json::Value;

use super::report::{Level, Report};
use crate::error::{CliError, Code};
use crate::nats::{BucketArgs, Session};

/// The most messages that are read.
const MOST: usize = 1_000;

/// What the library itself finds in the bucket.
pub async fn health(session: &Session, bucket: &BucketArgs, report: &mut Report) {
    const CHECK: &str = "bucket";
    match bucket.health(session).await {
        Ok(findings) if findings.is_empty() => {
            report.ok(CHECK, "its settings are as elections need them")
        }
        Ok(findings) => findings.iter().for_each(|finding| {
            let level = match (finding, finding.severity()) {
                (Finding::Unread, _) => Level::Unknown,
                (_, Severity::Critical) => Level::Error,
                _ => Level::Warning,
            };
            report.find(level, CHECK, finding.to_string());
        }),
        Err(failure) => report.error(CHECK, failure.to_string()),
    }
}

/// Looks for two campaigners of one name that take turns.
pub async fn identities(session: &Session, bucket: &str, info: &Value, report: &mut Report) {
    const CHECK: &str = "identities";
    let kept = info.pointer("/config/max_msgs_per_subject").and_then(Value::as_i64);
    if kept == Some(1) {
        return report.unknown(
            CHECK,
            "the bucket keeps the last write of each election only, so two campaigners of one name do not show",
        );
    }
    match duplicates(session, bucket).await {
        Ok(found) if found.is_empty() => {
            report.ok(CHECK, format!("no two campaigners of one name in the last {MOST} writes"));
        }
        Ok(found) => {
            report.warning(
                CHECK,
                format!(
                    "two campaigners are both called {}; give each its own --identity",
                    found.join(", and ")
                ),
            );
        }
        Err(failure) => report.unknown(CHECK, format!("the writes cannot be read: {failure}")),
    }
}

/// Names under which a campaigner wrote again after another of that name did. One that is started anew never comes back:
/// each campaigner has a number of its own.
async fn duplicates(session: &Session, bucket: &str) -> Result<Vec<String>, CliError> {
    let stream = session.store(bucket).await?.stream;
    let last = stream.cached_info().state.last_sequence;
    let doing = format!("bucket {bucket}");
    // By subject and identity: who wrote last, and who did before.
    let mut writers: HashMap<(String, String), (String, HashSet<String>)> = HashMap::new();
    let mut found = Vec::new();
    let mut next = last.saturating_sub(MOST as u64).max(1);
    for _ in 0..=MOST {
        let message = stream
            .raw_message_builder()
            .sequence(next)
            .next_by_subject(format!("$KV.{bucket}.>"))
            .send();
        let message = match session.request(&doing, message).await {
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
            let told = format!("{identity:?} in {election}");
            if seen.1.contains(&writer) && !found.contains(&told) {
                found.push(told);
            }
            seen.1.insert(before);
        }
    }
    Ok(found)
}

/// The name of the leader, and the number of the campaigner, of a write that has both.
fn signature(message: &StreamMessage) -> Option<(String, String)> {
    let write = message.headers.get("Incumbent-Write")?.as_str();
    let (writer, _) = write.split_once('-')?;
    let identity = String::from_utf8_lossy(&message.payload).into_owned();
    Some((identity, writer.to_owned()))
}
