//! Problems in the object of an election.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use thiserror::Error;

use super::codec;
use super::record::{self, ElectionRecord, RecordLocation, resource_version};
use super::resource::{ResourceKind, check_object};
use super::resource_lock::ResourceLock;
use crate::backends::health::Severity;
use crate::lock::{Content, LockError};
use crate::time::timer::deadline_after;

/// The fields of a Lease's `spec` that client-go and this library know.
const KNOWN: [&str; 7] = [
    "holderIdentity",
    "leaseDurationSeconds",
    "acquireTime",
    "renewTime",
    "leaseTransitions",
    "leaderTransitions",
    "strategy",
];
/// The shortest lease that is not reported: an API server takes seconds to restart, and etcd takes
/// seconds to elect its own leader.
const SHORT: Duration = Duration::from_secs(5);

/// A finding in the object of an election. Its `Display` is one line that states what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Finding {
    /// The object does not exist yet: the first candidate creates it, and waits out a lease.
    #[error(
        "it does not exist yet: create it with `incumbent election create`; otherwise the first candidate creates it, and may wait out a lease before it leads"
    )]
    Absent,
    /// The object exists, and carries no record yet.
    #[error("it carries no record yet")]
    NoRecord,
    /// The object carries a record that cannot be read, and candidates write over it.
    #[error(
        "its record cannot be read, and candidates write over it: find out what else uses the object"
    )]
    Unreadable,
    /// `spec.strategy` is set: the API server chooses the holder.
    #[error(
        "it has spec.strategy {strategy}, so the API server chooses its holder (coordinated leader election): use another object, or remove spec.strategy"
    )]
    Coordinated {
        /// The value of the field.
        strategy: String,
    },
    /// The object is being deleted, and its finalizers delay the deletion.
    #[error(
        "it is being deleted, and its finalizers delay that: remove them, or use another object"
    )]
    BeingDeleted,
    /// Another object owns it, and it will be deleted with its owner.
    #[error(
        "it is owned by the {by}, and is deleted with it, after which the next leader waits out a lease: remove the owner reference"
    )]
    Owned {
        /// As in `Deployment my-app`.
        by: String,
    },
    /// The object is the lock of a leader for life.
    #[error(
        "it is the lock of a leader for life: use another object, or inspect it with --kind for-life"
    )]
    ForLife,
    /// The resourceVersion is not a number, so there are no tokens.
    #[error("its resourceVersion is not a number, so there are no tokens: use another cluster")]
    NoToken,
    /// The record has fields that this version does not know. They are preserved on a Lease.
    #[error("its record has fields that this version does not know: {}; find out what else writes it", .names.join(", "))]
    UnknownFields {
        /// The names of the fields.
        names: Vec<String>,
    },
    /// The holder is not a candidate of this library.
    #[error(
        "{identity} holds it, which is not a candidate of this library: its terms have no token here"
    )]
    ForeignHolder {
        /// The identity of the holder.
        identity: String,
    },
    /// The record does not state how long others must wait for the holder.
    #[error("its record does not state how long to wait for the holder, so others wait {} s: have the holder write leaseDurationSeconds", .assumed.as_secs())]
    NoDuration {
        /// How long they wait.
        assumed: Duration,
    },
    /// The holder's lease leaves little time for an API server that is slow or restarts.
    #[error("its holder's lease of {} s leaves little time for an API server that restarts: make it longer", .lease.as_secs())]
    ShortLease {
        /// The duration of the lease.
        lease: Duration,
    },
    /// The holder's lease differs from the lease of this lock.
    #[error("its holder's lease is {} s, and that of this lock is {} s: configure the same lease for all candidates", .theirs.as_secs(), .ours.as_secs())]
    OtherLease {
        /// The holder's lease.
        theirs: Duration,
        /// The lease of this lock.
        ours: Duration,
    },
    /// By the time in the record and the local clock, the holder has not renewed for longer than
    /// its lease.
    #[error("by its time and the local clock, its holder renewed {} ago, which is longer than its lease: the holder is gone and there is no other candidate, or a clock is wrong", roughly(*.ago))]
    Overdue {
        /// The time since its last renewal.
        ago: Duration,
    },
}

impl Finding {
    /// Returns the severity of the finding.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Coordinated { .. } | Self::BeingDeleted | Self::ForLife | Self::NoToken => {
                Severity::Critical
            }
            Self::Absent | Self::NoRecord | Self::ForeignHolder { .. } => Severity::Notice,
            _ => Severity::Warning,
        }
    }
}

impl<C: ResourceKind> ResourceLock<C> {
    /// Examines the object `name`, and compares it with the timing of this lock.
    ///
    /// Requires the right to `get`. `name` is the object's own name, regardless of
    /// [`object`](Self::object).
    ///
    /// # Errors
    /// As [`status`](Self::status).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn health(&self, name: &str, timeout: Duration) -> Result<Vec<Finding>, LockError> {
        let objects = self.objects();
        check_object(name)?;
        match objects.get(name, deadline_after(timeout)).await {
            Ok(None) => Ok(vec![Finding::Absent]),
            Ok(Some(object)) => {
                Ok(examine(C::PLACE, &object, self.default_lease(), SystemTime::now()))
            }
            Err(failure) => Err(objects.lock_error(failure, name, "read", "get", false)),
        }
    }
}

/// `ours`: the lease of this lock.
fn examine(place: RecordLocation, object: &Value, ours: Duration, now: SystemTime) -> Vec<Finding> {
    let mut found = Vec::new();
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    if record::annotation(object, super::life::MARK).is_some() {
        return vec![Finding::ForLife];
    }
    if text("/metadata/deletionTimestamp").is_some() {
        found.push(Finding::BeingDeleted);
    }
    if resource_version(object).is_none() {
        found.push(Finding::NoToken);
    }
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    if let Some(owner) = owners.and_then(|owners| owners.first()) {
        let of = |key| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        found.push(Finding::Owned { by: plain(&format!("{} {}", of("kind"), of("name"))) });
    }
    let raw = place.raw(object);
    let is_empty = |raw: &Value| raw.as_object().is_some_and(serde_json::Map::is_empty);
    let Some(record) = place.read(object).filter(|_| !raw.as_ref().is_some_and(is_empty)) else {
        let junk = record::annotation(object, record::ANNOTATION).is_some();
        found.push(match raw {
            // A Lease that was created without a spec.
            Some(raw) if is_empty(&raw) => Finding::NoRecord,
            None if !junk => Finding::NoRecord,
            _ => Finding::Unreadable,
        });
        return found;
    };
    if let Some(strategy) = &record.strategy {
        found.push(Finding::Coordinated { strategy: plain(strategy) });
    }
    let unknown = raw.as_ref().and_then(Value::as_object).into_iter().flatten();
    let names: Vec<String> = unknown
        .filter(|(key, value)| !value.is_null() && !KNOWN.contains(&key.as_str()))
        .map(|(key, _)| plain(key))
        .collect();
    if !names.is_empty() {
        found.push(Finding::UnknownFields { names });
    }
    if record.is_held() {
        holder(place, object, &record, ours, now, &mut found);
    }
    found
}

fn holder(
    place: RecordLocation,
    object: &Value,
    record: &ElectionRecord,
    ours: Duration,
    now: SystemTime,
    found: &mut Vec<Finding>,
) {
    if let Content::Held(entry) = codec::read(place, object, ours).content
        && entry.mark.is_none()
    {
        found.push(Finding::ForeignHolder { identity: entry.identity.to_string() });
    }
    let lease = record.lease();
    match lease {
        None => found.push(Finding::NoDuration { assumed: ours }),
        Some(lease) if lease != ours => {
            found.push(Finding::OtherLease { theirs: lease, ours });
        }
        Some(_) => {}
    }
    if let Some(lease) = lease.filter(|lease| *lease < SHORT) {
        found.push(Finding::ShortLease { lease });
    }
    let renewed = record.renew_time.as_deref().and_then(record::parse_time);
    let ago = renewed.and_then(|renewed| now.duration_since(renewed).ok());
    if let Some(ago) = ago.filter(|ago| *ago > lease.unwrap_or(ours) + Duration::from_secs(1)) {
        found.push(Finding::Overdue { ago });
    }
}

/// Formats a duration in the largest unit of which it has at least two.
fn roughly(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [("days", 86_400), ("h", 3_600), ("min", 60)];
    let fitting = units.into_iter().find(|(_, unit)| seconds >= 2 * unit);
    let (word, unit) = fitting.unwrap_or(("s", 1));
    format!("{} {word}", seconds / unit)
}

/// Formats text of other clients for one line.
fn plain(text: &str) -> String {
    crate::util::text::truncate(text, 256).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn found(object: Value) -> Vec<Finding> {
        let now = record::parse_time("2026-01-01T00:01:00Z").unwrap();
        examine(RecordLocation::Spec, &object, LEASE, now)
    }

    fn lease(spec: Value) -> Value {
        json!({ "metadata": { "name": "my-app", "resourceVersion": "7" }, "spec": spec })
    }

    #[test]
    fn a_healthy_lease_of_client_go_is_only_noted() {
        let spec = json!({
            "holderIdentity": "theirs", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": "2026-01-01T00:00:50.000000Z",
        });
        let foreign = Finding::ForeignHolder { identity: "theirs".to_owned() };
        assert_eq!(found(lease(spec)), [foreign]);
    }

    #[test]
    fn problems_of_a_record_are_reported() {
        let spec = json!({
            "holderIdentity": "a\nb", "leaseDurationSeconds": 2, "strategy": "Oldest\u{1b}",
            "preferredHolder": "c", "nothing": null, "renewTime": "2026-01-01T00:00:00Z",
        });
        let theirs = Duration::from_secs(2);
        let findings = found(lease(spec));
        assert_eq!(
            findings,
            [
                Finding::Coordinated { strategy: "Oldest ".to_owned() },
                Finding::UnknownFields { names: vec!["preferredHolder".to_owned()] },
                Finding::ForeignHolder { identity: "a b".to_owned() },
                Finding::OtherLease { theirs, ours: LEASE },
                Finding::ShortLease { lease: theirs },
                Finding::Overdue { ago: Duration::from_secs(60) },
            ]
        );
        assert!(findings.iter().all(|finding| !finding.to_string().contains('\n')));
        let worst = findings.iter().map(Finding::severity).max();
        assert_eq!(worst, Some(Severity::Critical));
    }

    #[test]
    fn durations_are_rounded_for_people() {
        let shown = |seconds| roughly(Duration::from_secs(seconds));
        assert_eq!([shown(1), shown(119), shown(120)], ["1 s", "119 s", "2 min"]);
        assert_eq!([shown(7_200), shown(28_054_686)], ["2 h", "324 days"]);
    }

    #[test]
    fn problems_of_an_object_are_reported() {
        assert_eq!(found(lease(json!({}))), [Finding::NoRecord]);
        assert_eq!(found(lease(Value::Null)), [Finding::NoRecord]);
        assert_eq!(found(lease(json!("junk"))), [Finding::Unreadable]);
        let no_duration = json!({ "holderIdentity": "a", "leaseDurationSeconds": -1 });
        assert!(found(lease(no_duration)).contains(&Finding::NoDuration { assumed: LEASE }));
        let object = json!({
            "metadata": {
                "resourceVersion": "x", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{ "kind": "Deployment", "name": "d" }],
            },
        });
        assert_eq!(
            found(object),
            [
                Finding::BeingDeleted,
                Finding::NoToken,
                Finding::Owned { by: "Deployment d".to_owned() },
                Finding::NoRecord,
            ]
        );
        let life = json!({ "metadata": { "annotations": { "incumbent/for-life": "1" } } });
        assert_eq!(found(life), [Finding::ForLife]);
        let junk = json!({ "metadata": {
            "resourceVersion": "7", "annotations": { record::ANNOTATION: "junk" },
        } });
        let now = SystemTime::now();
        assert_eq!(examine(RecordLocation::Annotation, &junk, LEASE, now), [Finding::Unreadable]);
    }
}
