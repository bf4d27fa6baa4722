//! `LockAdmin` for the objects of a namespace: elections as their objects state them.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use kube::core::WatchEvent;
use serde_json::Value;

use super::answers::Events;
use super::api::{ApiFailure, EVERY, Objects};
use super::codec;
use super::namespace;
use super::record::{self, RecordLocation, annotation, resource_version};
use super::resource::{ResourceKind, check_object};
use super::resource_lock::ResourceLock;
use crate::lock::{
    Content, ElectionRecord, ElectionState, ElectionUpdate, ElectionWatch, Finding, LockAdmin,
    LockError, LockFacts, Revision, Tombstone, Vacancy, evict,
};
use crate::time::timer::deadline_after;

/// Elections have the names of their objects. Where [`object`](ResourceLock::object) is set there
/// is one election, under any name. Times are by the wall clock of the candidate that wrote the
/// record.
#[async_trait]
impl<C: ResourceKind> LockAdmin for ResourceLock<C> {
    async fn facts(&self, _timeout: Duration) -> Result<LockFacts, LockError> {
        Ok(LockFacts::new(None, Vacancy::Evicted))
    }

    /// `None` if there is no such object, or no record in it. Requires the permission to `get`.
    async fn record(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<ElectionRecord>, LockError> {
        let (objects, own) = (self.objects(), self.inner.object_of(name));
        check_object(own)?;
        let object = objects.get(own, deadline_after(timeout)).await;
        let object =
            object.map_err(|failure| objects.lock_error(failure, own, "read", "get", false))?;
        let record = object.and_then(|object| read(C::LOCATION, &object, self.default_lease()));
        Ok(record.map(|record| ElectionRecord { election: name.to_owned(), ..record }))
    }

    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        Ok(self.list(timeout).await?.into_iter().map(|record| record.election).collect())
    }

    /// Of all objects of the namespace that have a record. Requires the permission to `list`. Of
    /// ConfigMaps and Endpoints, only the metadata is requested.
    async fn list(&self, timeout: Duration) -> Result<Vec<ElectionRecord>, LockError> {
        if let Some(object) = &self.inner.object {
            return Ok(self.record(object, timeout).await?.into_iter().collect());
        }
        let objects = self.objects();
        let listed = objects.list(C::LOCATION, None, deadline_after(timeout)).await;
        let listed =
            listed.map_err(|failure| objects.lock_error(failure, EVERY, "list", "list", false))?;
        let items = listed.get("items").and_then(Value::as_array).into_iter().flatten();
        let mut records: Vec<ElectionRecord> =
            items.filter_map(|object| read(C::LOCATION, object, self.default_lease())).collect();
        records.sort_unstable_by(|a, b| a.election.cmp(&b.election));
        Ok(records)
    }

    /// Reports the existing objects first. Requires the permission to `watch`. The server ends the
    /// watch after minutes.
    async fn watch(&self, names: &[String], timeout: Duration) -> Result<ElectionWatch, LockError> {
        let objects = self.objects();
        let fixed = self.inner.object.as_deref();
        let only = match names {
            [name] => Some(self.inner.object_of(name)),
            _ => fixed,
        };
        only.map_or(Ok(()), check_object)?;
        let events = objects.watch_one_or_all(only, C::LOCATION, deadline_after(timeout)).await?;
        let (state, lease) = ((events, objects.clone()), self.default_lease());
        let updates = stream::unfold(state, move |(mut events, objects)| async move {
            let update = next(&mut events, &objects, C::LOCATION, lease).await?;
            Some((update, (events, objects)))
        });
        let name = names.first().filter(|_| fixed.is_some()).cloned();
        let named = move |update| match (update, &name) {
            (ElectionUpdate::Written(record), Some(name)) => {
                ElectionUpdate::Written(ElectionRecord { election: name.clone(), ..record })
            }
            (update, _) => update,
        };
        Ok(ElectionWatch::new(updates.map_ok(named), true))
    }

    async fn evict(
        &self,
        name: &str,
        expected: Revision,
        timeout: Duration,
    ) -> Result<(), LockError> {
        evict(self, name, expected, timeout).await
    }

    /// Of the object of an election: see [`health`](ResourceLock::health).
    async fn diagnose(
        &self,
        name: Option<&str>,
        timeout: Duration,
    ) -> Result<Option<Vec<Finding>>, LockError> {
        match name {
            Some(name) => self.health(name, timeout).await.map(Some),
            None => Ok(None),
        }
    }

    /// Requires the permission to `get` the namespace; without it, nothing is refused.
    async fn check_exists(&self, timeout: Duration) -> Result<(), LockError> {
        namespace::check_exists(self.objects(), timeout).await
    }
}

async fn next(
    events: &mut Events,
    objects: &Objects,
    location: RecordLocation,
    default_lease: Duration,
) -> Option<Result<ElectionUpdate, LockError>> {
    let lost = |failure| objects.lock_error(failure, EVERY, "watch", "watch", false);
    loop {
        let (object, deleted) = match events.next().await? {
            Err(error) => return Some(Err(lost(ApiFailure::Lost(error.into())))),
            Ok(WatchEvent::Error(status)) if status.code == 410 => return None, // too old
            Ok(WatchEvent::Error(status)) => return Some(Err(lost(ApiFailure::Refused(status)))),
            Ok(WatchEvent::Bookmark(_)) => continue,
            Ok(WatchEvent::Deleted(object)) => (object, true),
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (object, false),
        };
        let Some(mut record) = read(location, &object, default_lease) else { continue };
        if deleted {
            record.state = ElectionState::Vacant(Vacancy::Evicted);
            record.written = Some(SystemTime::now());
        }
        return Some(Ok(ElectionUpdate::Written(record)));
    }
}

/// `default_lease`: how long to wait for a holder whose record states no duration.
fn read(
    location: RecordLocation,
    object: &Value,
    default_lease: Duration,
) -> Option<ElectionRecord> {
    let record = location.read(object)?;
    let beside = [codec::ANSWERS_OF, codec::CHECKPOINT];
    if beside.iter().any(|key| annotation(object, key).is_some())
        && !codec::was_held(location, object)
    {
        return None;
    }
    let revision = Revision(resource_version(object)?);
    let time = |text: Option<String>| record::parse_time(&text?);
    let renewed = time(record.renew_time.clone());
    let (mut written, vacant) = (renewed, ElectionState::Vacant);
    let found = codec::read(location, object, default_lease);
    let cause = found.release_cause();
    let state = match found.content {
        Content::Vacant(_) if record.renew_time.is_none() => vacant(Vacancy::New),
        Content::Vacant(Tombstone::Released { .. }) => {
            vacant(cause.as_deref().unwrap_or("released").into())
        }
        Content::Vacant(_) => {
            written = None; // an eviction by another program leaves the times of the former holder
            vacant(Vacancy::Evicted)
        }
        content => match ElectionState::of(content, revision, false) {
            ElectionState::Held(mut holder) => {
                // A roll call changes the version, which is the token of the write that begins a
                // term.
                let is_stated = holder.token.is_some_and(|token| token != revision.into());
                if !is_stated && annotation(object, codec::CALL).is_some() {
                    holder.token = None;
                }
                holder.since = time(record.acquire_time);
                ElectionState::Held(holder)
            }
            vacant => vacant,
        },
    };
    Some(ElectionRecord {
        election: object.pointer("/metadata/name")?.as_str()?.to_owned(),
        revision,
        written: Some(written.unwrap_or_else(SystemTime::now)),
        state,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lock::Holder;

    const LEASE: Duration = Duration::from_secs(15);

    fn lease(spec: Value) -> Value {
        json!({ "metadata": { "name": "my-app", "resourceVersion": "7" }, "spec": spec })
    }

    #[test]
    fn a_record_of_client_go_is_read_without_a_token() {
        let object = lease(json!({
            "holderIdentity": "theirs\u{1b}[2J", "leaseDurationSeconds": 5, "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": "2026-01-01T00:01:00.000000Z",
        }));
        let record = read(RecordLocation::Spec, &object, LEASE).unwrap();
        let (acquired, renewed) = (record.holder().unwrap().since.unwrap(), record.written);
        let holder = Holder {
            since: Some(acquired),
            lease: Some(Duration::from_secs(5)),
            ttl: Some(Duration::from_secs(5)),
            ..Holder::new("theirs [2J", None)
        };
        assert_eq!(record.holder(), Some(&holder));
        let age = renewed.unwrap().duration_since(acquired).unwrap();
        assert_eq!(age, Duration::from_micros(59_999_999));
    }

    #[test]
    fn vacant_records_state_the_cause() {
        let held_by = |holder: &str, duration: i32, renewed: Value| {
            let spec = json!({
                "holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": renewed,
            });
            let record = read(RecordLocation::Spec, &lease(spec), LEASE).unwrap();
            record.vacancy().cloned()
        };
        let time = json!("2026-01-01T00:00:00.000001Z");
        assert_eq!(held_by("", 1, time.clone()), Some(Vacancy::Released(None)));
        assert_eq!(held_by("", 2, time), Some(Vacancy::Evicted));
        assert_eq!(held_by("", 2, Value::Null), Some(Vacancy::New));
    }

    #[test]
    fn an_object_without_a_record_has_no_status() {
        assert_eq!(read(RecordLocation::Annotation, &lease(json!({})), LEASE), None);
        assert_eq!(
            read(RecordLocation::Spec, &json!({ "metadata": { "name": "a" } }), LEASE),
            None
        );
        assert_eq!(read(RecordLocation::Spec, &json!("junk"), LEASE), None);
    }
}
