//! client-go's election record, and its location in an object.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::lock::codec::MAX_DURATION;
use crate::util::since_unix_epoch;

/// Where client-go keeps the record on a ConfigMap or an Endpoints object.
pub(super) const ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

/// The lease duration of a released record: client-go's value, since its server-side validation
/// requires a positive one.
pub(super) const RELEASED_SECONDS: i32 = 1;

/// The record that client-go's candidates write and read, in either location. Times stay as they
/// were written: they are for people, and are compared for equality only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ElectionRecord {
    pub holder_identity: String,
    pub lease_duration_seconds: i32,
    pub acquire_time: Option<String>,
    pub renew_time: Option<String>,
    #[serde(alias = "leaseTransitions")]
    pub leader_transitions: i32,
    #[serde(skip_serializing)]
    pub strategy: Option<String>,
}

impl ElectionRecord {
    /// Returns how long the record states that the holder must be waited for, bounded by the
    /// maximum that is accepted; `None` if it states no duration.
    pub(super) fn lease(&self) -> Option<Duration> {
        let seconds = u64::try_from(self.lease_duration_seconds).ok()?;
        (seconds > 0).then(|| Duration::from_secs(seconds).min(MAX_DURATION))
    }

    pub(super) fn is_held(&self) -> bool {
        !self.holder_identity.is_empty()
    }

    /// Returns this record with times that client-go's candidates see to differ from all records of
    /// its term before it, of which `old` is the last.
    ///
    /// They wait for a lease from the first of all records that are equal to them, and compare
    /// times in whole seconds. They would not see a renewal in the second of the last one, and take
    /// over that much too soon. As `renewTime` must not run ahead of the clock, `acquireTime` goes
    /// back by a second for each further write. A clock that was set back must not pass through
    /// the same second again.
    pub(super) fn distinct_from(mut self, old: &Self, location: RecordLocation) -> Self {
        let term = |record: &Self| (record.holder_identity.clone(), record.leader_transitions);
        let times = |record: &Self| {
            let seconds = |time: &Option<String>| whole_seconds(time.as_deref()?);
            Some((seconds(&record.acquire_time)?, seconds(&record.renew_time)?))
        };
        if let (Some((acquired, renewed)), Some((last_acquired, last_renewed))) =
            (times(&self), times(old))
            && term(&self) == term(old)
            && renewed <= last_renewed
        {
            let acquired = acquired.min(last_acquired.saturating_sub(1));
            self.acquire_time = Some(location.time(Duration::from_secs(acquired)));
            if renewed < last_renewed {
                self.renew_time.clone_from(&old.renew_time);
            }
        }
        self
    }
}

/// The later of two times, if both can be read.
pub(super) fn later(one: String, other: String) -> String {
    if parse_time(&one) < parse_time(&other) { other } else { one }
}

/// Since the Unix epoch.
fn whole_seconds(time: &str) -> Option<u64> {
    Some(parse_time(time)?.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Where an object carries the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordLocation {
    /// The `spec` of a Lease.
    Spec,
    /// An annotation.
    Annotation,
}

impl RecordLocation {
    /// Returns the record; `None` if there is no readable one.
    pub(super) fn read(self, object: &Value) -> Option<ElectionRecord> {
        serde_json::from_value(without_nulls(&self.raw(object)?)).ok()
    }

    /// Returns the value at the location of the record, of any form; `None` also if it is not JSON.
    pub(super) fn raw(self, object: &Value) -> Option<Value> {
        match self {
            Self::Spec => object.get("spec").filter(|spec| !spec.is_null()).cloned(),
            Self::Annotation => serde_json::from_str(annotation(object, ANNOTATION)?).ok(),
        }
    }

    /// Writes the record. All other fields in the `spec` of a Lease stay, as only the server gives
    /// them a meaning.
    pub(super) fn write(self, object: &mut Value, record: &ElectionRecord) {
        match self {
            Self::Spec => {
                edit(object, "spec", |spec| {
                    spec.insert("holderIdentity".into(), json!(record.holder_identity));
                    spec.insert(
                        "leaseDurationSeconds".into(),
                        json!(record.lease_duration_seconds),
                    );
                    spec.insert("acquireTime".into(), json!(record.acquire_time));
                    spec.insert("renewTime".into(), json!(record.renew_time));
                    spec.insert("leaseTransitions".into(), json!(record.leader_transitions));
                });
            }
            Self::Annotation => {
                let text = serde_json::to_string(record).unwrap_or_default(); // has string keys only
                annotate(object, ANNOTATION, text);
            }
        }
    }

    /// Formats the current time for the record: client-go writes microseconds on a Lease and
    /// seconds elsewhere.
    pub(super) fn now(self) -> String {
        self.time(since_unix_epoch())
    }

    pub(super) fn time(self, since_epoch: Duration) -> String {
        let micros = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
        let time = Timestamp::from_microsecond(micros).unwrap_or_default();
        match self {
            Self::Spec => time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            Self::Annotation => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }
}

/// Parses a time from a record that any client may have written.
pub(super) fn parse_time(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

/// Returns one of an object's annotations.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

pub(super) fn annotate(object: &mut Value, key: &str, value: String) {
    edit(object, "metadata", |metadata| {
        let mut annotations = match metadata.remove("annotations") {
            Some(Value::Object(annotations)) => annotations,
            _ => Map::new(),
        };
        annotations.insert(key.to_owned(), Value::String(value));
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    });
}

pub(super) fn unannotate(object: &mut Value, key: &str) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.remove(key);
    }
}

/// Edits the object under `key`, and creates it if absent.
fn edit(object: &mut Value, key: &str, act: impl FnOnce(&mut Map<String, Value>)) {
    let mut fields = match object.take() {
        Value::Object(fields) => fields,
        _ => Map::new(), // in objects of the API the value is always an object
    };
    let mut member = match fields.remove(key) {
        Some(Value::Object(member)) => member,
        _ => Map::new(),
    };
    act(&mut member);
    fields.insert(key.to_owned(), Value::Object(member));
    *object = Value::Object(fields);
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        other => other.clone(),
    }
}

/// Returns an object's version. Kubernetes has allowed comparing it as a number since 1.35, and
/// etcd has always counted in this way.
pub(super) fn resource_version(object: &Value) -> Option<u64> {
    object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(1_000);

    /// client-go's `LeaseLock.Get` compares the JSON of a record, whose times have whole seconds.
    fn as_client_go_compares(record: &ElectionRecord) -> (Option<u64>, Option<u64>) {
        let seconds = |time: &Option<String>| whole_seconds(time.as_deref().unwrap());
        (seconds(&record.acquire_time), seconds(&record.renew_time))
    }

    #[test]
    fn no_two_records_of_a_term_are_equal_in_whole_seconds() {
        for location in [RecordLocation::Spec, RecordLocation::Annotation] {
            let written = |at: Duration, began: String| ElectionRecord {
                holder_identity: "a".to_owned(),
                lease_duration_seconds: 3,
                acquire_time: Some(began),
                renew_time: Some(location.time(at)),
                ..ElectionRecord::default()
            };
            let mut last = written(TERM, location.time(TERM));
            let mut seen = vec![as_client_go_compares(&last)];
            // Renewals of a short lease, and a clock that is set back.
            let forward = (1..40).map(|n| TERM + Duration::from_millis(400) * n);
            let back = (30..60).map(|n| TERM + Duration::from_millis(400) * n);
            for at in forward.chain(back) {
                let began = later(last.acquire_time.clone().unwrap(), location.time(TERM));
                last = written(at, began).distinct_from(&last, location);
                let compared = as_client_go_compares(&last);
                assert!(!seen.contains(&compared), "{last:?}");
                assert!(at < TERM + Duration::from_secs(12) || compared.1 >= Some(1_012));
                seen.push(compared);
            }
            let at = TERM + Duration::from_secs(60);
            let last = written(at, location.time(TERM)).distinct_from(&last, location);
            assert_eq!(as_client_go_compares(&last), (Some(1_000), Some(1_060)), "people read it");
        }
    }
}
