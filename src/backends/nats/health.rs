//! Checks of a bucket's settings.

use std::time::Duration;

use thiserror::Error;

use super::api::ApiFailure;
use super::codec;
use super::config;
use super::message::Expiry;
use super::state::BucketState;
use super::stream::{Cluster, StreamInfo};
use crate::backends::health::Severity;
use crate::lock::codec::ceil_seconds;

/// The timeout of each request.
const TIMEOUT: Duration = Duration::from_secs(5);

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

/// A dangerous or missing setting of a bucket. `Display` suggests a fix.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Finding {
    /// Entries of dead leaders would never expire.
    #[error(
        "no TTL: the entry of a dead leader would never expire; set max_age to between 1s and 1h"
    )]
    NoTtl,
    /// Elections cannot use the TTL.
    #[error(
        "a TTL of {ttl:?}: elections need {:?} to {:?}; set max_age",
        config::MIN_TTL,
        config::MAX_TTL
    )]
    TtlOutOfRange {
        /// The TTL.
        ttl: Duration,
    },
    /// Mirrors serve reads, and may return old values.
    #[error("mirrors serve reads, and may return old values; set mirror_direct to false")]
    MirrorReads,
    /// Only one server of a cluster stores the bucket: without it there is no leader.
    #[error(
        "one replica on a cluster: without that server there is no leader; set num_replicas to 3"
    )]
    OneReplica,
    /// The election of a new stream leader may take longer than the TTL.
    #[error(
        "a TTL of {ttl:?} on a cluster: one crashed server can stop renewals for 9s; set max_age to {:?} or more",
        SAFE_CLUSTER_TTL
    )]
    ShortTtlOnCluster {
        /// The TTL.
        ttl: Duration,
    },
    /// The bucket stores more than the last value of a key, which shortens the life of markers.
    #[error("{kept} values are stored per key; set max_msgs_per_subject to 1")]
    History {
        /// The number of stored values.
        kept: i64,
    },
    /// Expiry markers vanish before the maximum lease has passed.
    #[error("markers stay {markers:?}, less than the maximum lease of {ttl:?}; set subject_delete_marker_ttl to {}s", ceil_seconds(*.ttl))]
    ShortMarkers {
        /// How long markers are kept.
        markers: Duration,
        /// The maximum lease.
        ttl: Duration,
    },
    /// Messages are too small for long identities.
    #[error(
        "messages of at most {bytes} bytes: long identities do not fit; set max_msg_size to {} or more",
        ROOMY_MESSAGE_SIZE
    )]
    SmallMessages {
        /// The maximum size of a message in bytes.
        bytes: i64,
    },
    /// Entries are stored in memory, and a restart loses them.
    #[error(
        "entries are kept in memory: a restart of the server ends every term; create the bucket with file storage"
    )]
    InMemory,
    /// The server sends no marker when an entry expires.
    #[error(
        "no expiry markers: standbys wait longer after a crash; on nats-server 2.11 or later set allow_msg_ttl and subject_delete_marker_ttl"
    )]
    NoMarkers,
    /// Entries cannot have a TTL of their own.
    #[error(
        "no message TTLs: every election uses the bucket's TTL; on nats-server 2.11 or later set allow_msg_ttl"
    )]
    NoMessageTtl,
    /// The bucket does not republish changes: standbys poll, or receive only some of the changes.
    #[error("no republish: standbys poll; set republish from $KV.BUCKET.> to incumbent.BUCKET.>")]
    NoRepublish,
    /// Entries without this library's mark: of another program, or invalid.
    #[error("values of another kind at {}: another library's candidates take part there, or the values are invalid; find their writers, and delete values without one", .keys.join(", "))]
    ForeignValues {
        /// Some of their keys.
        keys: Vec<String>,
    },
    /// The keys could not be read.
    #[error("the keys could not be read; grant publishing to STREAM.MSG.GET to check them")]
    Unread,
}

impl Finding {
    /// Returns the severity of the finding.
    pub fn severity(&self) -> Severity {
        match self {
            Self::NoTtl | Self::TtlOutOfRange { .. } => Severity::Critical,
            Self::MirrorReads
            | Self::OneReplica
            | Self::ShortTtlOnCluster { .. }
            | Self::History { .. }
            | Self::ShortMarkers { .. }
            | Self::SmallMessages { .. }
            | Self::InMemory
            | Self::ForeignValues { .. } => Severity::Warning,
            Self::NoMarkers | Self::NoMessageTtl | Self::NoRepublish | Self::Unread => {
                Severity::Notice
            }
        }
    }
}

/// Runs all checks, and returns the findings, most severe first.
pub(super) async fn check(bucket: &BucketState) -> Result<Vec<Finding>, super::BucketError> {
    let info = bucket
        .api
        .info_with_keys(TIMEOUT)
        .await
        .map_err(|e| bucket.api.bucket_error(e, "cannot be read"))?;
    let mut findings = settings(&info, bucket);
    findings.extend(values(&info, bucket).await);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    Ok(findings)
}

fn settings(info: &StreamInfo, bucket: &BucketState) -> Vec<Finding> {
    let config = &info.config;
    let ttl = config.max_age();
    let clustered = info.cluster.as_ref().is_some_and(Cluster::has_peers);
    let mut findings = Vec::new();
    match ttl {
        None if !config.allow_msg_ttl => findings.push(Finding::NoTtl),
        Some(ttl) if !(config::MIN_TTL..=config::MAX_TTL).contains(&ttl) => {
            findings.push(Finding::TtlOutOfRange { ttl });
        }
        Some(ttl) if clustered && ttl < SAFE_CLUSTER_TTL => {
            findings.push(Finding::ShortTtlOnCluster { ttl });
        }
        _ => {}
    }
    if config.mirror_direct {
        findings.push(Finding::MirrorReads);
    }
    if clustered && config.num_replicas <= 1 {
        findings.push(Finding::OneReplica);
    }
    if config.max_msgs_per_subject != 1 {
        findings.push(Finding::History { kept: config.max_msgs_per_subject });
    }
    if (0..ROOMY_MESSAGE_SIZE).contains(&config.max_msg_size) {
        findings.push(Finding::SmallMessages { bytes: config.max_msg_size });
    }
    if config.storage == config::Storage::Memory.as_str() {
        findings.push(Finding::InMemory);
    }
    match (config.marker_ttl(), ttl) {
        (None, _) => findings.push(Finding::NoMarkers),
        (Some(markers), Some(ttl)) if markers < ttl => {
            findings.push(Finding::ShortMarkers { markers, ttl });
        }
        _ => {}
    }
    if !config.allow_msg_ttl {
        findings.push(Finding::NoMessageTtl);
    }
    if config.republished_under(bucket.api.bucket()).is_none() {
        findings.push(Finding::NoRepublish);
    }
    findings
}

async fn values(info: &StreamInfo, bucket: &BucketState) -> Option<Finding> {
    let expiry = Expiry { max_age: info.config.max_age(), slack: Duration::ZERO, own: true };
    let prefix = format!("$KV.{}.", bucket.api.bucket());
    let mut names: Vec<&str> = (info.state.subjects.iter().flatten())
        .filter_map(|(subject, _)| subject.strip_prefix(&prefix))
        .collect();
    names.sort_unstable();
    let mut keys = Vec::new();
    for name in names.into_iter().take(MAX_KEYS) {
        match bucket.api.last_message(name, TIMEOUT).await {
            Ok(message) if !codec::is_ours(&codec::stored_content(&message, expiry)) => {
                keys.push(name.to_owned());
            }
            Ok(_) | Err(ApiFailure::Server(_)) => {} // deleted in the meantime
            Err(_) => return Some(Finding::Unread),
        }
    }
    (!keys.is_empty()).then_some(Finding::ForeignValues { keys })
}
