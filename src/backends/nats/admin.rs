//! `LockAdmin` for a bucket. Everything but an eviction needs only the permissions of an observer,
//! and works on a bucket that is unfit for elections too.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::Message;
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::ready;

use super::api::{ApiFailure, code};
use super::checkpoints;
use super::codec;
use super::connection::RequestFailure;
use super::error::AdminFailure;
use super::health;
use super::lock::{NatsLock, check_key};
use super::state::BucketState;
use super::stream::{Expiry, StoredMessage, StreamInfo};
use super::time::since_epoch;
use crate::lock::record::from_unix;
use crate::lock::{
    Effect, ElectionRecord, ElectionUpdate, ElectionWatch, Finding, LockAdmin, LockError,
    LockErrorKind, LockFacts, Position, Record, Revision, Vacancy, evict,
};

/// The most stored writes of one election that are read; a key-value bucket has 64 at most.
const MAX_STORED: usize = 1000;

/// A record shows what its writer states, whatever the bucket makes of it.
const AS_STATED: Expiry = Expiry { max_age: None, slack: Duration::ZERO, own: true };

impl NatsLock {
    async fn info(&self, timeout: Duration) -> Result<StreamInfo, LockError> {
        let api = &self.state().api;
        api.info(timeout).await.map_err(|failure| self.failure(failure, "status"))
    }

    /// The error of a request for an operator.
    fn failure(&self, failure: ApiFailure, doing: &str) -> LockError {
        use LockErrorKind::{Denied, Missing, Unavailable};
        let bucket = self.state().api.bucket();
        match failure {
            ApiFailure::Server(error) => match error.err_code {
                code::STREAM_NOT_FOUND => {
                    LockError::new(Missing, format!("bucket {bucket}: the bucket does not exist"))
                }
                code::NOT_ENABLED | code::NOT_ENABLED_FOR_ACCOUNT => self.without_jetstream(),
                _ => {
                    let message = format!("{doing} in bucket {bucket}: {error}");
                    LockError::with_source(Unavailable, message, AdminFailure::Refused)
                }
            },
            ApiFailure::Request(RequestFailure::NoResponders) => self.without_jetstream(),
            failure @ ApiFailure::Request(RequestFailure::Unanswerable(_)) => {
                self.state().api.error(Denied, failure, &format!("{doing} in bucket {bucket}"))
            }
            ApiFailure::Request(RequestFailure::TimedOut(timeout)) => {
                let message = format!("{doing} in bucket {bucket}: no response within {timeout:?}");
                LockError::with_source(Unavailable, message, AdminFailure::TimedOut)
            }
            failure => self.state().api.lock_error(failure, doing, Effect::Read),
        }
    }

    fn without_jetstream(&self) -> LockError {
        let message = format!("bucket {}: no response from JetStream", self.state().api.bucket());
        LockError::with_source(LockErrorKind::Unavailable, message, AdminFailure::NoJetStream)
    }

    fn found(
        &self,
        name: &str,
        message: Result<StoredMessage, ApiFailure>,
    ) -> Result<Option<ElectionRecord>, LockError> {
        let message = match message {
            Ok(message) => message,
            Err(ApiFailure::Server(error)) if error.err_code == code::NO_MESSAGE => {
                return Ok(None);
            }
            Err(failure) => return Err(self.failure(failure, &format!("election {name}"))),
        };
        let content = codec::stored_content(&message, AS_STATED);
        let record = Record { revision: Revision(message.seq), content };
        let written = since_epoch(&message.time).and_then(from_unix);
        Ok(Some(ElectionRecord { written, ..ElectionRecord::of(name, record, true) }))
    }
}

#[async_trait]
impl LockAdmin for NatsLock {
    async fn facts(&self, timeout: Duration) -> Result<LockFacts, LockError> {
        let info = self.info(timeout).await?;
        Ok(LockFacts {
            has_lock_times: true,
            created: since_epoch(&info.created).and_then(from_unix),
            stored_writes: info.config.max_msgs_per_subject,
            // A deletion leaves a marker.
            ..LockFacts::new(info.config.longest_lease(), Vacancy::Expired)
        })
    }

    /// Asks the leader of the stream.
    async fn record(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<ElectionRecord>, LockError> {
        // Whoever writes to the bucket may choose a key that no election has.
        let is_literal = |token: &str| !matches!(token, "" | "*" | ">");
        if !name.split('.').all(is_literal) || name.contains(char::is_whitespace) {
            return Ok(None); // of several keys, or of none
        }
        self.found(name, self.state().api.last_message(name, timeout).await)
    }

    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        let api = &self.state().api;
        let info = api.info_with_keys(timeout).await;
        let info = info.map_err(|failure| self.failure(failure, "list of elections"))?;
        let prefix = format!("$KV.{}.", api.bucket());
        let subjects = info.state.subjects.into_iter().flatten();
        Ok(subjects
            .filter_map(|(subject, _)| Some(subject.strip_prefix(&prefix)?.to_owned()))
            .filter(|key| !checkpoints::is_checkpoint(key))
            .collect())
    }

    /// Reports hints, if the bucket republishes what it stores.
    async fn watch(&self, names: &[String], timeout: Duration) -> Result<ElectionWatch, LockError> {
        let api = &self.state().api;
        let republished = self.info(timeout).await?.config.republished_under(api.bucket());
        let is_stored = republished.is_some();
        let prefix = republished.unwrap_or_else(|| format!("$KV.{}.", api.bucket()));
        let subject = match names {
            [name] => format!("{prefix}{name}"),
            _ => format!("{prefix}>"),
        };
        let messages = api.connection.client().subscribe(subject).await.map_err(|error| {
            let message = format!("watch of bucket {}", api.bucket());
            LockError::with_source(LockErrorKind::Unavailable, message, error)
        })?;
        let stream = format!("KV_{}", api.bucket());
        let updates = messages.filter_map(move |message| {
            // What is not republished was received before it is stored or refused.
            let update = match is_stored {
                true => hint(&message, &prefix, &stream),
                false => Some(ElectionUpdate::Recheck),
            };
            ready(update.map(Ok))
        });
        Ok(ElectionWatch::new(updates, is_stored))
    }

    async fn evict(
        &self,
        name: &str,
        expected: Revision,
        timeout: Duration,
    ) -> Result<(), LockError> {
        // A lock of its own requests the TTL anew, by which the successor waits, and promised none.
        let (connection, mut config) =
            (self.state().api.connection.clone(), self.state().config.clone());
        config.create = false;
        evict(
            &NatsLock::new(Arc::new(BucketState::new(connection, config))),
            name,
            expected,
            timeout,
        )
        .await
    }

    /// Of the bucket.
    async fn diagnose(
        &self,
        _name: Option<&str>,
        timeout: Duration,
    ) -> Result<Option<Vec<Finding>>, LockError> {
        let found = health::check(self.state(), timeout).await;
        found.map(Some).map_err(|failure| self.failure(failure, "check"))
    }

    async fn position(&self, timeout: Duration) -> Result<Option<Position>, LockError> {
        let state = self.info(timeout).await?.state;
        Ok(Some(Position { last: state.last_seq, entries: state.num_subjects }))
    }

    /// Reads one after the other, as an observer may: a consumer would need more permissions.
    async fn stored(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<Vec<ElectionRecord>>, LockError> {
        let mut stored: Vec<ElectionRecord> = Vec::new();
        while stored.len() < MAX_STORED {
            let last = stored.last().map_or(0, |last| last.revision.0);
            let next = self.state().api.next_message(name, last.saturating_add(1), timeout).await;
            match self.found(name, next)? {
                Some(record) if record.revision.0 > last => stored.push(record),
                _ => break,
            }
        }
        Ok(Some(stored))
    }
}

/// The write that a message states. Step-down notices arrive there too, and are not stored.
fn hint(message: &Message, prefix: &str, stream: &str) -> Option<ElectionUpdate> {
    let republished = codec::republished(&message.headers, stream)?;
    let name = message.subject.as_str().strip_prefix(prefix)?;
    check_key(name).ok()?;
    let content = codec::content(&message.headers, &message.payload, AS_STATED);
    let record = Record { revision: republished.revision, content };
    let written = republished.stored_at.and_then(from_unix).unwrap_or_else(SystemTime::now);
    let record =
        ElectionRecord { written: Some(written), ..ElectionRecord::of(name, record, true) };
    Some(ElectionUpdate::Hint { record, previous: republished.previous.flatten() })
}
