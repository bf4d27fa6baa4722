//! Requests to JetStream, and their responses.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::config::BucketConfig;
use super::connection::{Connection, Reason, RequestFailure};
use super::error::{BucketError, BucketErrorKind};
use super::reply_inbox::Request;
use super::stream::{StoredMessage, StreamInfo};
use crate::lock::{Effect, Error, LockError, LockErrorKind};
use crate::time::timer::deadline_after;
use crate::util::text::escape_line;

pub(super) const DEFAULT_PREFIX: &str = "$JS.API";

/// The maximum length in bytes of a server's text in an error.
const MAX_QUOTE: usize = 256;

/// JetStream error codes. They decide the meaning of a response, because texts differ between
/// servers.
pub(super) mod code {
    pub(crate) const NO_MESSAGE: u64 = 10037;
    pub(crate) const NOT_ENABLED_FOR_ACCOUNT: u64 = 10039;
    pub(crate) const MESSAGE_TOO_LARGE: u64 = 10054;
    pub(crate) const STREAM_NAME_EXISTS: u64 = 10058;
    pub(crate) const STREAM_NOT_FOUND: u64 = 10059;
    pub(crate) const STREAM_MISMATCH: u64 = 10060;
    pub(crate) const WRONG_LAST_SEQUENCE: u64 = 10071;
    pub(crate) const REPLICAS_NOT_SUPPORTED: u64 = 10074;
    pub(crate) const NOT_ENABLED: u64 = 10076;
    pub(crate) const STREAM_SEALED: u64 = 10109;
    /// The server is not ready to check a condition.
    pub(crate) const WRONG_LAST_SEQUENCE_NOT_READY: u64 = 10163;
    /// Another client's write to the key is in flight.
    pub(crate) const WRONG_LAST_SEQUENCE_IN_FLIGHT: u64 = 10164;
    pub(crate) const TTL_INVALID: u64 = 10165;
    pub(crate) const TTL_DISABLED: u64 = 10166;
}

/// The subjects of a bucket, and the connection to send requests on.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) connection: Connection,
    bucket: String,
    prefix: String,
    /// The prefix of the subjects of keys, ending with a dot.
    keys: String,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum ApiFailure {
    /// No response.
    Request(RequestFailure),
    /// The server's own error.
    Server(ApiError),
    /// The response is not one of JetStream.
    Malformed(Malformed),
}

/// What a failure says of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A condition on the last sequence of a subject does not hold.
    Mismatch,
    /// Another conditional write on the same subject is in flight.
    InFlight,
    /// The server is not ready to check a condition.
    NotReady,
    /// There is no such message.
    NoMessage,
    /// There is no such stream.
    NoStream,
    /// The stream accepts no TTL.
    NoTtl,
    /// The server denies the permission to send it.
    Denied,
    /// It was not applied, and retrying does not help.
    Refused,
    /// It was not applied. Retrying may help: no leader, no space, no quorum.
    NotApplied,
    /// No response came: it may have been applied.
    Unknown,
}

impl ApiFailure {
    pub(super) fn meaning(&self) -> Meaning {
        match self {
            Self::Request(failure) => match failure {
                RequestFailure::Denied(_) => Meaning::Denied,
                RequestFailure::Malformed(_) => Meaning::Refused,
                RequestFailure::Disconnected | RequestFailure::NoResponders => Meaning::NotApplied,
                RequestFailure::Unanswerable(_)
                | RequestFailure::TimedOut(_)
                | RequestFailure::Broken(_) => Meaning::Unknown,
            },
            Self::Malformed(_) => Meaning::Unknown,
            Self::Server(error) => match error.err_code {
                code::WRONG_LAST_SEQUENCE => Meaning::Mismatch,
                code::WRONG_LAST_SEQUENCE_IN_FLIGHT => Meaning::InFlight,
                code::WRONG_LAST_SEQUENCE_NOT_READY => Meaning::NotReady,
                code::NO_MESSAGE => Meaning::NoMessage,
                code::STREAM_NOT_FOUND => Meaning::NoStream,
                code::TTL_DISABLED => Meaning::NoTtl,
                code::MESSAGE_TOO_LARGE
                | code::TTL_INVALID
                | code::STREAM_MISMATCH
                | code::STREAM_SEALED => Meaning::Refused,
                _ => Meaning::NotApplied,
            },
        }
    }

    /// Returns the reason, as [`RequestFailure::reason`] does.
    pub(super) fn reason(self, connection: &Connection, unheard: &str) -> Reason {
        match self {
            Self::Request(failure) => failure.reason(connection, unheard),
            Self::Server(error) => (error.to_string(), None),
            Self::Malformed(error) => {
                ("the response is not one of JetStream".to_owned(), Some(error.into()))
            }
        }
    }
}

/// The problem with a response that is not one of JetStream. Truncated, because serde_json's error
/// quotes the response, however long.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(String);

impl Malformed {
    fn new(text: &str) -> Self {
        Self(escape_line(text, MAX_QUOTE).into_owned())
    }
}

impl From<serde_json::Error> for Malformed {
    fn from(error: serde_json::Error) -> Self {
        Self::new(&error.to_string())
    }
}

#[derive(Debug, Clone, Deserialize, thiserror::Error)]
#[error("{} (JetStream error {err_code})", escape_line(description, MAX_QUOTE))]
pub(super) struct ApiError {
    #[serde(default)]
    code: u64,
    #[serde(default)]
    pub(super) err_code: u64,
    #[serde(default)]
    description: String,
}

/// The acknowledgement of a write.
#[derive(Debug, Deserialize)]
pub(super) struct Ack {
    stream: String,
    seq: u64,
}

/// What almost every response to a write is: without an error, and its text without escapes.
#[derive(Deserialize)]
struct PlainAck<'a> {
    stream: &'a str,
    seq: u64,
    #[serde(default)]
    error: Option<serde::de::IgnoredAny>,
}

impl Ack {
    /// Reads the response to a write to the bucket: at once and without a copy where it is plain.
    fn sequence(payload: &[u8], bucket: &str) -> Result<u64, ApiFailure> {
        match serde_json::from_slice(payload) {
            Ok(PlainAck { stream, seq: seq @ 1.., error: None })
                if stream.strip_prefix("KV_") == Some(bucket) =>
            {
                Ok(seq)
            }
            _ => decode::<Self>(payload)?.sequence_in(bucket),
        }
    }

    /// Returns the sequence, if it is one of the bucket's stream: any subscriber of the key may
    /// respond, too.
    pub(super) fn sequence_in(self, bucket: &str) -> Result<u64, ApiFailure> {
        if self.stream.strip_prefix("KV_") == Some(bucket) && self.seq > 0 {
            Ok(self.seq)
        } else {
            let text = format!("sequence {} of stream {}", self.seq, self.stream);
            Err(ApiFailure::Malformed(Malformed::new(&text)))
        }
    }
}

impl Api {
    pub(super) fn new(connection: Connection, config: &BucketConfig) -> Self {
        let prefix = config.api_prefix.clone().unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
        let below = if prefix == DEFAULT_PREFIX { String::new() } else { format!("{prefix}.") };
        Self {
            connection,
            keys: format!("{below}$KV.{}.", config.name),
            bucket: config.name.clone(),
            prefix,
        }
    }

    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns whether the bucket's JetStream is that of the connected server.
    pub(super) fn is_local(&self) -> bool {
        self.prefix == DEFAULT_PREFIX
    }

    /// Sends a conditional write, and returns the new sequence.
    ///
    /// Not an `async fn`, which would keep what is sent until the response arrives.
    pub(super) fn publish(
        &self,
        key: &str,
        headers: HeaderMap,
        payload: Bytes,
        timeout: Duration,
    ) -> impl Future<Output = Result<u64, ApiFailure>> + Send + use<'_> {
        let subject = format!("{}{key}", self.keys).into();
        let request = Box::new(Request { subject, headers: Some(headers), payload });
        async move {
            let message = self.connection.request(request, timeout).await;
            let message = message.map_err(ApiFailure::Request)?;
            Ack::sequence(&message.payload, &self.bucket)
        }
    }

    /// Returns the last message of a key, from the leader of the stream: only the leader is never
    /// stale.
    pub(super) async fn last_message(
        &self,
        key: &str,
        timeout: Duration,
    ) -> Result<StoredMessage, ApiFailure> {
        let subject = format!("$KV.{}.{key}", self.bucket);
        self.message(&serde_json::json!({ "last_by_subj": subject }), timeout).await
    }

    /// Returns the first message of a key that has at least this sequence.
    pub(super) async fn next_message(
        &self,
        key: &str,
        sequence: u64,
        timeout: Duration,
    ) -> Result<StoredMessage, ApiFailure> {
        let subject = format!("$KV.{}.{key}", self.bucket);
        self.message(&serde_json::json!({ "seq": sequence, "next_by_subj": subject }), timeout)
            .await
    }

    async fn message(
        &self,
        get: &serde_json::Value,
        timeout: Duration,
    ) -> Result<StoredMessage, ApiFailure> {
        self.call::<Got>("STREAM.MSG.GET", get, timeout).await.map(|got| got.message)
    }

    pub(super) async fn info(&self, timeout: Duration) -> Result<StreamInfo, ApiFailure> {
        self.call("STREAM.INFO", &serde_json::json!({}), timeout).await
    }

    /// Returns the information on the stream, with the subjects of all keys. A server returns
    /// 100,000 of them at once.
    pub(super) async fn info_with_keys(&self, timeout: Duration) -> Result<StreamInfo, ApiFailure> {
        let deadline = deadline_after(timeout);
        let mut subjects = HashMap::new();
        loop {
            let filter = format!("$KV.{}.>", self.bucket);
            let page = serde_json::json!({ "subjects_filter": filter, "offset": subjects.len() });
            let left = deadline.saturating_duration_since(Instant::now());
            let mut info: StreamInfo = self.call("STREAM.INFO", &page, left).await?;
            let before = subjects.len();
            subjects.extend(info.state.subjects.take().unwrap_or_default());
            if subjects.len() >= info.total || subjects.len() == before {
                info.state.subjects = Some(subjects);
                return Ok(info);
            }
        }
    }

    pub(super) async fn create(
        &self,
        stream: &impl Serialize,
        timeout: Duration,
    ) -> Result<StreamInfo, ApiFailure> {
        self.call("STREAM.CREATE", stream, timeout).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        verb: &str,
        body: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, ApiFailure> {
        let subject = format!("{}.{verb}.KV_{}", self.prefix, self.bucket);
        let body = serde_json::to_vec(body).map_err(malformed)?;
        let (subject, payload) = (subject.into(), body.into());
        request(&self.connection, Request { subject, headers: None, payload }, timeout).await
    }

    /// Converts a failed request into the error of a bucket.
    pub(super) fn bucket_error(&self, failure: ApiFailure, doing: &str) -> BucketError {
        use BucketErrorKind::{Denied, Missing, Unavailable, Unusable};
        let name = &self.bucket;
        let kind = match (failure.meaning(), &failure) {
            (Meaning::NoStream, _) => {
                let message = format!("bucket {name} does not exist; create it first");
                return BucketError::new(Missing, message);
            }
            (_, ApiFailure::Server(error)) if error.code != 400 => Unavailable,
            (Meaning::Refused, _) | (_, ApiFailure::Server(_)) => Unusable,
            (Meaning::Denied, _) => Denied,
            _ => Unavailable,
        };
        self.error(kind, failure, &format!("bucket {name}: {doing}"))
    }

    /// Converts a failed request into the error of a lock.
    pub(super) fn lock_error(&self, failure: ApiFailure, doing: &str, effect: Effect) -> LockError {
        use LockErrorKind::{Conflict, Denied, Misconfigured, Unavailable};
        let name = &self.bucket;
        let kind = match failure.meaning() {
            Meaning::Mismatch | Meaning::InFlight => Conflict,
            Meaning::NoStream => {
                let message = format!("bucket {name} does not exist; waiting for it");
                return LockError::new(Unavailable, message);
            }
            Meaning::NoTtl => {
                let message = format!(
                    "bucket {name} no longer accepts message TTLs; reading its settings again"
                );
                return LockError::new(Unavailable, message);
            }
            Meaning::Denied => Denied,
            Meaning::Refused => Misconfigured,
            Meaning::NotReady | Meaning::NoMessage | Meaning::NotApplied => Unavailable,
            Meaning::Unknown => effect.lost(),
        };
        self.error(kind, failure, &format!("{doing} in bucket {name}"))
    }

    /// Returns the error of a failed request. `what`: the request.
    pub(super) fn error<K>(&self, kind: K, failure: ApiFailure, what: &str) -> Error<K> {
        let (reason, source) = failure.reason(&self.connection, "the bucket is missing");
        let message = format!("{what}: {reason}");
        match source {
            Some(source) => Error::with_source(kind, message, source),
            None => Error::new(kind, message),
        }
    }
}

/// The response to a request for a message.
#[derive(Deserialize)]
pub(super) struct Got {
    pub(super) message: StoredMessage,
}

/// Sends a request to JetStream, and parses its response.
pub(super) async fn request<T: DeserializeOwned>(
    connection: &Connection,
    request: Request,
    timeout: Duration,
) -> Result<T, ApiFailure> {
    let message = connection.request(Box::new(request), timeout).await;
    decode(&message.map_err(ApiFailure::Request)?.payload)
}

/// Parses a response. A refused publish has `"seq":0` beside its error, so the error is parsed
/// first.
pub(super) fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, ApiFailure> {
    #[derive(Deserialize)]
    struct Refusal {
        #[serde(default)]
        error: Option<ApiError>,
    }
    match serde_json::from_slice::<Refusal>(payload).map_err(malformed)?.error {
        Some(error) => Err(ApiFailure::Server(error)),
        None => serde_json::from_slice(payload).map_err(malformed),
    }
}

fn malformed(error: serde_json::Error) -> ApiFailure {
    ApiFailure::Malformed(error.into())
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
