//! Who holds an election, as its entry says. The headers are those of `docs/nats.md`.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::kv;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::connection::{Place, Session};
use crate::failure::{Code, Failure};
use crate::{output, when};

/// How many entries are read at once.
const READS: usize = 32;

/// The last write to an election.
#[derive(Debug, Clone)]
pub struct Office {
    pub election: String,
    pub revision: u64,
    pub written: OffsetDateTime,
    pub holding: Holding,
}

/// What it says.
#[derive(Debug, Clone)]
pub enum Holding {
    Held(Holder),
    /// Nobody leads, and why.
    Vacant(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub leader: String,
    /// None where the leader is not of this library.
    pub token: Option<u64>,
    pub since: Option<OffsetDateTime>,
}

impl Holder {
    /// Whether it is the same term; one without a token lasts as long as its leader.
    pub fn is_same_term(&self, other: &Self) -> bool {
        self.leader == other.leader && self.token == other.token
    }
}

impl Office {
    /// Reads the message of an entry.
    pub fn of_message(
        election: &str,
        revision: u64,
        written: OffsetDateTime,
        headers: &HeaderMap,
        value: &[u8],
    ) -> Self {
        let header = |name: &str| headers.get(name).map(|value| value.as_str());
        let number = |name: &str| header(name).and_then(|text| text.parse::<u64>().ok());
        let holding = match (header("Nats-Marker-Reason"), header("KV-Operation")) {
            (Some("MaxAge"), _) => Holding::Vacant("expired".to_owned()),
            (Some(_), _) => Holding::Vacant("evicted".to_owned()),
            (None, Some("DEL" | "PURGE")) => {
                Holding::Vacant(header("Incumbent-Release").unwrap_or("evicted").to_owned())
            }
            _ => Holding::Held(Holder {
                leader: String::from_utf8_lossy(value).into_owned(),
                // The write that creates the entry has no token yet: its revision is it.
                token: header("Incumbent-Write")
                    .map(|_| number("Incumbent-Token").unwrap_or(revision)),
                since: number("Incumbent-Since").and_then(when::from_unix_ms),
            }),
        };
        Self { election: election.to_owned(), revision, written, holding }
    }

    pub fn holder(&self) -> Option<&Holder> {
        match &self.holding {
            Holding::Held(holder) => Some(holder),
            Holding::Vacant(_) => None,
        }
    }

    pub fn json(&self) -> Value {
        let holder = self.holder();
        let cause = match &self.holding {
            Holding::Held(_) => None,
            Holding::Vacant(cause) => Some(cause),
        };
        json!({
            "election": self.election,
            "leader": holder.map(|holder| &holder.leader),
            "token": holder.and_then(|holder| holder.token),
            "since": holder.and_then(|holder| holder.since).map(when::rfc3339),
            "renewed": holder.map(|_| when::rfc3339(self.written)),
            "vacant": cause,
            "revision": self.revision,
        })
    }
}

/// The elections of a bucket.
pub struct Offices<'a> {
    pub session: &'a Session,
    pub store: kv::Store,
    bucket: &'a str,
}

impl<'a> Offices<'a> {
    pub async fn open(place: &'a Place, session: &'a Session) -> Result<Self, Failure> {
        let bucket = place.bucket();
        Ok(Self { session, store: session.store(bucket).await?, bucket })
    }

    pub fn bucket(&self) -> &str {
        self.bucket
    }

    /// The longest lease, as far as the bucket tells.
    pub fn ttl(&self) -> Option<Duration> {
        let config = &self.store.stream.cached_info().config;
        let spans = [Some(config.max_age), config.subject_delete_marker_ttl];
        spans.into_iter().flatten().filter(|span| !span.is_zero()).max()
    }

    /// The names that have an entry, or had one.
    pub async fn names(&self) -> Result<Vec<String>, Failure> {
        let asked = json!({"subjects_filter": format!("$KV.{}.>", self.bucket)});
        let subject = format!("STREAM.INFO.KV_{}", self.bucket);
        let doing = format!("bucket {}", self.bucket);
        let info: Value = self.session.api(&doing, &subject, &asked).await?;
        let subjects = info.pointer("/state/subjects").and_then(Value::as_object);
        let prefix = format!("$KV.{}.", self.bucket);
        let mut names: Vec<String> = (subjects.into_iter().flatten())
            .filter_map(|(subject, _)| subject.strip_prefix(&prefix).map(str::to_owned))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The last write to an election, by the leader of the stream; none where there is none.
    pub async fn read(&self, name: &str) -> Result<Option<Office>, Failure> {
        let subject = format!("$KV.{}.{name}", self.bucket);
        let doing = format!("election {name}");
        let last = self.store.stream.get_last_raw_message_by_subject(&subject);
        match self.session.ask(&doing, last).await {
            Ok(message) => Ok(Some(Office::of_message(
                name,
                message.sequence,
                message.time,
                &message.headers,
                &message.payload,
            ))),
            Err(Failure::Told { code: Code::NotFound, .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// All of them, in the order of their names.
    pub async fn all(&self) -> Result<Vec<Office>, Failure> {
        let names = self.names().await?;
        let reads = stream::iter(&names).map(|name| self.read(name)).buffered(READS);
        reads.try_filter_map(async |office| Ok(office)).try_collect().await
    }
}

/// Refuses what cannot be the name of an election.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-/_=.".contains(&b);
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    if !name.is_empty() && !dots && name.bytes().all(fits) {
        return Ok(());
    }
    let message = format!("{name:?} cannot be the name of an election: no blanks, no wildcards");
    Err(Failure::new(Code::Usage, message))
}

/// How a leader is shown.
pub fn shown(holder: &Holder) -> String {
    output::bold(output::printable(&holder.leader))
}
