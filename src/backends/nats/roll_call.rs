//! Roll calls: requests on a subject of the bucket, which every candidate answers.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, HeaderName, Message};
use bytes::Bytes;
use futures_util::StreamExt;

use super::codec::Headers;
use super::connection::Connection;
use super::state::BucketState;
use crate::lock::roll_call::{Answers, parse_request, request_to_json, to_json};
use crate::lock::{CandidateInfo, CandidateRequest, LockError, LockErrorKind, RollCall};

/// For how long answers are awaited, in milliseconds.
const WITHIN: HeaderName = HeaderName::from_static("Incumbent-Within-Ms");
/// The longest address of a reply, in bytes.
const MAX_REPLY_LEN: usize = 255;
/// The timeout of sending one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The prefix of the subjects of roll calls, ending with a dot. Not that of hints: who may call
/// must not be able to send what candidates act upon.
pub(super) fn call_prefix(bucket: &str) -> String {
    format!("incumbent-roll-call.{bucket}.")
}

/// The prefix of the subjects of requests that a leader or a candidate acts upon, ending with a
/// dot: a right of its own.
pub(super) fn control_prefix(bucket: &str) -> String {
    format!("incumbent-control.{bucket}.")
}

/// Reads a call; `None` if it asks for no answer.
pub(super) fn call_of(message: &Message) -> Option<RollCall> {
    let request = match message.payload.is_empty() {
        true => CandidateRequest::Identify,
        false => parse_request(&message.payload).filter(CandidateRequest::is_question)?,
    };
    with_request(message, request)
}

/// Reads a call with a request; `None` if it is none.
pub(super) fn control_of(message: &Message) -> Option<RollCall> {
    with_request(message, parse_request(&message.payload)?)
}

fn with_request(message: &Message, request: CandidateRequest) -> Option<RollCall> {
    let within_ms = message.headers.value(WITHIN)?.parse().ok()?;
    Some(RollCall::new(reply_address(message.reply.as_ref()?)?, within_ms, request))
}

/// The address to which a call is answered: a subject below an inbox.
///
/// A caller names it, and a candidate publishes to it with its own permissions, which are
/// to write entries and more. So any other subject is refused.
pub(super) fn reply_address(subject: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'>');
    let (inbox, below) = subject.split_once('.')?;
    let fits = inbox.starts_with("_INBOX") && !below.is_empty();
    (fits && subject.len() <= MAX_REPLY_LEN && subject.bytes().all(plain)).then_some(subject)
}

pub(super) async fn call(
    bucket: &BucketState,
    name: &str,
    request: CandidateRequest,
    within: Duration,
) -> Result<Vec<CandidateInfo>, LockError> {
    let connection = connected(bucket)?;
    let client = connection.client();
    let inbox = client.new_inbox();
    if reply_address(&inbox).is_none() {
        let what = "no roll calls: candidates answer below _INBOX alone, so let the inbox prefix of the connection begin with it";
        return Err(LockError::new(LockErrorKind::Misconfigured, what));
    }
    let unsent = |error: &dyn std::fmt::Display| {
        LockError::new(LockErrorKind::Unavailable, format!("cannot call the roll: {error}"))
    };
    let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| unsent(&error))?;
    let prefix = if request.is_question() { call_prefix } else { control_prefix };
    let prefix = prefix(bucket.api.bucket());
    let payload = match &request {
        CandidateRequest::Identify => Bytes::new(),
        request => request_to_json(request).into(),
    };
    let subject = format!("{prefix}{name}");
    let mut headers = HeaderMap::new();
    headers.insert(WITHIN, within.as_millis().to_string().as_str());
    let mut events = connection.events();
    let sent = client.publish_with_reply_and_headers(subject.clone(), inbox, headers, payload);
    sent.await.map_err(|error| unsent(&error))?;
    client.flush().await.map_err(|error| unsent(&error))?;
    let mut found = Answers::to(request);
    let end = tokio::time::sleep(within);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return Ok(found.into_vec()),
            () = events.publish_denied(&subject) => {
                let what = format!("no permission to publish to {subject}");
                return Err(LockError::new(LockErrorKind::Denied, what));
            }
            answer = answers.next() => match answer {
                Some(answer) if found.take(&answer.payload) => return Ok(found.into_vec()),
                Some(_) => {}
                None => return Err(unsent(&"the connection was closed")),
            },
        }
    }
}

pub(super) async fn answer(
    bucket: &BucketState,
    call: &RollCall,
    info: &CandidateInfo,
) -> Result<(), LockError> {
    let connection = connected(bucket)?;
    let subject = Arc::clone(&call.reply_to);
    let published = connection.client().publish(subject.to_string(), to_json(info).into());
    match tokio::time::timeout(SEND_TIMEOUT, published).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(LockError::new(LockErrorKind::Unavailable, "cannot send the answer")),
    }
}

fn connected(bucket: &BucketState) -> Result<&Connection, LockError> {
    let connection = &bucket.api.connection;
    match connection.is_connected() {
        true => Ok(connection),
        false => Err(LockError::new(LockErrorKind::Unavailable, "not connected to NATS")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_go_below_an_inbox_alone() {
        for good in ["_INBOX.x", "_INBOX_observer.abc.def"] {
            assert_eq!(reply_address(good), Some(good));
        }
        let long = format!("_INBOX.{}", "x".repeat(MAX_REPLY_LEN));
        for bad in [
            "",
            "_INBOX",
            "_INBOX.",
            "$KV.B.my_app",
            "$JS.API.STREAM.PURGE.KV_B",
            "incumbent.B.my_app",
            "_INBOX.*",
            "_INBOX.a.>",
            "_INBOX.a b",
            "_INBOX.a\r\n",
            "x._INBOX.a",
            &long,
        ] {
            assert_eq!(reply_address(bad), None, "{bad:?}");
        }
    }
}
