//! Checks of a bucket's settings.

use std::time::Duration;

use super::api::ApiFailure;
use super::checkpoints;
use super::codec;
use super::config;
use super::state::BucketState;
use super::stream::{Cluster, Expiry, StreamFacts, StreamInfo};
use crate::lock::codec::ceil_seconds;
use crate::lock::{Finding, Severity};

/// The timeout of each request, unless an operator sets one.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of keys to read.
const MAX_KEYS: usize = 100;

/// The TTL on a cluster below which the crash of one server can end a term.
///
/// Electing another leader of the stream takes up to 9 s. The last renewal before may be a third of
/// the lease old, a request that waits for a response then lasts an eighth, and the work is stopped
/// a sixth before the deadline: 9 s are left from 24.3 s on.
const SAFE_CLUSTER_TTL: Duration = Duration::from_secs(25);

/// The message size that a Choria broker sets. It fits any host name.
const ROOMY_MESSAGE_SIZE: i64 = 1_024;

/// Runs all checks, and returns the findings, most severe first.
pub(super) async fn check(
    bucket: &BucketState,
    timeout: Duration,
) -> Result<Vec<Finding>, ApiFailure> {
    let info = bucket.api.info_with_keys(timeout).await?;
    let mut findings = settings(&info, bucket);
    // One of the findings may be what candidates refuse.
    let is_named = findings.iter().any(|finding| finding.severity() == Severity::Critical);
    if let Err(refusal) = StreamFacts::check(&bucket.config, &info)
        && !is_named
    {
        findings.push(Finding::new(Severity::Critical, "unusable", refusal.to_string(), ""));
    }
    findings.extend(values(&info, bucket, timeout).await);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    Ok(findings)
}

fn settings(info: &StreamInfo, bucket: &BucketState) -> Vec<Finding> {
    use Severity::{Critical, Notice, Warning};
    let config = &info.config;
    let ttl = config.max_age();
    let clustered = info.cluster.as_ref().is_some_and(Cluster::has_peers);
    let mut findings = Vec::new();
    let mut find = |severity, code, message: &str, fix: &str| {
        findings.push(Finding::new(severity, code, message, fix));
    };
    match ttl {
        None if !config.allow_msg_ttl => find(
            Critical,
            "no-ttl",
            "no TTL: the entry of a dead leader would never expire;",
            "set max_age to between 1s and 1h",
        ),
        None if config.marker_ttl().is_none() => find(
            Critical,
            "no-ttl",
            "no TTL: candidates do not know the longest lease;",
            "set max_age to between 1s and 1h",
        ),
        Some(ttl) if !(config::MIN_TTL..=config::MAX_TTL).contains(&ttl) => {
            let (least, most) = (config::MIN_TTL, config::MAX_TTL);
            let message = format!("a TTL of {ttl:?}: elections need {least:?} to {most:?};");
            find(Critical, "ttl-out-of-range", &message, "set max_age");
        }
        Some(ttl) if clustered && ttl < SAFE_CLUSTER_TTL => find(
            Warning,
            "short-ttl-on-cluster",
            &format!("a TTL of {ttl:?} on a cluster: one crashed server can stop renewals for 9s;"),
            &format!("set max_age to {SAFE_CLUSTER_TTL:?} or more"),
        ),
        _ => {}
    }
    if config.mirror_direct {
        let message = "mirrors serve reads, and may return old values;";
        find(Warning, "mirror-reads", message, "set mirror_direct to false");
    }
    let few_replicas = match config.num_replicas {
        ..=1 => Some(("one-replica", "one replica on a cluster: without that server")),
        // A majority of two is both.
        2 => Some(("two-replicas", "two replicas on a cluster: without either of their servers")),
        _ => None,
    };
    if let Some((code, cause)) = few_replicas.filter(|_| clustered) {
        find(Warning, code, &format!("{cause} there is no leader;"), "set num_replicas to 3");
    }
    if config.max_msgs_per_subject != 1 {
        let message = format!("{} values are stored per key;", config.max_msgs_per_subject);
        find(Warning, "history", &message, "set max_msgs_per_subject to 1");
    }
    if (0..ROOMY_MESSAGE_SIZE).contains(&config.max_msg_size) {
        let bytes = config.max_msg_size;
        let message = format!("messages of at most {bytes} bytes: long identities do not fit;");
        let fix = format!("set max_msg_size to {ROOMY_MESSAGE_SIZE} or more");
        find(Warning, "small-messages", &message, &fix);
    }
    if config.storage == config::Storage::Memory.as_str() {
        let message = "entries are kept in memory: a restart of the server ends every term, and \
                       tokens begin anew;";
        find(Warning, "in-memory", message, "create the bucket with file storage");
    }
    match (config.marker_ttl(), ttl) {
        (None, _) => find(
            Notice,
            "no-markers",
            "no expiry markers: standbys wait longer after a crash;",
            "on nats-server 2.11 or later set allow_msg_ttl and subject_delete_marker_ttl",
        ),
        (Some(markers), Some(ttl)) if markers < ttl => find(
            Warning,
            "short-markers",
            &format!("markers stay {markers:?}, less than the maximum lease of {ttl:?};"),
            &format!("set subject_delete_marker_ttl to {}s", ceil_seconds(ttl)),
        ),
        _ => {}
    }
    if !config.allow_msg_ttl {
        let message = "no message TTLs: every election uses the bucket's TTL;";
        let fix = "on nats-server 2.11 or later set allow_msg_ttl";
        find(Notice, "no-message-ttl", message, fix);
    }
    if config.republished_under(bucket.api.bucket()).is_none() {
        let fix = "set republish from $KV.BUCKET.> to incumbent.BUCKET.>";
        find(Notice, "no-republish", "no republish: standbys poll;", fix);
    }
    findings
}

async fn values(info: &StreamInfo, bucket: &BucketState, timeout: Duration) -> Option<Finding> {
    let expiry = Expiry { max_age: info.config.max_age(), slack: Duration::ZERO, own: true };
    let prefix = format!("$KV.{}.", bucket.api.bucket());
    let mut names: Vec<&str> = (info.state.subjects.iter().flatten())
        .filter_map(|(subject, _)| subject.strip_prefix(&prefix))
        .filter(|key| !checkpoints::is_checkpoint(key))
        .collect();
    names.sort_unstable();
    let mut keys = Vec::new();
    for name in names.into_iter().take(MAX_KEYS) {
        match bucket.api.last_message(name, timeout).await {
            Ok(message) if !codec::is_ours(&codec::stored_content(&message, expiry)) => {
                keys.push(name.to_owned());
            }
            Ok(_) | Err(ApiFailure::Server(_)) => {} // deleted in the meantime
            Err(_) => {
                let (message, fix) = (
                    "the keys could not be read;",
                    "grant publishing to STREAM.MSG.GET to check them",
                );
                return Some(Finding::new(Severity::Notice, "unread", message, fix));
            }
        }
    }
    let message = format!(
        "values of another kind at {}: another library's candidates take part there, or the values are invalid;",
        keys.join(", ")
    );
    let fix = "find their writers, and delete values without one";
    let finding = Finding::new(Severity::Warning, "foreign-values", message, fix);
    (!keys.is_empty()).then_some(finding)
}
