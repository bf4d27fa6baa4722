//! The checkpoints of elections, for as long as the lock exists.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryLock;
use crate::lock::{CheckpointStore, CheckpointVersion, LockError, StoredContent, checkpoint};

#[async_trait]
impl CheckpointStore for MemoryLock {
    async fn load(
        &self,
        name: &str,
        _timeout: Duration,
    ) -> Result<Option<StoredContent>, LockError> {
        self.candidate_request(|state, _| {
            let stored = state.checkpoints.get(name);
            Ok(stored.map(|(number, content)| StoredContent {
                version: CheckpointVersion::number(*number),
                content: content.clone(),
            }))
        })
    }

    async fn store(
        &self,
        name: &str,
        content: Vec<u8>,
        expected: Option<&CheckpointVersion>,
        _timeout: Duration,
    ) -> Result<CheckpointVersion, LockError> {
        self.candidate_request(|state, _| {
            let last = state.checkpoints.get(name).map(|(number, _)| *number);
            if last != expected.and_then(CheckpointVersion::as_number) {
                return Err(checkpoint::conflict());
            }
            // None is ever removed: so each number stands for one write.
            let number = last.map_or(1, |last| last + 1);
            state.checkpoints.insert(name.into(), (number, content));
            Ok(CheckpointVersion::number(number))
        })
    }
}
