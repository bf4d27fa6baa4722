//! The configuration of a bucket.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::error::{BucketError, BucketErrorKind};
use super::time::since_epoch;
use crate::util::since_unix_epoch;

/// The bucket that Choria's elections use.
pub const DEFAULT_BUCKET: &str = "CHORIA_LEADER_ELECTION";

/// The TTL that Choria's elections use.
pub const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// The minimum TTL of a bucket for elections.
pub const MIN_TTL: Duration = Duration::from_secs(1);

/// The maximum TTL of a bucket for elections.
pub const MAX_TTL: Duration = Duration::from_secs(3600);

/// The most queue groups: with the leader, at most 16 receive a renewal.
pub(crate) const MAX_QUEUE_GROUPS: u8 = 15;

/// The metadata of a bucket's stream in which the settings of its candidates are stored.
pub(super) const QUEUE_GROUPS_KEY: &str = "incumbent.queue-groups";
pub(super) const WITH_CHORIA_KEY: &str = "incumbent.with-choria";

/// Where a bucket stores its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Storage {
    /// On disk: elections survive a restart of the server.
    #[default]
    File,
    /// In memory: a restart of a single server ends every term at its deadline.
    Memory,
}

impl Storage {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "memory",
        }
    }
}

/// The configuration of a bucket.
///
/// Only the name, the domain, the prefix, and what its candidates do otherwise than it states
/// matter for a bucket that exists: its own settings apply, and are never altered.
///
/// ```
/// use std::time::Duration;
/// use incumbent::nats::BucketConfig;
///
/// let config = BucketConfig::new("JOBS").ttl(Duration::from_secs(10)).replicas(3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a configuration does nothing by itself"]
pub struct BucketConfig {
    pub(super) name: String,
    pub(super) ttl: Duration,
    pub(super) replicas: Option<usize>,
    pub(super) storage: Storage,
    pub(super) description: Option<String>,
    pub(super) api_prefix: Option<String>,
    pub(super) create: bool,
    pub(super) with_choria: bool,
    /// `None`: those of the bucket.
    pub(super) queue_groups: Option<u8>,
}

impl Default for BucketConfig {
    fn default() -> Self {
        Self::new(DEFAULT_BUCKET)
    }
}

impl BucketConfig {
    /// Creates a configuration with Choria's settings: a TTL of 60 s, three replicas on a clustered
    /// server and one elsewhere, on disk.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ttl: DEFAULT_TTL,
            replicas: None,
            storage: Storage::File,
            description: None,
            api_prefix: None,
            create: false,
            with_choria: false,
            queue_groups: None,
        }
    }

    /// Sets how long an entry lives without a renewal, which is the maximum lease: 1 s to 1 h,
    /// measured by the server's wall clock from each write.
    ///
    /// On a cluster choose 25 s or more: electing a new leader of the bucket's stream takes 4 to 9
    /// s, during which no renewal succeeds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how many servers store the bucket. Default: three on a clustered server, else one.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = Some(replicas);
        self
    }

    /// Sets where entries are stored. Default: on disk.
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Sets the description of the bucket.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the JetStream domain of the bucket. The same as the API prefix `$JS.DOMAIN.API`.
    pub fn domain(self, domain: impl AsRef<str>) -> Self {
        let prefix = format!("$JS.{}.API", domain.as_ref());
        self.api_prefix(prefix)
    }

    /// Sets the prefix of the JetStream API. Default: `$JS.API`. With any other prefix the bucket's
    /// keys are also written below it, at `PREFIX.$KV.BUCKET.KEY`, as every NATS client does.
    pub fn api_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.api_prefix = Some(prefix.into());
        self
    }

    /// Sets whether [`Bucket::deferred`](super::Bucket::deferred) creates the bucket if it does not
    /// exist. Default: no.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets whether Choria's candidates take part in the elections of the bucket, as
    /// [`ElectionBuilder::with_choria`](crate::ElectionBuilder::with_choria) does. A bucket that is
    /// created states it in its metadata, and whoever opens that bucket adopts it. Set it
    /// for a bucket that Choria creates, and with [`Bucket::deferred`](super::Bucket::deferred).
    /// Default: what the bucket states.
    pub fn with_choria(mut self, with_choria: bool) -> Self {
        self.with_choria = with_choria;
        self
    }

    /// Sets through how many queue groups standbys receive hints, 1 to 15; 0: none. For fleets of
    /// hundreds and more.
    ///
    /// A bucket that is created states this number in its metadata, and whoever opens that bucket
    /// adopts it. Default: what the bucket states, else none.
    ///
    /// Without queue groups the server delivers each renewal to each standby. With them it delivers
    /// a renewal, or a release, to one standby of each group and to the leader, however many stand
    /// by; eight is a good number. A standby then knows a new leader later, mostly by a poll. Polls
    /// become rarer as the fleet grows: every ten minutes at most. A release that nobody received,
    /// as by standbys that are suspended, is found by such a poll.
    ///
    /// Candidates with and without queue groups, or with different numbers, may share an election.
    pub fn queue_groups(mut self, groups: u8) -> Self {
        self.queue_groups = Some(groups);
        self
    }

    /// Refuses settings that servers or elections do not accept.
    pub(super) fn check(&self) -> Result<(), BucketError> {
        let refuse = |message| Err(BucketError::new(BucketErrorKind::Unusable, message));
        let name_fits = !self.name.is_empty()
            && self.name.len() <= 200
            && self.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !name_fits {
            return refuse(format!(
                "bucket name {:?}: must be 1 to 200 of the letters a-z, A-Z, 0-9, '-' and '_'",
                self.name
            ));
        }
        if let Some(prefix) = &self.api_prefix {
            let fits = prefix.split('.').all(|token| {
                !token.is_empty()
                    && token.bytes().all(|b| b.is_ascii_graphic() && b != b'*' && b != b'>')
            });
            if !fits {
                return refuse(format!(
                    "JetStream API prefix or domain {prefix:?}: must be a subject without wildcards"
                ));
            }
        }
        if self.replicas.is_some_and(|n| !(1..=5).contains(&n)) {
            return refuse(format!(
                "{} replicas: must be 1 to 5",
                self.replicas.unwrap_or_default()
            ));
        }
        if let Some(groups) = self.queue_groups.filter(|groups| *groups > MAX_QUEUE_GROUPS) {
            return refuse(format!("{groups} queue groups: must be 0 to {MAX_QUEUE_GROUPS}"));
        }
        check_ttl(self.ttl, "TTL")
    }

    /// Returns the stream configuration of the bucket, for creation.
    ///
    /// Servers before 2.11 ignore settings that they do not know: the response contains the
    /// effective ones.
    pub(super) fn stream(&self, replicas: usize, first_seq: u64) -> NewStream<'_> {
        let name = &self.name;
        let groups = self.queue_groups.map(|groups| (QUEUE_GROUPS_KEY, groups.to_string()));
        let choria = self.with_choria.then(|| (WITH_CHORIA_KEY, true.to_string()));
        NewStream {
            name: format!("KV_{name}"),
            description: self.description.as_deref(),
            subjects: [format!("$KV.{name}.>")],
            retention: "limits",
            max_consumers: -1,
            max_msgs: -1,
            max_bytes: -1,
            max_age: nanos(self.ttl),
            max_msgs_per_subject: 1,
            max_msg_size: -1,
            discard: "new",
            storage: self.storage.as_str(),
            num_replicas: replicas,
            duplicate_window: nanos(self.ttl.min(Duration::from_secs(120))),
            deny_delete: true,
            allow_rollup_hdrs: true,
            allow_direct: true,
            allow_msg_ttl: true,
            subject_delete_marker_ttl: nanos(self.ttl),
            republish: NewRepublish {
                src: format!("$KV.{name}.>"),
                dest: format!("incumbent.{name}.>"),
            },
            first_seq,
            metadata: groups.into_iter().chain(choria).collect(),
        }
    }
}

/// Refuses a TTL that is not within a second and an hour; the error contains both numbers.
pub(super) fn check_ttl(ttl: Duration, what: &str) -> Result<(), BucketError> {
    let message = if ttl < MIN_TTL {
        format!("{what} of {ttl:?} is below the minimum for elections, {MIN_TTL:?}")
    } else if ttl > MAX_TTL {
        format!("{what} of {ttl:?} is above the maximum for elections, {MAX_TTL:?}")
    } else {
        return Ok(());
    };
    Err(BucketError::new(BucketErrorKind::Unusable, message))
}

/// Returns the first sequence of a bucket that is created now: the wall clock in microseconds.
///
/// Tokens are sequences. If a bucket is deleted and created again, a server would count them from 1
/// again. From the wall clock they keep growing, as long as the bucket stored fewer than a million
/// writes per second over its whole life.
pub(super) fn first_sequence() -> u64 {
    u64::try_from(since_unix_epoch().as_micros()).unwrap_or(1).max(1)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug, Serialize)]
pub(super) struct NewStream<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    subjects: [String; 1],
    retention: &'static str,
    max_consumers: i64,
    max_msgs: i64,
    max_bytes: i64,
    max_age: u64,
    max_msgs_per_subject: i64,
    max_msg_size: i64,
    discard: &'static str,
    storage: &'static str,
    num_replicas: usize,
    duplicate_window: u64,
    deny_delete: bool,
    allow_rollup_hdrs: bool,
    allow_direct: bool,
    allow_msg_ttl: bool,
    subject_delete_marker_ttl: u64,
    republish: NewRepublish,
    first_seq: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct NewRepublish {
    src: String,
    dest: String,
}

/// Returns how long `from` is before `to`, both written by one server; `None` if either is not a
/// time, zero if `from` is not before `to`.
pub(super) fn elapsed(from: &str, to: Option<&str>) -> Option<Duration> {
    Some(since_epoch(to?)?.saturating_sub(since_epoch(from)?))
}
