//! The stream of a bucket: its messages, and a server's information on it.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::config::{
    BucketConfig, MAX_QUEUE_GROUPS, QUEUE_GROUPS_KEY, Storage, WITH_CHORIA_KEY, check_ttl, elapsed,
};
use super::error::{BucketError, BucketErrorKind};
pub(super) use crate::lock::codec::MAX_IDENTITY_LEN;
use crate::util::text::escape_line;

/// The maximum length in bytes of the headers of an entry, without an advertisement.
pub(super) const MAX_HEADERS_LEN: usize = 360;

/// The minimum room in bytes for an identity that a bucket must have.
pub(super) const MIN_IDENTITY_LEN: usize = 32;

/// When a bucket expires an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) max_age: Option<Duration>,
    /// How late the server may expire it.
    pub(super) slack: Duration,
    /// Whether the bucket accepts a TTL per message.
    pub(super) own: bool,
}

/// A stored message.
#[derive(Debug, Deserialize)]
pub(super) struct StoredMessage {
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) time: String,
    #[serde(default)]
    pub(super) hdrs: Option<String>,
    #[serde(default)]
    pub(super) data: Option<String>,
}

/// The response to a request about a stream. It has only the fields that elections use, so that new
/// fields of later servers do no harm.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct StreamInfo {
    pub(super) config: StreamConfig,
    #[serde(default)]
    pub(super) created: String,
    /// The server's clock at its response.
    #[serde(default)]
    pub(super) ts: Option<String>,
    #[serde(default)]
    pub(super) state: StreamState,
    #[serde(default)]
    pub(super) cluster: Option<Cluster>,
    #[serde(default)]
    pub(super) did_create: bool,
    /// How many subjects there are, of which it has a part.
    #[serde(default)]
    pub(super) total: usize,
    /// How many doubts of its TTL there had been when it was requested.
    #[serde(skip)]
    pub(super) doubts: u64,
}

/// The cluster. A single server reports one without a name, a leaf node alone one of its own name.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Cluster {
    #[serde(default)]
    pub(super) name: Option<String>,
    /// The server that leads the stream.
    #[serde(default)]
    leader: Option<String>,
}

impl Cluster {
    /// Returns whether it may have several servers.
    pub(super) fn has_peers(&self) -> bool {
        self.name.is_some() && self.name != self.leader
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamState {
    pub(super) messages: u64,
    pub(super) last_ts: String,
    pub(super) last_seq: u64,
    pub(super) num_subjects: u64,
    pub(super) subjects: Option<HashMap<String, u64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct StreamConfig {
    pub(super) subjects: Option<Vec<String>>,
    pub(crate) retention: String,
    pub(crate) discard: String,
    pub(crate) discard_new_per_subject: bool,
    pub(crate) max_msgs: i64,
    pub(crate) max_bytes: i64,
    /// In nanoseconds; 0: forever.
    pub(crate) max_age: u64,
    pub(super) max_msgs_per_subject: i64,
    pub(super) max_msg_size: i64,
    pub(crate) num_replicas: u64,
    /// `file`, or `memory`.
    pub(crate) storage: String,
    pub(crate) mirror: Option<IgnoredAny>,
    pub(super) sources: Option<Vec<IgnoredAny>>,
    pub(super) mirror_direct: bool,
    pub(crate) allow_msg_ttl: bool,
    /// In nanoseconds.
    pub(super) subject_delete_marker_ttl: Option<u64>,
    pub(super) republish: Option<Republish>,
    pub(super) sealed: bool,
    pub(super) metadata: Option<HashMap<String, String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Republish {
    src: String,
    dest: String,
    headers_only: bool,
}

impl StreamConfig {
    pub(super) fn max_age(&self) -> Option<Duration> {
        (self.max_age > 0).then(|| Duration::from_nanos(self.max_age))
    }

    pub(super) fn marker_ttl(&self) -> Option<Duration> {
        self.subject_delete_marker_ttl.filter(|n| *n > 0).map(Duration::from_nanos)
    }

    /// The longest lease that anybody may hold, which the bucket states.
    pub(super) fn longest_lease(&self) -> Option<Duration> {
        self.max_age().or(self.marker_ttl().filter(|_| self.allow_msg_ttl))
    }

    /// Returns why the stream removes messages by itself before their TTL, or keeps none of a later
    /// write, and what to do, if that is so.
    pub(crate) fn removes_messages(&self) -> Option<&'static str> {
        if !matches!(self.retention.as_str(), "" | "limits") {
            Some("its consumers remove messages: use a stream with the retention `limits`")
        } else if self.discard != "new" && (self.max_msgs > 0 || self.max_bytes > 0) {
            Some(
                "its limit of messages or bytes removes old messages: discard new ones instead, or set no limit",
            )
        } else if self.discard_new_per_subject {
            Some(
                "its limit of each subject's messages refuses the next one: discard the old messages of each subject",
            )
        } else {
            None
        }
    }

    /// Returns the level of the server's JetStream API, which servers report from 2.11 on.
    pub(super) fn api_level(&self) -> Option<u32> {
        self.metadata("_nats.level")
    }

    /// Returns how many queue groups the bucket has for its standbys; 0: none, as in a bucket that
    /// another program or an earlier version created.
    pub(super) fn queue_groups(&self) -> u8 {
        self.metadata(QUEUE_GROUPS_KEY).filter(|n| *n <= MAX_QUEUE_GROUPS).unwrap_or(0)
    }

    /// Returns whether the bucket states that Choria's candidates take part.
    pub(super) fn with_choria(&self) -> bool {
        self.metadata(WITH_CHORIA_KEY).unwrap_or(false)
    }

    fn metadata<T: FromStr>(&self, key: &str) -> Option<T> {
        self.stated(key)?.parse().ok()
    }

    fn stated(&self, key: &str) -> Option<&String> {
        self.metadata.as_ref()?.get(key)
    }

    /// Returns how late the server may expire an entry: its expiry timer fires every 250 ms, and
    /// every second before 2.11.
    pub(super) fn expiry_slack(&self) -> Duration {
        Duration::from_millis(if self.api_level().is_some() { 250 } else { 1_000 })
    }

    /// Returns the prefix of the subjects on which the server republishes each stored message,
    /// ending with a dot.
    pub(super) fn republished_under(&self, bucket: &str) -> Option<String> {
        let republish = self.republish.as_ref().filter(|r| !r.headers_only)?;
        let under = republish.dest.strip_suffix('>').filter(|under| under.ends_with('.'))?;
        if under.contains('*') || under.contains("{{") || under.starts_with("$KV.") {
            None
        } else if republish.src == format!("$KV.{bucket}.>") {
            Some(under.to_owned())
        } else if matches!(republish.src.as_str(), "" | ">") {
            Some(format!("{under}$KV.{bucket}."))
        } else {
            None
        }
    }

    /// Returns the maximum length in bytes of an identity beside the headers of an entry.
    pub(super) fn max_identity_len(&self) -> usize {
        self.max_identity_len_with(0)
    }

    /// Returns the same, if further headers take `extra` bytes.
    pub(super) fn max_identity_len_with(&self, extra: usize) -> usize {
        match usize::try_from(self.max_msg_size) {
            Ok(size) => size.saturating_sub(MAX_HEADERS_LEN + extra).min(MAX_IDENTITY_LEN),
            Err(_) => MAX_IDENTITY_LEN, // -1: no limit
        }
    }
}

/// Returns whether a time is a server's value for "never", or empty.
fn is_never(time: &str) -> bool {
    time.is_empty() || time.starts_with("0001-01-01T")
}

/// The known facts on a bucket.
#[derive(Debug, Clone)]
pub(super) struct StreamFacts {
    pub(super) config: StreamConfig,
    /// The name of the cluster that stores it.
    pub(super) cluster: Option<String>,
    /// The maximum lease of any candidate.
    pub(super) lease: Duration,
    /// When the server created it, in the server's format: another time means another bucket.
    pub(super) created: String,
    /// Whether this handle created it, and knew of none before.
    pub(super) created_here: bool,
    /// Whether an empty key proved that there is no leader, as of the last response.
    pub(super) empty_is_proof: bool,
}

impl StreamFacts {
    /// Refuses a bucket that elections cannot use. Never alters it.
    pub(super) fn check(wanted: &BucketConfig, info: &StreamInfo) -> Result<Self, BucketError> {
        let name = &wanted.name;
        let config = &info.config;
        let refuse = |message| Err(BucketError::new(BucketErrorKind::Unusable, message));
        let subject = format!("$KV.{name}.>");
        if !config.subjects.as_ref().is_some_and(|s| s.contains(&subject)) {
            return refuse(format!(
                "stream KV_{name} does not have the subject {subject}: it is a mirror, or not a key-value bucket; use the bucket itself"
            ));
        }
        if config.sealed {
            return refuse(format!(
                "bucket {name} is sealed: it accepts no writes; create another"
            ));
        }
        if config.sources.as_ref().is_some_and(|sources| !sources.is_empty()) {
            return refuse(format!(
                "bucket {name} has sources: the server stores entries of other streams over its own without a condition; remove the sources, or create another"
            ));
        }
        if let Some(problem) = config.removes_messages() {
            return refuse(format!("bucket {name}: {problem}"));
        }
        if let Some(stated) = config.stated(WITH_CHORIA_KEY)
            && stated.parse::<bool>().is_err()
        {
            return refuse(format!(
                "bucket {name}: {WITH_CHORIA_KEY} in its metadata is {:?}, neither true nor false; edit it",
                escape_line(stated, 40)
            ));
        }
        let Some(lease) = config.longest_lease() else {
            return refuse(match config.allow_msg_ttl {
                false => format!(
                    "bucket {name} has no TTL: the entry of a dead leader would never expire; set a TTL of 1s to 1h"
                ),
                // One candidate does not know the leases of the others.
                true => format!("bucket {name} states no longest lease: set a TTL of 1s to 1h"),
            });
        };
        check_ttl(lease, &format!("bucket {name}: its TTL"))?;
        if config.max_identity_len() < MIN_IDENTITY_LEN {
            return refuse(format!(
                "bucket {name} accepts messages of at most {} bytes: an entry needs {}",
                config.max_msg_size,
                MAX_HEADERS_LEN + MIN_IDENTITY_LEN
            ));
        }
        Ok(Self {
            config: config.clone(),
            cluster: info.cluster.as_ref().and_then(|cluster| cluster.name.clone()),
            lease,
            created: info.created.clone(),
            created_here: false,
            empty_is_proof: false,
        })
    }

    /// Returns whether an empty key proves that no earlier holder can still be leading.
    ///
    /// Both ends of each span are times of the server's own clock.
    pub(super) fn emptiness_proves(&self, info: &StreamInfo) -> bool {
        // Every write leaves a trace for at least a lease: the entry, or its replacement.
        let outlives = self.config.marker_ttl().is_none_or(|ttl| ttl >= self.lease)
            && self.config.max_age().is_none_or(|age| age >= self.lease);
        let now = info.ts.as_deref();
        let old_enough = elapsed(&info.created, now).is_some_and(|age| age >= self.lease);
        // A purge of the whole stream leaves nothing but the time of the last write.
        let written = !is_never(&info.state.last_ts);
        let purged = info.state.messages == 0
            && written
            && elapsed(&info.state.last_ts, now).is_none_or(|age| age < self.lease);
        // After a restart it is empty, and has the times of before.
        let forgets = self.config.storage == Storage::Memory.as_str();
        outlives && (old_enough || self.created_here) && !purged && !forgets
    }

    pub(super) fn expiry(&self) -> Expiry {
        Expiry {
            max_age: self.config.max_age(),
            slack: self.config.expiry_slack(),
            own: self.config.allow_msg_ttl,
        }
    }
}
