//! The state of a lock, and reads and writes of the election record of an object.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::Objects;
use super::codec;
use super::events::Recorder;
use super::known::{KnownObject, ObjectState};
use super::record::{
    ElectionRecord, RELEASED_SECONDS, RecordLocation, annotation, later, resource_version,
};
use super::timing::LeaseTiming;
use crate::lock::codec::mark::EncodedMark;
use crate::lock::codec::{MAX_IDENTITY_LEN, ceil_seconds};
use crate::lock::{Content, LockError, LockErrorKind, Nonce, Reading, Release, Revision, Write};
use crate::time::timer::deadline_after;
use crate::util::per_key::PerKey;
use crate::util::text::truncate;

/// State shared by the clones of a lock.
#[derive(Debug)]
pub(super) struct ResourceLockState {
    pub(super) objects: Objects,
    pub(super) location: RecordLocation,
    pub(super) api_version: &'static str,
    pub(super) timing: LeaseTiming,
    /// The object of every election; `None`: each object is named after its election.
    pub(super) object: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) elections: PerKey<ObjectState>,
    pub(super) recorder: Option<Recorder>,
}

impl ResourceLockState {
    /// Returns the name of the object that carries an election.
    pub(super) fn object_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.object.as_deref().unwrap_or(name)
    }

    /// Returns the same configuration without any known object.
    pub(super) fn clone_config(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            location: self.location,
            api_version: self.api_version,
            timing: self.timing,
            object: self.object.clone(),
            identity: self.identity.clone(),
            elections: PerKey::default(),
            recorder: self.recorder.as_ref().map(Recorder::clone_config),
        }
    }

    /// Decodes an object that the server returned.
    pub(super) fn decode(&self, name: &str, object: Value) -> Result<KnownObject, LockError> {
        let Some(version) = resource_version(&object) else {
            return Err(self.misconfigured(name, "its resourceVersion is not a number"));
        };
        if annotation(&object, codec::CHECKPOINT).is_some() {
            let what = "it has the checkpoint of another election: rename one of the two";
            return Err(self.misconfigured(name, what));
        }
        let found = codec::read(self.location, &object, self.timing.lease());
        if found.record.strategy.is_some() {
            return Err(self.misconfigured(
                name,
                "it has spec.strategy, so the API server chooses its holder (coordinated leader election): use another Lease, or remove spec.strategy",
            ));
        }
        Ok(KnownObject::new(version, object, found.with_stated_lease(self.timing.lease())))
    }

    fn misconfigured(&self, name: &str, what: &str) -> LockError {
        let message = format!("the {} cannot be used: {what}", self.objects.describe(name));
        LockError::new(LockErrorKind::Misconfigured, message)
    }

    async fn fetch(
        &self,
        election: &ObjectState,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<KnownObject>, LockError> {
        let before = election.before();
        match self.objects.get(name, deadline).await {
            Ok(Some(object)) => {
                let known = election.found(&before, self.decode(name, object)?);
                election.record_response(known.revision);
                Ok(Some(known))
            }
            Ok(None) => {
                election.forget(&before);
                Ok(None)
            }
            Err(failure) => Err(self.objects.lock_error(failure, name, "read", "get", false)),
        }
    }

    pub(super) async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        let (deadline, name) = (deadline_after(timeout), self.object_of(name));
        let election = self.elections.get(name);
        let found = self.fetch(&election, name, deadline).await?;
        Ok(Reading::without_proof(found.map(|known| known.record())))
    }

    pub(super) async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        let (deadline, name) = (deadline_after(write.timeout), self.object_of(name));
        let begins = write.mark.token.is_none();
        let since = self.location.time(Duration::from_millis(write.mark.since_unix_ms));
        let describe = |old: Option<&KnownObject>, now: String| {
            let old_record = old.map(|known| &known.record);
            let transitions = old_record.map_or(0, |old| old.leader_transitions);
            let acquired = old_record.and_then(|old| old.acquire_time.clone());
            // A create that was believed lost began no term: the next write begins the same one.
            let again = old.is_some_and(|known| known.is_unbegun_term_of(write.mark.write.nonce));
            let begins_anew = begins && old.is_some() && !again;
            ElectionRecord {
                holder_identity: write.identity.to_string(),
                lease_duration_seconds: whole_seconds(write.ttl),
                acquire_time: match acquired {
                    Some(acquired) if !begins => Some(later(acquired, since.clone())),
                    _ => Some(now.clone()),
                },
                renew_time: Some(now),
                leader_transitions: transitions.saturating_add(i32::from(begins_anew)),
                strategy: None,
            }
        };
        let mark = EncodedMark::held(&write.mark, write.advertisement.as_deref());
        let known = self.put(name, write.expected, deadline, describe, &mark).await?;
        if write.expected.is_some_and(|replaced| known.revision <= replaced) {
            // A write that replaced another one cannot precede it: the server's store was set back.
            let message =
                format!("write of {name}: acknowledged as older than the replaced record");
            return Err(LockError::new(LockErrorKind::OutcomeUnknown, message));
        }
        if begins && let Some(recorder) = &self.recorder {
            let object = self.objects.reference(self.api_version, name, &known.object);
            recorder.record_event(object, &format!("{} became leader", write.identity));
        }
        Ok(known.revision)
    }

    pub(super) async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        let (deadline, name) = (deadline_after(release.timeout), self.object_of(name));
        let Release { expected, left, .. } = release;
        let evicts = release.by == Nonce::NOBODY;
        let mut identity = String::new();
        let describe = |old: Option<&KnownObject>, now: String| {
            let old = old.map(|known| known.record.clone()).unwrap_or_default();
            identity.clone_from(&old.holder_identity);
            // client-go's candidates do not read the remaining wait, but wait for a holder that
            // does not renew: an evicted one of theirs would renew under its own identity.
            let keep = !left.is_zero();
            let evicted = format!("evicted: {}", truncate(&identity, MAX_IDENTITY_LEN));
            let holder = if evicts { evicted } else { old.holder_identity };
            ElectionRecord {
                holder_identity: if keep { holder } else { String::new() },
                lease_duration_seconds: if keep { whole_seconds(left) } else { RELEASED_SECONDS },
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                leader_transitions: old.leader_transitions,
                strategy: None,
            }
        };
        let mark =
            EncodedMark::released(release.by, left, release.cause, release.to, release.pause);
        let known = self.put(name, Some(expected), deadline, describe, &mark).await?;
        if let Some(recorder) = &self.recorder {
            let object = self.objects.reference(self.api_version, name, &known.object);
            if evicts {
                recorder.record_eviction(object, truncate(&identity, MAX_IDENTITY_LEN / 2)).await;
            } else {
                recorder.record_event(object, &format!("{identity} stopped leading"));
            }
        }
        Ok(())
    }

    /// Writes an object over a version that it no longer has: the server decides by the permissions
    /// first.
    pub(super) async fn check_release(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<(), LockError> {
        let (deadline, name) = (deadline_after(timeout), self.object_of(name));
        let Some(known) = self.fetch(&self.elections.get(name), name, deadline).await? else {
            return Ok(());
        };
        let mut object = Value::clone(&known.object);
        object["metadata"]["resourceVersion"] = json!("1");
        match self.objects.replace(name, &object, deadline).await {
            Err(refused) if !refused.is_change_of(name) => {
                Err(self.objects.lock_error(refused, name, "write", "update", true))
            }
            _ => Ok(()),
        }
    }

    /// Writes a record over the expected one. Other clients may change the rest of the object
    /// meanwhile: as long as the record is the expected one, the write is repeated over their
    /// changes.
    async fn put(
        &self,
        name: &str,
        expected: Option<Revision>,
        deadline: Instant,
        mut describe: impl FnMut(Option<&KnownObject>, String) -> ElectionRecord,
        mark: &EncodedMark,
    ) -> Result<KnownObject, LockError> {
        let election = self.elections.get(name);
        let mut known = match (expected, election.known()) {
            (Some(_), None) => self.fetch(&election, name, deadline).await?,
            (Some(_), known) => known,
            (None, _) => None,
        };
        loop {
            if known.as_ref().map(|known| known.revision) != expected {
                return Err(self.objects.written_by_another(name));
            }
            let mut record = describe(known.as_ref(), self.location.now());
            if let Some(known) = &known {
                record = record.distinct_from(&known.record, self.location);
            }
            let mut object = match &known {
                None => json!({
                    "apiVersion": self.api_version,
                    "kind": self.objects.kind(),
                    "metadata": { "name": name, "namespace": self.objects.namespace() },
                }),
                Some(known) => Value::clone(&known.object),
            };
            codec::write(self.location, &mut object, &record, mark.clone());
            let before = election.before();
            let answer = match &known {
                None => self.objects.create(&object, deadline).await,
                Some(_) => self.objects.replace(name, &object, deadline).await,
            };
            let refused = match answer {
                Ok(stored) => {
                    let changed = codec::differing(self.location, &object, &stored);
                    // The next write finds the record to be another client's.
                    let known = election.found(&before, self.decode(name, stored)?);
                    election.record_response(known.revision);
                    let Some(field) = changed else { return Ok(known) };
                    let what = format!(
                        "{field} is not stored as it was written: exempt it from the admission webhook or policy that changes it"
                    );
                    return Err(self.misconfigured(name, &what));
                }
                Err(failure) => failure,
            };
            known = match expected {
                None => {
                    return Err(self.objects.lock_error(refused, name, "create", "create", true));
                }
                // The object changed, or a part of it that this library does not write.
                Some(_) if refused.is_change_of(name) => {
                    self.fetch(&election, name, deadline).await?
                }
                Some(_) => {
                    return Err(self.objects.lock_error(refused, name, "write", "update", true));
                }
            };
        }
    }
}

fn whole_seconds(span: Duration) -> i32 {
    i32::try_from(ceil_seconds(span)).unwrap_or(i32::MAX)
}

impl KnownObject {
    /// Whether this is the first write of a term, and its writer does not know that it succeeded.
    fn is_unbegun_term_of(&self, nonce: Nonce) -> bool {
        matches!(&self.content, Content::Held(entry) if entry.mark.as_ref().is_some_and(
            |mark| mark.write.nonce == nonce && mark.token.is_none()
        ))
    }
}
