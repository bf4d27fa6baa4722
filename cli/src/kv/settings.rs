//! The settings of a bucket: of the flags, and of the server.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

/// Settings for `kv add`.
#[derive(Debug, Args)]
pub struct Settings {
    /// The lifetime of an entry that is not written again; 0s: unlimited.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub ttl: Option<Duration>,
    /// How many values of a key are stored; elections need 1.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub history: Option<u8>,
    /// The number of replicas in a cluster.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub replicas: Option<u8>,
    /// A description for users.
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// The maximum size of a value with its headers; -1: the server's limit.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub max_value_size: Option<i32>,
    /// The maximum size of the bucket; -1: unlimited.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub max_bucket_size: Option<i64>,
    /// Allow TTLs per entry, and keep markers of expired entries for this long (nats-server 2.11).
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub marker_ttl: Option<Duration>,
    /// Republish every stored write below this subject: candidates subscribe to incumbent.BUCKET.
    #[arg(long, value_name = "SUBJECT")]
    pub republish: Option<String>,
}

impl Settings {
    /// Sets the given values in the configuration of the bucket's stream.
    pub fn apply(&self, bucket: &str, config: &mut Map<String, Value>) {
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                config.insert(name.to_owned(), value);
            }
        };
        set("max_age", self.ttl.map(nanoseconds));
        set("max_msgs_per_subject", self.history.map(Value::from));
        set("num_replicas", self.replicas.map(Value::from));
        set("description", self.description.clone().map(Value::from));
        set("max_msg_size", self.max_value_size.map(Value::from));
        set("max_bytes", self.max_bucket_size.map(Value::from));
        set("allow_msg_ttl", self.marker_ttl.map(|_| true.into()));
        set("subject_delete_marker_ttl", self.marker_ttl.map(nanoseconds));
        set(
            "republish",
            self.republish
                .as_ref()
                .map(|to| json!({"src": format!("$KV.{bucket}.>"), "dest": format!("{to}.>")})),
        );
        // The server refuses a window of duplicates longer than the TTL.
        if let Some(ttl) = self.ttl.filter(|ttl| !ttl.is_zero()) {
            set("duplicate_window", Some(nanoseconds(ttl.min(Duration::from_secs(120)))));
        }
    }
}

fn nanoseconds(span: Duration) -> Value {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).into()
}

/// The server's description of a bucket.
pub struct BucketSettings<'a> {
    pub bucket: &'a str,
    pub info: &'a Value,
}

impl BucketSettings<'_> {
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.info.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    pub fn number(&self, pointer: &str) -> Option<i64> {
        self.info.pointer(pointer).and_then(Value::as_i64)
    }

    pub fn count(&self, pointer: &str) -> u64 {
        self.info.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
    }

    /// A duration; `None` if it is unlimited.
    pub fn span(&self, pointer: &str) -> Option<Duration> {
        Some(self.count(pointer)).filter(|ns| *ns > 0).map(Duration::from_nanos)
    }

    pub fn is_set(&self, pointer: &str) -> bool {
        self.info.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        let seconds = |pointer| self.span(pointer).map(|span| span.as_secs_f64());
        let limit = |pointer| self.number(pointer).filter(|limit| *limit >= 0);
        json!({
            "bucket": self.bucket,
            "description": self.text("/config/description"),
            "created": self.text("/created"),
            "entries": self.count("/state/messages"),
            "keys": self.count("/state/num_subjects"),
            "bytes": self.count("/state/bytes"),
            "last_revision": self.count("/state/last_seq"),
            "ttl_seconds": seconds("/config/max_age"),
            "marker_ttl_seconds": seconds("/config/subject_delete_marker_ttl"),
            "history": self.number("/config/max_msgs_per_subject"),
            "replicas": self.number("/config/num_replicas"),
            "storage": self.text("/config/storage"),
            "max_value_size": limit("/config/max_msg_size"),
            "max_bucket_size": limit("/config/max_bytes"),
            "republish": self.text("/config/republish/dest"),
            "cluster": self.text("/cluster/name"),
            "leader": self.text("/cluster/leader"),
        })
    }
}
