//! The checkpoints of elections: objects in a folder beside those of the elections.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::UpdateVersion;
use object_store::path::Path;

use super::lock::ObjectStorageLock;
use crate::lock::checkpoint::{CHECKPOINTS, MAX_CONTENT_LEN};
use crate::lock::{CheckpointStore, CheckpointVersion, LockError, LockErrorKind, StoredContent};
use crate::time::timer::deadline_after;

/// The condition of a write, as one text: the generation, or the ETag.
fn to_version(version: UpdateVersion) -> Result<CheckpointVersion, LockError> {
    let text = version.e_tag.or(version.version);
    text.map(|text| CheckpointVersion(text.into())).ok_or_else(|| {
        let message = "the response of the store names no version of a checkpoint";
        LockError::new(LockErrorKind::OutcomeUnknown, message)
    })
}

impl ObjectStorageLock {
    fn checkpoint_path(&self, name: &str) -> Result<Path, LockError> {
        self.inner.path_of(&format!("{CHECKPOINTS}{name}"))
    }
}

/// That the store respects conditions is known: the entry of the election was written before.
#[async_trait]
impl CheckpointStore for ObjectStorageLock {
    async fn load(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<StoredContent>, LockError> {
        let (deadline, path) = (deadline_after(timeout), self.checkpoint_path(name)?);
        let found = self.inner.store.get_up_to(&path, MAX_CONTENT_LEN, deadline).await?;
        let stored = |(version, body): (UpdateVersion, Bytes)| {
            Ok(StoredContent { version: to_version(version)?, content: body.to_vec() })
        };
        found.map(stored).transpose()
    }

    async fn store(
        &self,
        name: &str,
        content: Vec<u8>,
        expected: Option<&CheckpointVersion>,
        timeout: Duration,
    ) -> Result<CheckpointVersion, LockError> {
        let (deadline, path) = (deadline_after(timeout), self.checkpoint_path(name)?);
        let store = &self.inner.store;
        let replaced = expected.map(|expected| store.condition(&expected.0));
        to_version(store.put(&path, replaced.as_ref(), &Bytes::from(content), deadline).await?)
    }
}
