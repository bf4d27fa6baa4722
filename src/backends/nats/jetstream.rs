//! Requests to any stream, for what is beside the lock: fences.

use std::time::Duration;

use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::api::{ApiFailure, DEFAULT_PREFIX, Got, Meaning, request};
use super::codec::{is_deletion, stored_value};
use super::connection::Connection;
use super::reply_inbox::Request;
use super::stream::{StreamConfig, StreamInfo};

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
        let body = serde_json::json!({ "last_by_subj": subject }).to_string();
        let verb = format!("{DEFAULT_PREFIX}.STREAM.MSG.GET.{stream}");
        let Got { message } = self.request(verb.into(), None, body.into(), timeout).await?;
        Ok(LastMessage {
            sequence: message.seq,
            payload: stored_value(&message),
            is_deletion: is_deletion(&message),
        })
    }

    /// Returns the settings of a stream.
    pub(crate) async fn config(
        &self,
        stream: &str,
        timeout: Duration,
    ) -> Result<StreamConfig, StreamFailure> {
        Ok(self.info(stream, timeout).await?.config)
    }

    /// Returns the sequence of the last message of a stream.
    pub(crate) async fn last_sequence(
        &self,
        stream: &str,
        timeout: Duration,
    ) -> Result<u64, StreamFailure> {
        Ok(self.info(stream, timeout).await?.state.last_seq)
    }

    async fn info(&self, stream: &str, timeout: Duration) -> Result<StreamInfo, StreamFailure> {
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
        let sent = Request { subject, headers, payload };
        request(&self.connection, sent, timeout).await.map_err(|failure| self.failure(failure))
    }

    fn failure(&self, failure: ApiFailure) -> StreamFailure {
        use StreamFailure::{InFlight, Mismatch, NoMessage, NotApplied, Refused, Unknown};
        let meaning = failure.meaning();
        let why = match failure.reason(&self.connection, "no stream has the subject") {
            (reason, Some(source)) => format!("{reason}: {source}"),
            (reason, None) => reason,
        };
        match meaning {
            Meaning::Mismatch => Mismatch,
            Meaning::InFlight | Meaning::NotReady => InFlight,
            Meaning::NoMessage => NoMessage,
            Meaning::NoStream | Meaning::NoTtl | Meaning::Denied | Meaning::Refused => Refused(why),
            Meaning::NotApplied => NotApplied(why),
            Meaning::Unknown => Unknown(why),
        }
    }
}
