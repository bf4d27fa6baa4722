//! Whether Choria's candidates take part in the elections of a bucket, and whether that was said.

use serde_json::Value;

use super::report::Report;
use crate::elections::unmarked;
use crate::nats::{BucketArgs, Session};

const CHECK: &str = "choria";

/// The most names of elections that are repeated.
const MOST_NAMED: usize = 3;

/// What a broker of Choria allows in a message of the bucket that it makes.
const LARGEST_MESSAGE: i64 = 1024;

const MEND: &str = "where Choria's candidates take part, give every candidate --with-choria, or ?with-choria in the URL \
                    (with_choria() in code), and this check too; else see who writes there";

/// Looks at the entries and at the bucket. `told`: it was said that they take part.
pub async fn check(
    session: &Session,
    bucket: &BucketArgs,
    info: &Value,
    told: bool,
    report: &mut Report,
) {
    let made = if is_made_by_choria(info) { "Choria made the bucket" } else { "" };
    let found = match unmarked(session, bucket).await {
        Ok(found) => found,
        Err(failure) => {
            return report.unknown(CHECK, format!("the entries cannot be read: {failure}"));
        }
    };
    let entries = match found.as_slice() {
        [] => String::new(),
        found => {
            let more = found.len().saturating_sub(MOST_NAMED);
            let named = found.iter().take(MOST_NAMED).map(|name| format!("{name:?}"));
            let named = named.collect::<Vec<_>>().join(", ");
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("the entry of {named}{more} has no mark of this library")
        }
    };
    let seen: Vec<&str> = [made, &entries].into_iter().filter(|said| !said.is_empty()).collect();
    let seen = seen.join(", and ");
    match (told, seen.is_empty()) {
        (_, true) => report.ok(CHECK, "no trace of Choria's candidates"),
        (true, false) => report.ok(CHECK, format!("{seen}, as --with-choria or its URL says")),
        (false, false) => report.warning(CHECK, format!("{seen}: {MEND}")),
    }
}

/// A bucket as Choria's broker makes it: small messages, no lives of their own, nothing repeated.
fn is_made_by_choria(info: &Value) -> bool {
    let config = |field: &str| info.pointer(&format!("/config/{field}"));
    config("max_msg_size").and_then(Value::as_i64) == Some(LARGEST_MESSAGE)
        && config("allow_msg_ttl").and_then(Value::as_bool) != Some(true)
        && config("republish").is_none_or(Value::is_null)
}
