//! Whether Choria's candidates take part in the elections of a bucket, and whether this is
//! configured.

use futures_util::{StreamExt, TryStreamExt, stream};
use incumbent::lock::{ElectionRecord, LockAdmin};
use incumbent::lock_url::NatsBucket;
use incumbent::nats::Bucket;
use serde_json::Value;

use super::report::Report;
use crate::error::CliError;
use crate::lock::nats::Session;

const CHECK: &str = "choria";

/// How many elections are read, and how many of them at the same time.
const SAMPLE: usize = 200;
const READS: usize = 32;

/// The maximum number of names in a message.
const MAX_NAMES: usize = 3;

/// The maximum message size of a bucket that Choria's broker creates.
const CHORIA_MAX_MESSAGE: i64 = 1024;

const FIX: &str = "if Choria's candidates take part, give every candidate --with-choria, or ?with-choria in the URL \
                    (with_choria() in code), and this check too; else find out which program writes there";

/// Checks the entries and the bucket. `configured`: `with-choria` is set, or the bucket states it.
pub async fn check(
    session: &Session,
    bucket: &NatsBucket,
    info: &Value,
    configured: bool,
    report: &mut Report,
) {
    let created = if is_created_by_choria(info) { "Choria created the bucket" } else { "" };
    let found = match unmarked(session, bucket).await {
        Ok(found) => found,
        Err(failure) => {
            return report.unknown(CHECK, format!("cannot read the entries: {failure}"));
        }
    };
    let entries = match found.as_slice() {
        [] => String::new(),
        found => {
            let more = found.len().saturating_sub(MAX_NAMES);
            let named = found.iter().take(MAX_NAMES).map(|name| format!("{name:?}"));
            let named = named.collect::<Vec<_>>().join(", ");
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("the entry of {named}{more} has no mark of this library")
        }
    };
    let seen: Vec<&str> = [created, &entries].into_iter().filter(|part| !part.is_empty()).collect();
    let seen = seen.join(", and ");
    match (configured, seen.is_empty()) {
        (_, true) => report.ok(CHECK, "no candidate of Choria found"),
        (true, false) => report.ok(
            CHECK,
            format!("{seen}, as configured with --with-choria or in the URL, or by the bucket"),
        ),
        (false, false) => report.warning(CHECK, format!("{seen}: {FIX}")),
    }
}

/// The elections whose holder has no mark of this library, among the first ones of a bucket.
async fn unmarked(session: &Session, bucket: &NatsBucket) -> Result<Vec<String>, CliError> {
    let lock = Bucket::for_admin(session.connection(), bucket.config())?.lock();
    let mut names = lock.names(session.timeout()).await?;
    names.sort_unstable();
    names.truncate(SAMPLE);
    let reads: Vec<_> = names.iter().map(|name| lock.record(name, session.timeout())).collect();
    let found: Vec<_> = stream::iter(reads).buffered(READS).try_collect().await?;
    let foreign = |record: &ElectionRecord| record.holder().is_some_and(|who| who.token.is_none());
    Ok(found.into_iter().flatten().filter(foreign).map(|record| record.election).collect())
}

/// Whether the bucket has the settings of Choria's broker: small messages, no TTL per entry, no
/// republishing.
fn is_created_by_choria(info: &Value) -> bool {
    let config = |field: &str| info.pointer(&format!("/config/{field}"));
    config("max_msg_size").and_then(Value::as_i64) == Some(CHORIA_MAX_MESSAGE)
        && config("allow_msg_ttl").and_then(Value::as_bool) != Some(true)
        && config("republish").is_none_or(Value::is_null)
}
