//! What is dangerous or missing in a bucket.

use std::fmt;
use std::time::Duration;

use super::api::ApiFailure;
use super::codec;
use super::config;
use super::connection::RequestFailure;
use super::message::Expiry;
use super::state::BucketState;
use super::stream::StreamInfo;
use crate::lock::codec::ceil_seconds;

/// How long each question may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most keys that are read.
const MOST_KEYS: usize = 100;

/// The TTL on a cluster below which the crash of one server can end a term.
const SAFE_CLUSTER_TTL: Duration = Duration::from_secs(10);

/// The message size that a Choria broker sets, and that leaves room for any host name.
const ROOMY: i64 = 1_024;

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Elections work, slower or costlier than they could.
    ConnectionEvent,
    /// Elections work until something happens that one must expect.
    Warning,
    /// Elections do not work, or cannot keep what they promise.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConnectionEvent => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// Something dangerous or missing in a bucket. Its `Display` says how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Entries of dead leaders would stay for ever.
    NoTtl,
    /// The TTL is not one that elections can use.
    TtlOutOfRange {
        /// The TTL.
        ttl: Duration,
    },
    /// Mirrors answer reads, with values that may be old.
    MirrorReads,
    /// One server of a cluster keeps the bucket: without it nobody can lead.
    OneReplica,
    /// A TTL that the election of a new stream leader can outlast.
    ShortTtlOnCluster {
        /// The TTL.
        ttl: Duration,
    },
    /// More than the last value of a key is kept, which shortens the life of markers.
    History {
        /// How many values.
        kept: i64,
    },
    /// Markers of expiry vanish before the longest lease has passed.
    ShortMarkers {
        /// How long markers stay.
        markers: Duration,
        /// The longest lease.
        ttl: Duration,
    },
    /// Room for few identities.
    SmallMessages {
        /// The most bytes of a message.
        bytes: i64,
    },
    /// Entries kept in memory, which a restart loses.
    InMemory,
    /// No marker tells that an entry expired.
    NoMarkers,
    /// No entry can have a life of its own.
    NoMessageTtl,
    /// No change is told: stand-bys must poll, or hear only some of them.
    NoRepublish,
    /// Entries without this library's mark: another program's, or junk.
    ForeignValues {
        /// Some of their keys.
        keys: Vec<String>,
    },
    /// The keys could not be read.
    Unread,
}

impl Finding {
    /// How bad it is.
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
                Severity::ConnectionEvent
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTtl => f.write_str("no TTL: a dead leader would lead for ever; set max_age to between 1s and 1h"),
            Self::TtlOutOfRange { ttl } => write!(
                f,
                "a TTL of {ttl:?}: elections need {:?} to {:?}; set max_age",
                config::MIN_TTL,
                config::MAX_TTL
            ),
            Self::MirrorReads => f.write_str("mirrors answer reads, with values that may be old; turn mirror_direct off"),
            Self::OneReplica => f.write_str("one replica on a cluster: without that server nobody leads; set num_replicas to 3"),
            Self::ShortTtlOnCluster { ttl } => write!(
                f,
                "a TTL of {ttl:?} on a cluster: one crashed server can stop renewals for 9s; set max_age to {SAFE_CLUSTER_TTL:?} or more"
            ),
            Self::History { kept } => write!(f, "{kept} values kept of each key; set max_msgs_per_subject to 1"),
            Self::ShortMarkers { markers, ttl } => write!(
                f,
                "markers stay {markers:?}, shorter than the longest lease of {ttl:?}; set subject_delete_marker_ttl to {}s",
                ceil_seconds(*ttl)
            ),
            Self::SmallMessages { bytes } => {
                write!(f, "messages of at most {bytes} bytes: long identities do not fit; set max_msg_size to {ROOMY} or more")
            }
            Self::InMemory => f.write_str("entries are kept in memory: a restart of the server ends every term; make the bucket with file storage"),
            Self::NoMarkers => f.write_str("no markers of expiry: stand-bys wait longer after a crash; on nats-server 2.11 or later set allow_msg_ttl and subject_delete_marker_ttl"),
            Self::NoMessageTtl => f.write_str("no TTL a message: every election has the bucket's; on nats-server 2.11 or later set allow_msg_ttl"),
            Self::NoRepublish => f.write_str("no republish: stand-bys poll; set republish from $KV.BUCKET.> to incumbent.BUCKET.>"),
            Self::ForeignValues { keys } => write!(
                f,
                "values of another kind at {}: campaigners there are not of this library, or somebody wrote junk; see who writes, and delete what nobody does",
                keys.join(", ")
            ),
            Self::Unread => f.write_str("the keys could not be read; grant publishing to STREAM.MSG.GET to have them checked"),
        }
    }
}

/// Looks for all of them, the worst first.
pub(super) async fn check(bucket: &BucketState) -> Result<Vec<Finding>, super::BucketError> {
    let info = bucket
        .api
        .info_with_keys(TIMEOUT)
        .await
        .map_err(|e| bucket.api.bucket_error(e, "cannot be looked at"))?;
    let mut findings = settings(&info, bucket);
    findings.extend(values(&info, bucket).await);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    Ok(findings)
}

fn settings(info: &StreamInfo, bucket: &BucketState) -> Vec<Finding> {
    let config = &info.config;
    let ttl = config.max_age();
    let clustered = info.cluster.as_ref().is_some_and(|cluster| cluster.name.is_some());
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
    if (0..ROOMY).contains(&config.max_msg_size) {
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
    for name in names.into_iter().take(MOST_KEYS) {
        match bucket.api.last_message(name, TIMEOUT).await {
            Ok(message) if !codec::is_ours(&codec::stored_content(&message, expiry)) => {
                keys.push(name.to_owned());
            }
            Ok(_) | Err(ApiFailure::Server(_)) => {} // gone meanwhile
            Err(ApiFailure::Request(RequestFailure::Denied | RequestFailure::TimedOut(_))) => {
                return Some(Finding::Unread);
            }
            Err(_) => return Some(Finding::Unread),
        }
    }
    (!keys.is_empty()).then_some(Finding::ForeignValues { keys })
}
