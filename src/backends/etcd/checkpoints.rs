//! The checkpoints of elections: keys beside those of the elections.

use std::time::Duration;

use async_trait::async_trait;

use super::lock::{EtcdLock, put_op, read_of};
use super::messages::{Compare, TxnRequest};
use crate::lock::checkpoint::{CHECKPOINTS, conflict};
use crate::lock::{CheckpointStore, CheckpointVersion, LockError, StoredContent};
use crate::time::timer::deadline_after;

impl EtcdLock {
    fn checkpoint_key(&self, name: &str) -> Vec<u8> {
        self.inner.key(&format!("{CHECKPOINTS}{name}"))
    }
}

/// A version is the revision of etcd that wrote the checkpoint.
#[async_trait]
impl CheckpointStore for EtcdLock {
    async fn load(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<StoredContent>, LockError> {
        let read = read_of(self.checkpoint_key(name));
        let (answer, _) = self.inner.client.range(read, deadline_after(timeout)).await?;
        Ok(answer.kvs.into_iter().next().map(|kv| StoredContent {
            version: CheckpointVersion::number(kv.mod_revision.unsigned_abs()),
            content: kv.value,
        }))
    }

    async fn store(
        &self,
        name: &str,
        content: Vec<u8>,
        expected: Option<&CheckpointVersion>,
        timeout: Duration,
    ) -> Result<CheckpointVersion, LockError> {
        let key = self.checkpoint_key(name);
        let expected = match expected {
            // A version of another lock is that of no key here.
            Some(version) => version.as_number().and_then(|number| i64::try_from(number).ok()),
            None => Some(0),
        };
        let compare = vec![Compare::written_by(&key, expected.ok_or_else(conflict)?)];
        let success = vec![put_op(key, content)];
        let request = TxnRequest { compare, success, failure: Vec::new() };
        let (answer, _) = self.inner.client.txn(request, deadline_after(timeout)).await?;
        let revision = answer.header.filter(|_| answer.succeeded).map(|header| header.revision);
        let revision = revision.ok_or_else(conflict)?;
        Ok(CheckpointVersion::number(revision.unsigned_abs()))
    }
}
