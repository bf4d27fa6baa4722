//! Roll calls: requests on a subject of the bucket, which every candidate answers.

use std::time::Duration;

use futures_util::StreamExt;

use super::connection::Connection;
use super::events::ConnectionEvent;
use super::state::BucketState;
use crate::lock::roll_call::{Answers, to_json};
use crate::lock::{
    CallId, CandidateInfo, CandidateRequest, LockError, LockErrorKind, Nonce, RollCall, Successor,
};

/// The timeout of sending one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The prefix of the subjects of roll calls, ending with a dot. Not that of hints: who may call
/// must not be able to send what candidates act upon.
pub(super) fn call_prefix(bucket: &str) -> String {
    format!("incumbent-roll-call.{bucket}.")
}

/// The prefix of the subjects of requests that a leader or a candidate acts upon, ending with a
/// dot: a permission of its own.
pub(super) fn control_prefix(bucket: &str) -> String {
    format!("incumbent-control.{bucket}.")
}

/// The subject of the answers to a call.
pub(super) fn answer_subject(bucket: &str, name: &str, id: CallId) -> String {
    format!("incumbent-answer.{bucket}.{name}.{id}")
}

pub(super) async fn call(
    bucket: &BucketState,
    name: &str,
    request: CandidateRequest,
    within: Duration,
) -> Result<Vec<CandidateInfo>, LockError> {
    let connection = connected(bucket)?;
    let client = connection.client();
    let unsent = |error: &dyn std::fmt::Display| {
        LockError::new(LockErrorKind::Unavailable, format!("cannot call the roll: {error}"))
    };
    let call = RollCall { id: CallId::random(), within, request };
    let prefix = if call.request.is_question() { call_prefix } else { control_prefix };
    let subject = format!("{}{name}", prefix(bucket.api.bucket()));
    let answered_on = answer_subject(bucket.api.bucket(), name, call.id);
    let mut events = connection.events();
    let mut answers =
        client.subscribe(answered_on.clone()).await.map_err(|error| unsent(&error))?;
    let sent = client.publish(subject.clone(), to_json(&call).into()).await;
    sent.map_err(|error| unsent(&error))?;
    client.flush().await.map_err(|error| unsent(&error))?;
    let mut found = Answers::to(call.request);
    let end = tokio::time::sleep(within);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return Ok(found.into_vec()),
            event = events.next() => {
                let missing = match event {
                    ConnectionEvent::PublishDenied(denied) if *denied == *subject => "publish",
                    ConnectionEvent::SubscribeDenied(denied) if *denied == *answered_on => "subscribe",
                    _ => continue,
                };
                let to = if missing == "publish" { &subject } else { &answered_on };
                let what = format!("no permission to {missing} to {to}");
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
    name: &str,
    call: &RollCall,
    info: &CandidateInfo,
) -> Result<(), LockError> {
    let connection = connected(bucket)?;
    let subject = answer_subject(bucket.api.bucket(), name, call.id);
    let published = connection.client().publish(subject, to_json(info).into());
    match tokio::time::timeout(SEND_TIMEOUT, published).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(LockError::new(LockErrorKind::Unavailable, "cannot send the answer")),
    }
}

/// Notifies the successor that a release names, to which the release may not have been reported:
/// the hints of standbys may be sampled. Nothing waits for its answer.
pub(super) async fn notify_successor(
    bucket: &BucketState,
    name: &str,
    to: Nonce,
    within: Duration,
) {
    let Ok(connection) = connected(bucket) else { return };
    let request = CandidateRequest::WhoCanSucceed(Successor::Candidate(to));
    let call = RollCall { id: CallId::random(), within: Duration::ZERO, request };
    let subject = format!("{}{name}", call_prefix(bucket.api.bucket()));
    let client = connection.client();
    let sent = async {
        if client.publish(subject, to_json(&call).into()).await.is_ok() {
            let _ = client.flush().await; // this process may end next
        }
    };
    let _ = tokio::time::timeout(SEND_TIMEOUT.min(within), sent).await; // then the lease decides
}

fn connected(bucket: &BucketState) -> Result<&Connection, LockError> {
    let connection = &bucket.api.connection;
    match connection.is_connected() {
        true => Ok(connection),
        false => Err(LockError::new(LockErrorKind::Unavailable, "not connected to NATS")),
    }
}
