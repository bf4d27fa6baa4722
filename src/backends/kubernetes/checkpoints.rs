//! The checkpoints of elections: an annotation of a second object, of the same kind.
//!
//! Not of the election's object, whose every renewal would carry it to all candidates. It belongs
//! to no other object, as it outlives the one of the election.

use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::codec::CHECKPOINT;
use super::record::annotation;
use super::resource::{ResourceKind, check_object, check_object_name};
use super::resource_lock::ResourceLock;
use super::store::ResourceLockState;
use crate::lock::{CheckpointStore, CheckpointVersion, LockError, LockErrorKind, StoredContent};
use crate::time::timer::deadline_after;

/// What the name of the object adds to that of the election's object.
const SUFFIX: &str = "-checkpoint";

impl ResourceLockState {
    fn checkpoint_name(&self, name: &str) -> String {
        format!("{}{SUFFIX}", self.object_of(name))
    }

    /// Refuses an object of another use: a write would replace all of it.
    fn stored_checkpoint(&self, name: &str, object: &Value) -> Result<StoredContent, LockError> {
        let wrong = |what: &str| {
            let message = format!("the {} {what}", self.objects.describe(name));
            LockError::new(LockErrorKind::Misconfigured, message)
        };
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let version = text("/metadata/resourceVersion").zip(text("/metadata/uid"));
        let (version, uid) = version.ok_or_else(|| wrong("has no version"))?;
        let content = match annotation(object, CHECKPOINT) {
            None => return Err(wrong("is not a checkpoint: rename the election")),
            Some(encoded) => {
                let decoded = serde_json::from_value::<ByteString>(json!(encoded));
                decoded.map_err(|_| wrong("has a checkpoint that is no Base64: delete it"))?.0
            }
        };
        let version = CheckpointVersion(format!("{version} {uid}").into());
        Ok(StoredContent { version, content })
    }
}

#[async_trait]
impl<C: ResourceKind> CheckpointStore for ResourceLock<C> {
    fn check(&self, name: &str) -> Result<(), String> {
        check_object_name(&self.inner.checkpoint_name(name))
    }

    async fn load(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<StoredContent>, LockError> {
        let (deadline, state) = (deadline_after(timeout), &self.inner);
        let name = &*state.checkpoint_name(name);
        check_object(name)?;
        match state.objects.get(name, deadline).await {
            Ok(object) => object.map(|object| state.stored_checkpoint(name, &object)).transpose(),
            Err(failure) => Err(state.objects.lock_error(failure, name, "read", "get", false)),
        }
    }

    async fn store(
        &self,
        name: &str,
        content: Vec<u8>,
        expected: Option<&CheckpointVersion>,
        timeout: Duration,
    ) -> Result<CheckpointVersion, LockError> {
        let (deadline, state) = (deadline_after(timeout), &self.inner);
        let name = &*state.checkpoint_name(name);
        check_object(name)?;
        let encoded = serde_json::to_value(ByteString(content)).unwrap_or_default();
        let mut object = json!({
            "apiVersion": state.api_version,
            "kind": state.objects.kind(),
            "metadata": {
                "name": name,
                "namespace": state.objects.namespace(),
                "annotations": { CHECKPOINT: encoded },
            },
        });
        let (answer, verb) = match expected.map(|expected| expected.0.split_once(' ')) {
            None => (state.objects.create(&object, deadline).await, "create"),
            Some(None) => return Err(state.objects.written_by_another(name)),
            Some(Some((version, uid))) => {
                object["metadata"]["resourceVersion"] = json!(version);
                object["metadata"]["uid"] = json!(uid);
                (state.objects.replace(name, &object, deadline).await, "update")
            }
        };
        match answer {
            Ok(stored) => Ok(state.stored_checkpoint(name, &stored)?.version),
            Err(refused) if refused.is_change_of(name) => {
                Err(state.objects.written_by_another(name))
            }
            Err(failure) => Err(state.objects.lock_error(failure, name, "write", verb, true)),
        }
    }
}
