//! `kv add`, `list` and `status`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use incumbent::nats::{Bucket, Storage};
use serde_json::{Map, Value, json};

use crate::error::{CliError, Code};
use crate::lock::nats::Session;
use crate::output::{self, Format};
use crate::output::{text, time_format};

/// Create a bucket.
#[derive(Args)]
pub struct Add {
    /// The bucket.
    bucket: String,
    /// Create it for elections: with a TTL, markers, per-message TTLs, and every write republished
    /// for standbys.
    #[arg(long, conflicts_with_all = ["history", "max_value_size", "max_bucket_size", "marker_ttl", "republish"])]
    election: bool,
    /// With --election, for hundreds of standbys and more: the number of queue groups, 1 to 15,
    /// that candidates adopt. Each renewal is delivered to one standby of each, instead of to every
    /// standby. Eight is a good number.
    #[arg(long, value_name = "GROUPS", value_parser = clap::value_parser!(u8).range(1..=15), requires = "election")]
    queue_groups: Option<u8>,
    #[command(flatten)]
    settings: Settings,
    /// The storage of entries.
    #[arg(long, value_enum, default_value = "file")]
    storage: Kept,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    /// On disk.
    File,
    /// In memory: a restart loses the entries.
    Memory,
}

/// List the buckets.
#[derive(Args)]
pub struct List {
    /// Print names only.
    #[arg(long)]
    names: bool,
}

/// Show the settings and the state of a bucket.
#[derive(Args)]
pub struct Status {
    /// The bucket.
    bucket: String,
}

impl Add {
    pub async fn run(self, session: &Session, format: Format) -> Result<(), CliError> {
        let bucket = &self.bucket;
        if self.election {
            self.add_for_elections(session).await?;
        } else {
            self.add_plain(session).await?;
        }
        output::note(format!("created bucket {bucket}"));
        show(bucket, &session.info(bucket).await?, format)
    }

    async fn add_for_elections(&self, session: &Session) -> Result<(), CliError> {
        let mut config = session.config(&self.bucket).storage(match self.storage {
            Kept::File => Storage::File,
            Kept::Memory => Storage::Memory,
        });
        if let Some(ttl) = self.settings.ttl {
            config = config.ttl(ttl);
        }
        if let Some(replicas) = self.settings.replicas {
            config = config.replicas(usize::from(replicas));
        }
        if let Some(text) = &self.settings.description {
            config = config.description(text);
        }
        if let Some(groups) = self.queue_groups {
            config = config.queue_groups(groups);
        }
        Bucket::create(session.connection(), config).await?;
        Ok(())
    }

    async fn add_plain(&self, session: &Session) -> Result<(), CliError> {
        let bucket = &self.bucket;
        check_absent(session, bucket).await?;
        let mut config = json!({
            "name": format!("KV_{bucket}"),
            "subjects": [format!("$KV.{bucket}.>")],
            "retention": "limits",
            "discard": "new",
            "storage": match self.storage { Kept::File => "file", Kept::Memory => "memory" },
            "num_replicas": 1,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msg_size": -1,
            "max_msgs_per_subject": 1,
            "deny_delete": true,
            "allow_rollup_hdrs": true,
            "allow_direct": true,
        });
        if let Some(config) = config.as_object_mut() {
            self.settings.apply(bucket, config);
        }
        let operation = format!("creation of bucket {bucket}");
        let subject = format!("STREAM.CREATE.KV_{bucket}");
        let _: Value = session.api(&operation, &subject, &config).await?;
        Ok(())
    }
}

impl List {
    pub async fn run(self, session: &Session, format: Format) -> Result<(), CliError> {
        let infos = all(session).await?;
        let buckets: Vec<BucketSettings<'_>> = infos
            .iter()
            .filter_map(|info| {
                let name = info.pointer("/config/name").and_then(Value::as_str)?;
                Some(BucketSettings { bucket: name.strip_prefix("KV_")?, info })
            })
            .collect();
        if self.names {
            return match format {
                Format::Json => output::json(&buckets.iter().map(|b| b.bucket).collect::<Vec<_>>()),
                Format::Text => {
                    buckets.iter().try_for_each(|b| output::line(text::printable(b.bucket)))
                }
            };
        }
        if format == Format::Json {
            return output::json(&buckets.iter().map(BucketSettings::json).collect::<Vec<_>>());
        }
        output::table(
            ["bucket", "entries", "size", "ttl", "history", "replicas", "created", "description"],
            buckets.iter().map(|info| {
                [
                    info.bucket.to_owned(),
                    info.count("/state/messages").to_string(),
                    time_format::size(info.count("/state/bytes")),
                    info.span("/config/max_age").map_or("-".to_owned(), time_format::span),
                    info.number("/config/max_msgs_per_subject").unwrap_or_default().to_string(),
                    info.number("/config/num_replicas").unwrap_or_default().to_string(),
                    info.text("/created")
                        .and_then(time_format::parse)
                        .map_or("-".into(), time_format::rfc822),
                    info.text("/config/description").unwrap_or_default().to_owned(),
                ]
            }),
        )
    }
}

impl Status {
    pub async fn run(self, session: &Session, format: Format) -> Result<(), CliError> {
        show(&self.bucket, &session.info(&self.bucket).await?, format)
    }
}

/// The server's description of every stream of a bucket, page by page.
async fn all(session: &Session) -> Result<Vec<Value>, CliError> {
    let mut streams: Vec<Value> = Vec::new();
    loop {
        let request = json!({"offset": streams.len(), "subject": "$KV.>"});
        let mut page: Value = session.api("list of buckets", "STREAM.LIST", &request).await?;
        let total = page.get("total").and_then(Value::as_u64).unwrap_or_default();
        let more = match page.get_mut("streams").map(Value::take) {
            Some(Value::Array(more)) => more,
            _ => Vec::new(),
        };
        let none = more.is_empty();
        streams.extend(more);
        if none || streams.len() as u64 >= total {
            return Ok(streams);
        }
    }
}

fn show(bucket: &str, info: &Value, format: Format) -> Result<(), CliError> {
    let info = BucketSettings { bucket, info };
    if format == Format::Json {
        return output::json(&info.json());
    }
    let limit = |pointer| match info.number(pointer) {
        Some(bytes) if bytes >= 0 => time_format::size(bytes.unsigned_abs()),
        _ => "no limit".to_owned(),
    };
    let span = |pointer| info.span(pointer).map_or("forever".to_owned(), time_format::span);
    let text = |pointer| info.text(pointer).unwrap_or("-").to_owned();
    let mut rows = vec![
        ("Bucket", bucket.to_owned()),
        ("Description", text("/config/description")),
        (
            "Created",
            info.text("/created")
                .and_then(time_format::parse)
                .map_or("-".into(), time_format::rfc822),
        ),
        ("Entries", info.count("/state/messages").to_string()),
        ("Size", time_format::size(info.count("/state/bytes"))),
        ("Last revision", info.count("/state/last_seq").to_string()),
        ("Entries live", span("/config/max_age")),
        ("History", info.number("/config/max_msgs_per_subject").unwrap_or_default().to_string()),
        ("Replicas", info.number("/config/num_replicas").unwrap_or_default().to_string()),
        ("Storage", text("/config/storage")),
        ("Maximum value size", limit("/config/max_msg_size")),
        ("Maximum bucket size", limit("/config/max_bytes")),
        ("TTL per message", if info.is_set("/config/allow_msg_ttl") { "yes" } else { "no" }.into()),
        (
            "Markers live",
            info.span("/config/subject_delete_marker_ttl").map_or("-".into(), time_format::span),
        ),
        ("Republished to", text("/config/republish/dest")),
        ("Queue groups", text("/config/metadata/incumbent.queue-groups")),
    ];
    if info.text("/cluster/name").is_some() {
        rows.push(("Cluster", text("/cluster/name")));
        rows.push(("Leader", text("/cluster/leader")));
    }
    rows.into_iter().try_for_each(|(name, value)| {
        output::line(format!("{name:>18}: {}", text::printable(&value)))
    })
}

/// Refuses a bucket that exists.
async fn check_absent(session: &Session, bucket: &str) -> Result<(), CliError> {
    match session.info(bucket).await {
        Ok(_) => {
            let message = format!("bucket {bucket} exists; `nats kv edit` changes its settings");
            Err(CliError::new(Code::Failed, message))
        }
        Err(CliError::Message { code: Code::NotFound, .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

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
            "queue_groups":
                self.text("/config/metadata/incumbent.queue-groups").and_then(|n| n.parse::<u8>().ok()),
            "cluster": self.text("/cluster/name"),
            "leader": self.text("/cluster/leader"),
        })
    }
}
