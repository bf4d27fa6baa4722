//! Objects created for a new election: their creator's assertion, and what the API server remembers
//! of their names.

use std::time::Duration;

use kube::core::Status;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::answers::Events;
use super::api::{ApiFailure, Objects};
use super::codec::{NEW, was_held};
use super::record::{RecordLocation, annotate, resource_version};
use super::resource::{ResourceKind, check_object_name};
use super::resource_lock::ResourceLock;
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// The past of an object, as far as a watch shows it.
enum Past {
    /// Neither this object nor another of its name had a holder.
    Empty,
    Held,
    /// The server remembers only what follows this version.
    From(u64),
}

impl Objects {
    /// Whether neither this object nor another of its name had a holder, as far back as the API
    /// server remembers: about a minute, and longer when there are few writes. A watch from the
    /// oldest remembered version shows it.
    pub(super) async fn has_no_past(
        &self,
        place: RecordLocation,
        name: &str,
        object: &Value,
        by: Instant,
    ) -> bool {
        let Some(version) = resource_version(object) else { return false };
        let mut from = 1;
        for _ in 0..2 {
            let past = match self.watch(name, Some(&from.to_string()), by).await {
                Ok(events) => past(events, place, object, version, by).await,
                Err(ApiFailure::Refused(status)) => since(&status),
                Err(_) => Past::Held,
            };
            match past {
                Past::Empty => return true,
                Past::Held => return false,
                // The object has not changed for as long as the server remembers.
                Past::From(oldest) if oldest >= version => return true,
                Past::From(oldest) => from = oldest,
            }
        }
        false
    }
}

/// Returns the past up to this version of the object.
async fn past(
    mut events: Events,
    place: RecordLocation,
    object: &Value,
    version: u64,
    by: Instant,
) -> Past {
    let uid = |object: &Value| object.pointer("/metadata/uid").cloned();
    loop {
        match timeout_at(by, futures_util::StreamExt::next(&mut events)).await {
            Ok(Some(Ok(WatchEvent::Added(then) | WatchEvent::Modified(then)))) => {
                if was_held(place, &then) || uid(&then) != uid(object) {
                    return Past::Held;
                }
                if resource_version(&then).is_some_and(|then| then >= version) {
                    return Past::Empty;
                }
            }
            Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
            Ok(Some(Ok(WatchEvent::Error(status)) | Err(kube::Error::Api(status)))) => {
                return since(&status);
            }
            _ => return Past::Held, // or unknown
        }
    }
}

fn since(status: &Status) -> Past {
    remembered(status).map_or(Past::Held, Past::From)
}

/// Parses the version after which the server remembers everything, as in
/// `too old resource version: 1 (245)`.
pub(super) fn remembered(status: &Status) -> Option<u64> {
    let oldest = status.message.strip_prefix("too old resource version: ")?;
    let oldest = oldest.split_once('(')?.1.strip_suffix(')')?.parse().ok()?;
    (status.code == 410).then_some(oldest)
}

impl<C: ResourceKind> ResourceLock<C> {
    /// Creates the object `name` for a new election, so that its first leader does not wait out a
    /// lease. Returns its resourceVersion.
    ///
    /// The caller asserts that no process leads by an earlier object of this name. The candidates
    /// check this too: they lead at once unless the API server remembers a holder, or that another
    /// object of this name was deleted. The check requires the right to `watch` the object.
    ///
    /// Requires the right to `create`. `name` is the object's own name, regardless of
    /// [`object`](Self::object).
    ///
    /// # Errors
    /// [`Conflict`](LockErrorKind::Conflict) if the object exists; otherwise as
    /// [`status`](Self::status).
    ///
    /// # Cancel safety
    /// If dropped, the object may have been created or not.
    pub async fn create(&self, name: &str, timeout: Duration) -> Result<u64, LockError> {
        check_object_name(name)
            .map_err(|rule| LockError::new(LockErrorKind::Misconfigured, rule))?;
        let objects = self.objects();
        let mut object = json!({
            "apiVersion": C::API_VERSION,
            "kind": C::KIND,
            "metadata": { "name": name, "namespace": objects.namespace() },
        });
        annotate(&mut object, NEW, "true".to_owned());
        let created = objects.create(&object, deadline_after(timeout)).await;
        let created = created
            .map_err(|failure| objects.lock_error(failure, name, "create", "create", true))?;
        Ok(resource_version(&created).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::kubernetes::codec::{ANNOTATION, claims_to_be_new};

    #[test]
    fn oldest_remembered_version_is_parsed() {
        let parsed =
            |message, code| remembered(&Status::failure(message, "Expired").with_code(code));
        let text = "too old resource version: 1 (245)";
        assert_eq!(parsed(text, 410), Some(245));
        for (message, code) in [
            (text, 500),
            ("too old resource version: 1", 410),
            ("too old resource version: 1 (x)", 410),
            ("The resourceVersion for the provided watch is too old.", 410),
        ] {
            assert_eq!(parsed(message, code), None, "{message}");
        }
    }

    #[test]
    fn an_object_with_a_past_holder_is_not_new() {
        let object = |spec: Value, annotations: Value| json!({ "metadata": { "annotations": annotations }, "spec": spec });
        let new = json!({ NEW: "true" });
        let is_new =
            |spec: Value| claims_to_be_new(RecordLocation::Spec, &object(spec, new.clone()));
        assert!(is_new(Value::Null) && is_new(json!({})));
        assert!(is_new(json!({ "holderIdentity": "", "leaseDurationSeconds": 15 })));
        assert!(!is_new(json!({ "holderIdentity": "a" })));
        assert!(!is_new(json!({ "renewTime": "2026-01-01T00:00:00.000001Z" })));
        assert!(!is_new(json!("junk")));
        assert!(!claims_to_be_new(RecordLocation::Spec, &object(json!({}), Value::Null)));
        let marked = json!({ NEW: "true", ANNOTATION: "x" });
        assert!(!claims_to_be_new(RecordLocation::Spec, &object(json!({}), marked)));
    }
}
