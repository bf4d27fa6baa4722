//! The lock: conditional writes to one key per election.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use super::api::{ApiFailure, code};
use super::codec;
use super::connection::RequestFailure;
use super::error::BucketError;
use super::listener;
use super::roll_call;
use super::state::BucketState;
use super::stream::{self, StoredMessage, StreamFacts};
use crate::backends::hint_hub::guard;
use crate::lock::{
    CandidateInfo, CandidateRequest, Capabilities, CheckpointStore, Effect, HintSink, Lock,
    LockAdmin, LockError, LockErrorKind, Messages, Reading, Record, Release, Revision, RollCall,
    StepDownNotice, Subscription, Write,
};
use crate::protocol::{MIN_LEASE, TimingOptions};

/// The maximum length of an election's name in bytes.
const MAX_NAME_LEN: usize = 256;

/// The lock on a [`Bucket`](super::Bucket).
///
/// Each write is one request: never a client's key-value `create`, which sends two over a tombstone
/// and loses the TTL there, nor its `update`, which has no TTL. Reads go to the leader of the
/// stream, never to a replica.
#[derive(Clone)]
pub struct NatsLock(Arc<BucketState>);

impl NatsLock {
    pub(super) fn new(bucket: Arc<BucketState>) -> Self {
        Self(bucket)
    }

    pub(super) fn state(&self) -> &Arc<BucketState> {
        &self.0
    }

    /// Checks a name, and opens the bucket if it is not open yet. Also returns the remaining time.
    pub(super) async fn prepare(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<(Arc<StreamFacts>, Duration), LockError> {
        check_key(name).map_err(|rule| LockError::new(LockErrorKind::Misconfigured, rule))?;
        if let Some(facts) = self.state().current_facts() {
            return Ok((facts, timeout));
        }
        let start = Instant::now();
        // Boxed, as it is rare and takes most of the memory of a request.
        let facts = Box::pin(self.state().facts(timeout)).await;
        let facts = facts.map_err(BucketError::into_lock_error)?;
        Ok((facts, timeout.saturating_sub(start.elapsed())))
    }

    /// Requests the TTL again where it is in doubt, and refuses a create whose writer waits by
    /// another one, or without regard to Choria's candidates: `known_ttl`, `known_choria`.
    async fn prepare_create(
        &self,
        known_ttl: Duration,
        known_choria: bool,
        facts: Arc<StreamFacts>,
        timeout: Duration,
    ) -> Result<(Arc<StreamFacts>, Duration), LockError> {
        let start = Instant::now();
        let facts = match self.state().doubts_ttl() {
            false => facts,
            true => {
                let current = Box::pin(self.state().open(timeout)).await; // rare, and large
                current.map_err(BucketError::into_lock_error)?
            }
        };
        let bucket = &self.0.config.name;
        if facts.lease != known_ttl {
            let ttl = facts.lease;
            let message = format!("bucket {bucket}: its TTL is {ttl:?} now, and was {known_ttl:?}");
            return Err(LockError::new(LockErrorKind::Unavailable, message));
        }
        if facts.config.with_choria() && !known_choria {
            let message = format!("bucket {bucket}: Choria's candidates take part now");
            return Err(LockError::new(LockErrorKind::Unavailable, message));
        }
        Ok((facts, timeout.saturating_sub(start.elapsed())))
    }

    /// Converts the failure of a write into an error.
    pub(super) fn refused(&self, failure: ApiFailure, doing: &str) -> LockError {
        if shows_change(&failure) {
            self.state().mark_stale();
        }
        self.state().api.lock_error(failure, doing, Effect::Write)
    }

    async fn read_entry(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        let (facts, left) = self.prepare(name, timeout).await?;
        let start = Instant::now();
        match self.last_message(name, left).await? {
            Some(message) => {
                let revision = Revision(message.seq);
                self.state().on_read(name, revision);
                let content = codec::stored_content(&message, facts.expiry());
                self.state().note_content(&content);
                Ok(Reading::Found(Record { revision, content }))
            }
            None => {
                let left = left.saturating_sub(start.elapsed());
                let proof = Box::pin(self.state().proves_unused(left)).await;
                Ok(Reading::Empty { proof: proof.map_err(BucketError::into_lock_error)? })
            }
        }
    }

    pub(super) async fn last_message(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<StoredMessage>, LockError> {
        let inner = self.state();
        if !inner.can_read() {
            return Err(self.unreadable(name));
        }
        let epoch = inner.api.connection.epoch();
        match inner.api.last_message(name, timeout).await {
            Ok(message) => Ok(Some(message)),
            Err(ApiFailure::Server(error)) if error.err_code == code::NO_MESSAGE => Ok(None),
            Err(ApiFailure::Request(RequestFailure::Denied(_))) => {
                inner.reads_denied(epoch);
                Err(self.unreadable(name))
            }
            Err(failure) => {
                if shows_change(&failure) {
                    inner.mark_stale();
                }
                Err(inner.api.lock_error(failure, &format!("read of {name}"), Effect::Read))
            }
        }
    }

    fn unreadable(&self, name: &str) -> LockError {
        LockError::new(
            LockErrorKind::Denied,
            format!(
                "read of {name} in bucket {bucket}: permission denied; grant publishing to STREAM.MSG.GET.KV_{bucket}",
                bucket = self.0.config.name
            ),
        )
    }
}

/// Returns whether a failure shows that the bucket has changed.
fn shows_change(failure: &ApiFailure) -> bool {
    match failure {
        ApiFailure::Request(failure) => matches!(failure, RequestFailure::NoResponders),
        ApiFailure::Server(error) => matches!(
            error.err_code,
            code::STREAM_NOT_FOUND
                | code::TTL_DISABLED
                | code::TTL_INVALID
                | code::MESSAGE_TOO_LARGE
                | code::STREAM_SEALED
        ),
        ApiFailure::Malformed(_) => false,
    }
}

#[async_trait]
impl Lock for NatsLock {
    fn capabilities(&self) -> Capabilities {
        let inner = self.state();
        let facts = inner.known_facts();
        Capabilities {
            min_lease: MIN_LEASE,
            max_lease: facts.as_ref().map_or(inner.config.ttl, |facts| facts.lease),
            can_read: inner.can_read(),
            empty_is_proof: facts.as_ref().is_some_and(|facts| facts.empty_is_proof),
            expires_entries: true,
            reads_are_durable: true,
            max_identity_len: facts
                .map_or(stream::MAX_IDENTITY_LEN, |facts| facts.config.max_identity_len()),
        }
    }

    fn timing(&self) -> TimingOptions {
        let inner = self.state();
        let with_choria = inner.config.with_choria
            || inner.known_facts().is_some_and(|facts| facts.config.with_choria());
        TimingOptions { with_choria, ..TimingOptions::default() }
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_key(name)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        // Renewals need no permit; reads do, so that a process which starts thousands of elections
        // at once neither floods the server nor holds thousands of requests in memory.
        let _turn = self.state().read_permits.acquire().await; // never closed
        Box::pin(self.read_entry(name, timeout)).await
    }

    async fn write(&self, name: &str, mut write: Write) -> Result<Revision, LockError> {
        let (known_ttl, known_choria) = (self.capabilities().max_lease, self.timing().with_choria);
        let (mut facts, mut left) = self.prepare(name, write.timeout).await?;
        if write.mark.token.is_none() {
            (facts, left) = self.prepare_create(known_ttl, known_choria, facts, left).await?;
        }
        let mut max_len = facts.config.max_identity_len_with(codec::advertisement_len(&write));
        if write.identity.len() > max_len && write.advertisement.take().is_some() {
            debug!(bucket = self.0.config.name, "the advertisement does not fit: it is left out");
            max_len = facts.config.max_identity_len_with(0);
        }
        if write.identity.len() > max_len {
            return Err(LockError::new(
                LockErrorKind::Misconfigured,
                format!(
                    "identity of {} bytes: bucket {} accepts {max_len}",
                    write.identity.len(),
                    self.0.config.name
                ),
            ));
        }
        let write = &write;
        if write.expected.is_none() && !self.state().can_read() {
            // A candidate without permission to read takes the response to a create as its reading,
            // and `capabilities` reports what an empty key proves.
            let start = Instant::now();
            let proof = Box::pin(self.state().proves_unused(left));
            proof.await.map_err(BucketError::into_lock_error)?;
            left = left.saturating_sub(start.elapsed());
        }
        left = listener::await_all_hints(self.state(), name, left).await;
        // Not kept meanwhile, as the future must stay small.
        let max_len = facts.config.max_identity_len_with(codec::advertisement_len(write));
        let room = max_len.saturating_sub(write.identity.len());
        let headers = codec::entry_headers(write, facts.config.allow_msg_ttl, room);
        let value = Bytes::copy_from_slice(write.identity.as_bytes());
        match self.state().api.publish(name, headers, value, left).await {
            // A write cannot have a lower sequence than the one that it replaced: the response is
            // not from the stream.
            Ok(sequence) if write.expected.is_some_and(|replaced| sequence <= replaced.0) => {
                let message = format!(
                    "write of {name}: acknowledged with a lower sequence than that of the replaced entry"
                );
                Err(LockError::new(LockErrorKind::OutcomeUnknown, message))
            }
            Ok(sequence) => Ok(Revision(sequence)),
            Err(failure) => Err(self.refused(failure, &format!("write of {name}"))),
        }
    }

    /// If the bucket has no age, the tombstone stays as long as a lease, or what is left of one.
    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        let (facts, left) = self.prepare(name, release.timeout).await?;
        let lives = facts.lease.max(release.left);
        let ttl = if facts.config.max_age().is_none() { Some(lives) } else { None };
        let headers = codec::release_headers(&release, ttl);
        let start = Instant::now();
        let released = self.state().api.publish(name, headers, Bytes::new(), left).await;
        let refused = released.err();
        let refused = refused.map(|failure| self.refused(failure, &format!("release of {name}")));
        // Also if it may be stored: the successor reads once, for nothing at worst.
        let may_be_stored =
            refused.as_ref().is_none_or(|error| error.kind() == LockErrorKind::OutcomeUnknown);
        if let Some(to) = release.to.filter(|_| may_be_stored) {
            let left = left.saturating_sub(start.elapsed());
            roll_call::notify_successor(self.state(), name, to, left).await;
        }
        refused.map_or(Ok(()), Err)
    }

    fn checkpoints(&self) -> Option<&dyn CheckpointStore> {
        Some(self)
    }

    fn messages(&self) -> Option<&dyn Messages> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        guard::subscribe(self.state(), name, sink)
    }
}

#[async_trait]
impl Messages for NatsLock {
    fn carries_calls(&self) -> bool {
        true
    }

    async fn notify_step_down(&self, name: &str, notice: StepDownNotice) -> Result<(), LockError> {
        listener::notify_step_down(self.state(), name, notice).await
    }

    async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        roll_call::call(self.state(), name, request, within).await
    }

    async fn answer_roll_call(
        &self,
        name: &str,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        roll_call::answer(self.state(), name, call, info).await
    }
}

partial_debug!(NatsLock, self, bucket: self.0.config.name);

/// Refuses a name that is not a valid key of a key-value bucket; the error contains the rule.
pub(crate) fn check_key(name: &str) -> Result<(), String> {
    let letters = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'/' | b'_' | b'=' | b'.'));
    let dots = !name.starts_with('.') && !name.ends_with('.') && !name.contains("..");
    if letters && dots && (1..=MAX_NAME_LEN).contains(&name.len()) {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    Err(format!(
        "election name {shown:?}: a NATS key is 1 to {MAX_NAME_LEN} of the letters a-z, A-Z, 0-9, '-', '/', '_', '=' and '.', where a '.' neither begins nor ends it nor follows another"
    ))
}

#[cfg(test)]
mod tests {
    use super::check_key;

    #[test]
    fn invalid_keys_are_refused_with_the_rule() {
        for good in ["a", "my_app", "a.b/c=d-e_F9", &"x".repeat(256)] {
            assert_eq!(check_key(good), Ok(()));
        }
        for bad in ["", ".", ".a", "a.", "a..b", "a b", "a*", ">", "é", "a\r\n", &"x".repeat(257)]
        {
            assert!(check_key(bad).is_err_and(|rule| rule.contains("a NATS key is")), "{bad:?}");
        }
    }
}
