//! The checkpoints of elections: a key beside that of the election, which never expires.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::codec;
use super::lock::NatsLock;
use super::stream::StreamConfig;
use crate::lock::checkpoint::MAX_CONTENT_LEN;
use crate::lock::{
    CheckpointStore, CheckpointVersion, LockError, LockErrorKind, Revision, StoredContent,
};

/// What the key of a checkpoint begins with. No election can have such a name.
const PREFIX: &str = "$checkpoint.";

/// The most bytes of the headers of a checkpoint.
const HEADERS_LEN: usize = 128;

fn key_of(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Returns whether a key is that of a checkpoint.
pub(super) fn is_checkpoint(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// Refuses a bucket that would let a checkpoint expire, or takes none of the greatest length.
fn check(bucket: &str, config: &StreamConfig) -> Result<(), String> {
    if !config.allow_msg_ttl {
        return Err(format!(
            "bucket {bucket} has no message TTLs, so that a checkpoint would expire with its entries: create it anew on nats-server 2.11 or later, or set allow_msg_ttl there"
        ));
    }
    let room = usize::try_from(config.max_msg_size).unwrap_or(usize::MAX); // -1: no limit
    let needed = MAX_CONTENT_LEN + HEADERS_LEN;
    if room < needed {
        return Err(format!(
            "bucket {bucket} accepts messages of at most {room} bytes: set max_msg_size to {needed} or more for checkpoints"
        ));
    }
    Ok(())
}

#[async_trait]
impl CheckpointStore for NatsLock {
    /// By what is known of the bucket.
    fn check(&self, _name: &str) -> Result<(), String> {
        let facts = self.state().known_facts();
        facts.map_or(Ok(()), |facts| check(self.state().api.bucket(), &facts.config))
    }

    /// Asks the leader of the stream.
    async fn load(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<StoredContent>, LockError> {
        let (_, left) = self.prepare(name, timeout).await?;
        let message = self.last_message(&key_of(name), left).await?;
        Ok(message.map(|message| StoredContent {
            version: CheckpointVersion::number(message.seq),
            content: codec::value_unless_deleted(&message),
        }))
    }

    async fn store(
        &self,
        name: &str,
        content: Vec<u8>,
        expected: Option<&CheckpointVersion>,
        timeout: Duration,
    ) -> Result<CheckpointVersion, LockError> {
        let (facts, left) = self.prepare(name, timeout).await?;
        check(self.state().api.bucket(), &facts.config)
            .map_err(|why| LockError::new(LockErrorKind::Misconfigured, why))?;
        let expected = expected.and_then(CheckpointVersion::as_number).map(Revision);
        let headers = codec::checkpoint_headers(expected);
        let stored = self.state().api.publish(&key_of(name), headers, Bytes::from(content), left);
        match stored.await {
            Ok(sequence) => Ok(CheckpointVersion::number(sequence)),
            Err(failure) => Err(self.refused(failure, &format!("write of {}", key_of(name)))),
        }
    }
}
