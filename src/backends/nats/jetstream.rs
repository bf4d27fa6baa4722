//! Requests to any stream, for what is beside the lock: fences.

use std::time::Duration;

use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::api::{ApiFailure, DEFAULT_PREFIX, code, decode_bytes};
use super::codec::{is_deletion, stored_value};
use super::connection::{Connection, RequestFailure};
use super::message::StoredMessage;
use super::reply_inbox::Request;

/// Requests to streams on one connection.
#[derive(Debug)]
pub(crate) struct JetStream {
    connection: Connection,
}

/// Why a request to a stream failed.
#[derive(Debug)]
pub(crate) enum StreamFailure {
    /// A condition on the last sequence of a subject does not hold.
    Mismatch,
    /// Another conditional write on the same subject is in flight.
    InFlight,
    /// There is no such message.
    NoMessage,
    /// It was not applied; retrying may help.
    NotApplied(String),
    /// It was not applied, and retrying does not help.
    Refused(String),
    /// No response came: it may have been applied.
    Unknown(String),
}

/// The acknowledgement of a stored message.
#[derive(Debug, Deserialize)]
pub(crate) struct Published {
    pub(crate) stream: String,
    #[serde(rename = "seq")]
    pub(crate) sequence: u64,
    /// An earlier message has the same `Nats-Msg-Id`: this one was not stored.
    #[serde(default)]
    pub(crate) duplicate: bool,
}

/// The last message of a subject.
#[derive(Debug)]
pub(crate) struct LastMessage {
    pub(crate) sequence: u64,
    pub(crate) payload: Vec<u8>,
    /// It says that its key was deleted.
    pub(crate) is_deletion: bool,
}

/// The settings of a stream by which it removes messages, or changes what is published.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Retention {
    pub(crate) retention: String,
    pub(crate) discard: String,
    pub(crate) discard_new_per_subject: bool,
    /// `file`, or `memory`.
    pub(crate) storage: String,
    pub(crate) max_msgs: i64,
    pub(crate) max_bytes: i64,
    /// In nanoseconds; 0: forever.
    pub(crate) max_age: u64,
    pub(crate) allow_msg_ttl: bool,
    pub(crate) num_replicas: u64,
    pub(crate) mirror: Option<IgnoredAny>,
}

impl JetStream {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Publishes a message, and returns the acknowledgement of the stream that stored it.
    pub(crate) async fn publish(
        &self,
        subject: Subject,
        headers: HeaderMap,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Published, StreamFailure> {
        self.request(subject, Some(headers), payload, timeout).await
    }

    /// Returns the last message of a subject from the leader of the stream.
    pub(crate) async fn last_message(
        &self,
        stream: &str,
        subject: &str,
        timeout: Duration,
    ) -> Result<LastMessage, StreamFailure> {
        #[derive(Deserialize)]
        struct Got {
            message: StoredMessage,
        }
        let body = serde_json::json!({ "last_by_subj": subject }).to_string();
        let verb = format!("{DEFAULT_PREFIX}.STREAM.MSG.GET.{stream}");
        let Got { message } = self.request(verb.into(), None, body.into(), timeout).await?;
        Ok(LastMessage {
            sequence: message.seq,
            payload: stored_value(&message),
            is_deletion: is_deletion(&message),
        })
    }

    /// Returns how a stream removes messages.
    pub(crate) async fn retention(
        &self,
        stream: &str,
        timeout: Duration,
    ) -> Result<Retention, StreamFailure> {
        #[derive(Deserialize)]
        struct Info {
            config: Retention,
        }
        let Info { config } = self.info(stream, timeout).await?;
        Ok(config)
    }

    /// Returns the sequence of the last message of a stream.
    pub(crate) async fn last_sequence(
        &self,
        stream: &str,
        timeout: Duration,
    ) -> Result<u64, StreamFailure> {
        #[derive(Deserialize)]
        struct Info {
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            last_seq: u64,
        }
        let Info { state } = self.info(stream, timeout).await?;
        Ok(state.last_seq)
    }

    async fn info<T: DeserializeOwned>(
        &self,
        stream: &str,
        timeout: Duration,
    ) -> Result<T, StreamFailure> {
        let verb = format!("{DEFAULT_PREFIX}.STREAM.INFO.{stream}");
        self.request(verb.into(), None, Bytes::new(), timeout).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        subject: Subject,
        headers: Option<HeaderMap>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<T, StreamFailure> {
        let request = Box::new(Request { subject, headers, payload });
        let message = self.connection.request(request, timeout).await?;
        Ok(decode_bytes(&message.payload)?)
    }
}

impl From<RequestFailure> for StreamFailure {
    fn from(failure: RequestFailure) -> Self {
        match failure {
            RequestFailure::Disconnected => Self::NotApplied("not connected to NATS".to_owned()),
            RequestFailure::NoResponders => Self::NotApplied(
                "no responders: no stream has the subject, or JetStream is off or has no leader"
                    .to_owned(),
            ),
            RequestFailure::Denied(subject) => Self::Refused(format!(
                "the server denies the permission to publish to {subject}; grant it"
            )),
            RequestFailure::Malformed(error) => {
                Self::Refused(format!("the client cannot send the request: {error}"))
            }
            RequestFailure::Unanswerable(inbox) => Self::Unknown(format!(
                "the server denies the permission to subscribe to {inbox}; grant it"
            )),
            RequestFailure::TimedOut(timeout) => {
                Self::Unknown(format!("no response within {timeout:?}"))
            }
            RequestFailure::Broken(error) => {
                Self::Unknown(format!("the connection broke: {error}"))
            }
        }
    }
}

impl From<ApiFailure> for StreamFailure {
    fn from(failure: ApiFailure) -> Self {
        match failure {
            ApiFailure::Request(failure) => failure.into(),
            ApiFailure::Malformed(error) => {
                Self::Unknown(format!("the response is not one of JetStream: {error}"))
            }
            ApiFailure::Server(error) => match error.err_code {
                code::WRONG_LAST_SEQUENCE => Self::Mismatch,
                code::WRONG_LAST_SEQUENCE_IN_FLIGHT | code::WRONG_LAST_SEQUENCE_NOT_READY => {
                    Self::InFlight
                }
                code::NO_MESSAGE => Self::NoMessage,
                code::MESSAGE_TOO_LARGE
                | code::STREAM_MISMATCH
                | code::STREAM_NOT_FOUND
                | code::STREAM_SEALED
                | code::TTL_INVALID
                | code::TTL_DISABLED => Self::Refused(error.to_string()),
                // No leader, no space, no quorum.
                _ => Self::NotApplied(error.to_string()),
            },
        }
    }
}
