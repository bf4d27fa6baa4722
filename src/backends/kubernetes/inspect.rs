//! The state of elections for observers, as their objects state it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;

use super::answers::Events;
use super::api::{ApiFailure, EVERY, Objects};
use super::codec;
use super::record::{self, RecordLocation, annotation, resource_version};
use super::resource::{ResourceKind, check_object};
use super::resource_lock::ResourceLock;
use crate::lock::Advertisement;
use crate::lock::{Content, LockError, MoveInfo, Token, Tombstone};
use crate::time::timer::deadline_after;

/// The state of an election, as its object states it.
///
/// The status is what was written, and not who may lead now: no client records that a holder is
/// gone. If a record has not changed for [`Holder::lease`] on the reader's own clock, its holder no
/// longer leads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionStatus {
    /// The name of the object.
    pub object: String,
    /// The resourceVersion of the object.
    pub resource_version: u64,
    /// The holder, or why there is none.
    pub holding: HolderStatus,
    /// When the term began, by the wall clock of the candidate that wrote it.
    pub acquired: Option<SystemTime>,
    /// When the record was last written, by the wall clock of the candidate that wrote it.
    pub renewed: Option<SystemTime>,
    /// How often the leader has changed, as client-go counts: the number of the term in
    /// [`holding`](Self::holding), counted from 0 in each new object. It is not a token: see the
    /// [module](super).
    pub transitions: i32,
}

/// The holder of an election, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderStatus {
    /// The record names a holder.
    Held(Holder),
    /// The lock was released, with the cause if the record states it, as in `stopped`; `evicted`:
    /// by an operator.
    Released(Option<String>),
    /// A client of another program emptied the record.
    Evicted,
    /// The election had no holder yet.
    New,
}

/// The holder of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The identity, without control characters.
    pub identity: Arc<str>,
    /// The token; `None` for a candidate of another program, and until the first renewal of a
    /// term of an object whose roll was called, which changes its version.
    pub token: Option<Token>,
    /// How long others wait for the holder when it does not renew.
    pub lease: Duration,
    /// The address that the holder advertises, if any.
    pub advertisement: Option<Arc<Advertisement>>,
    /// What the holder states for moves.
    pub moves: MoveInfo,
    /// The number of the holder's last write; `None` as for the token. It distinguishes renewals
    /// within the same second.
    pub writes: Option<u64>,
}

/// A change of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// The object was written, or is reported as the watch found it.
    Written(ElectionStatus),
    /// The object was deleted. Contains its last state.
    Deleted(ElectionStatus),
}

/// A watch on one object, or on all objects of a namespace. It ends when the server ends it, after
/// minutes; then begin another one.
pub struct ElectionWatch {
    events: Events,
    objects: Objects,
    place: RecordLocation,
    default_lease: Duration,
}

impl<C: ResourceKind> ResourceLock<C> {
    /// Reads the state of the object `name`. Returns `None` if there is no such object, or no
    /// record in it.
    ///
    /// Requires the right to `get`. `name` is the object's own name, regardless of
    /// [`object`](Self::object).
    ///
    /// # Errors
    /// Of the [`kind`](LockError::kind) `Denied`, `Unavailable` if no response arrived within
    /// `timeout`, or `Misconfigured`.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn status(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<ElectionStatus>, LockError> {
        let objects = self.objects();
        check_object(name)?;
        match objects.get(name, deadline_after(timeout)).await {
            Ok(object) => {
                Ok(object.and_then(|object| read(C::PLACE, &object, self.default_lease())))
            }
            Err(failure) => Err(objects.lock_error(failure, name, "read", "get", false)),
        }
    }

    /// Reads the state of all objects of the namespace that have a record, sorted by name.
    ///
    /// Requires the right to `list`. Of ConfigMaps and Endpoints, only the metadata is requested.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn list(&self, timeout: Duration) -> Result<Vec<ElectionStatus>, LockError> {
        let objects = self.objects();
        let listed = objects.list(C::PLACE, deadline_after(timeout)).await;
        let listed =
            listed.map_err(|failure| objects.lock_error(failure, EVERY, "list", "list", false))?;
        let items = listed.get("items").and_then(Value::as_array);
        let statuses = items.into_iter().flatten();
        let mut statuses: Vec<ElectionStatus> =
            statuses.filter_map(|object| read(C::PLACE, object, self.default_lease())).collect();
        statuses.sort_unstable_by(|a, b| a.object.cmp(&b.object));
        Ok(statuses)
    }

    /// Watches the object `only`, or all objects of the namespace. The watch first reports the
    /// existing objects.
    ///
    /// Requires the right to `watch`.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn watch(
        &self,
        only: Option<&str>,
        timeout: Duration,
    ) -> Result<ElectionWatch, LockError> {
        let objects = self.objects();
        only.map_or(Ok(()), check_object)?;
        let events = objects.watch_one_or_all(only, C::PLACE, deadline_after(timeout)).await?;
        Ok(ElectionWatch {
            events,
            objects: objects.clone(),
            place: C::PLACE,
            default_lease: self.default_lease(),
        })
    }
}

impl ElectionWatch {
    /// Returns the next change; `None` when the watch has ended. Cancel safe.
    ///
    /// # Errors
    /// [`Unavailable`](crate::lock::LockErrorKind::Unavailable) if the watch failed, which ends it.
    pub async fn next(&mut self) -> Option<Result<ElectionEvent, LockError>> {
        let lost = |failure| self.objects.lock_error(failure, EVERY, "watch", "watch", false);
        loop {
            let (object, deleted) = match self.events.next().await? {
                Err(error) => return Some(Err(lost(ApiFailure::Lost(error)))),
                Ok(WatchEvent::Error(status)) if status.code == 410 => return None, // too old
                Ok(WatchEvent::Error(status)) => {
                    return Some(Err(lost(ApiFailure::Refused(status))));
                }
                Ok(WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Deleted(object)) => (object, true),
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (object, false),
            };
            let Some(status) = read(self.place, &object, self.default_lease) else { continue };
            let change = if deleted { ElectionEvent::Deleted } else { ElectionEvent::Written };
            return Some(Ok(change(status)));
        }
    }
}

partial_debug!(ElectionWatch, self, objects: self.objects);

/// `default_lease`: how long to wait for a holder whose record states no duration.
fn read(place: RecordLocation, object: &Value, default_lease: Duration) -> Option<ElectionStatus> {
    let record = place.read(object)?;
    if annotation(object, codec::ANSWERS_OF).is_some() && !codec::was_held(place, object) {
        return None;
    }
    let version = resource_version(object)?;
    let found = codec::read(place, object, default_lease);
    let holding = match found.content {
        Content::Held(entry) => HolderStatus::Held(Holder {
            // The write that begins a term has no token yet: its version is the token, unless a
            // roll call has changed the version.
            token: entry.mark.as_ref().and_then(|mark| {
                let is_called = annotation(object, codec::CALL).is_some();
                mark.token.or((!is_called).then_some(Token(version)))
            }),
            writes: entry.mark.as_ref().map(|mark| mark.write.number),
            moves: entry.mark.map(|mark| *mark.moves).unwrap_or_default(),
            identity: entry.identity,
            lease: entry.ttl,
            advertisement: entry.advertisement,
        }),
        Content::Vacant(_) if record.renew_time.is_none() => HolderStatus::New,
        Content::Vacant(Tombstone::Released { .. }) => {
            HolderStatus::Released(codec::release_cause(object, &record))
        }
        Content::Vacant(_) => HolderStatus::Evicted,
    };
    let time = |text: Option<String>| record::parse_time(&text?);
    Some(ElectionStatus {
        object: object.pointer("/metadata/name")?.as_str()?.to_owned(),
        resource_version: version,
        holding,
        acquired: time(record.acquire_time),
        renewed: time(record.renew_time),
        transitions: record.leader_transitions,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let status = read(RecordLocation::Spec, &object, LEASE).unwrap();
        let holder = Holder {
            identity: "theirs [2J".into(),
            token: None,
            lease: Duration::from_secs(5),
            advertisement: None,
            moves: MoveInfo::default(),
            writes: None,
        };
        assert_eq!((status.holding, status.transitions), (HolderStatus::Held(holder), 3));
        let (acquired, renewed) = (status.acquired.unwrap(), status.renewed.unwrap());
        assert_eq!(renewed.duration_since(acquired).unwrap(), Duration::from_micros(59_999_999));
    }

    #[test]
    fn vacant_records_state_the_cause() {
        let held_by = |holder: &str, duration: i32, renewed: Value| {
            let spec = json!({
                "holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": renewed,
            });
            read(RecordLocation::Spec, &lease(spec), LEASE).unwrap().holding
        };
        let time = json!("2026-01-01T00:00:00.000001Z");
        assert_eq!(held_by("", 1, time.clone()), HolderStatus::Released(None));
        assert_eq!(held_by("", 2, time), HolderStatus::Evicted);
        assert_eq!(held_by("", 2, Value::Null), HolderStatus::New);
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
