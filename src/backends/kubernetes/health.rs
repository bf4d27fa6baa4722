//! Problems in the object of an election.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::codec;
use super::record::{self, ElectionRecord, RecordLocation, resource_version};
use super::resource::{ResourceKind, check_object};
use super::resource_lock::ResourceLock;
use crate::lock::Severity::{self, Critical, Notice, Warning};
use crate::lock::{Content, Finding, LockError};
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

impl<C: ResourceKind> ResourceLock<C> {
    /// Examines the object `name`, and compares it with the timing of this lock.
    ///
    /// Requires the permission to `get`. With [`object`](Self::object), that one is examined.
    ///
    /// # Errors
    /// As [`LockAdmin::record`](crate::lock::LockAdmin::record).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn health(&self, name: &str, timeout: Duration) -> Result<Vec<Finding>, LockError> {
        let (objects, name) = (self.objects(), self.inner.object_of(name));
        check_object(name)?;
        match objects.get(name, deadline_after(timeout)).await {
            Ok(None) => Ok(vec![Finding::new(
                Notice,
                "absent",
                "it does not exist yet:",
                "create it with `incumbent election create`; otherwise the first candidate creates it, and may wait out a lease before it leads",
            )]),
            Ok(Some(object)) => {
                Ok(examine(C::LOCATION, &object, self.default_lease(), SystemTime::now()))
            }
            Err(failure) => Err(objects.lock_error(failure, name, "read", "get", false)),
        }
    }
}

/// The findings of one object.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn find(
        &mut self,
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
        fix: &str,
    ) {
        self.0.push(Finding::new(severity, code, message, fix));
    }
}

/// `ours`: the lease of this lock.
fn examine(
    location: RecordLocation,
    object: &Value,
    ours: Duration,
    now: SystemTime,
) -> Vec<Finding> {
    let mut found = Findings::default();
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    if record::annotation(object, super::life::MARK).is_some() {
        let fix = "use another object, or inspect it with --kind for-life";
        found.find(Critical, "for-life", "it is the lock of a leader for life:", fix);
        return found.0;
    }
    if text("/metadata/deletionTimestamp").is_some() {
        let message = "it is being deleted, and its finalizers delay that:";
        found.find(Critical, "being-deleted", message, "remove them, or use another object");
    }
    if resource_version(object).is_none() {
        let message = "its resourceVersion is not a number, so there are no tokens:";
        found.find(Critical, "no-token", message, "use another cluster");
    }
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    if let Some(owner) = owners.and_then(|owners| owners.first()) {
        let of = |key| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let by = plain(&format!("{} {}", of("kind"), of("name")));
        let message = format!(
            "it is owned by the {by}, and is deleted with it, after which the next leader waits out a lease:"
        );
        found.find(Warning, "owned", message, "remove the owner reference");
    }
    let raw = location.raw(object);
    let is_empty = |raw: &Value| raw.as_object().is_some_and(serde_json::Map::is_empty);
    let Some(record) = location.read(object).filter(|_| !raw.as_ref().is_some_and(is_empty)) else {
        let has_none = match raw {
            // A Lease that was created without a spec.
            Some(raw) => is_empty(&raw),
            None => record::annotation(object, record::ANNOTATION).is_none(),
        };
        if has_none {
            found.find(Notice, "no-record", "it carries no record yet", "");
        } else {
            let message = "its record cannot be read, and candidates write over it:";
            found.find(Warning, "unreadable", message, "find out what else uses the object");
        }
        return found.0;
    };
    if let Some(strategy) = &record.strategy {
        let message = format!(
            "it has spec.strategy {}, so the API server chooses its holder (coordinated leader election):",
            plain(strategy)
        );
        found.find(Critical, "coordinated", message, "use another object, or remove spec.strategy");
    }
    let unknown = raw.as_ref().and_then(Value::as_object).into_iter().flatten();
    let names: Vec<String> = unknown
        .filter(|(key, value)| !value.is_null() && !KNOWN.contains(&key.as_str()))
        .map(|(key, _)| plain(key))
        .collect();
    if !names.is_empty() {
        let names = names.join(", ");
        let message = format!("its record has fields that this version does not know: {names};");
        found.find(Warning, "unknown-fields", message, "find out what else writes it");
    }
    if record.is_held() {
        holder(location, object, &record, ours, now, &mut found);
    }
    found.0
}

fn holder(
    location: RecordLocation,
    object: &Value,
    record: &ElectionRecord,
    ours: Duration,
    now: SystemTime,
    found: &mut Findings,
) {
    if let Content::Held(entry) = codec::read(location, object, ours).content
        && entry.mark.is_none()
    {
        let identity = &entry.identity;
        let message = format!(
            "{identity} holds it, which is not a candidate of this library: its terms have no token here"
        );
        found.find(Notice, "foreign-holder", message, "");
    }
    let lease = record.lease();
    let seconds = ours.as_secs();
    match lease {
        None => found.find(
            Warning,
            "no-duration",
            format!("its record does not state how long to wait for the holder, so others wait {seconds} s:"),
            "have the holder write leaseDurationSeconds",
        ),
        Some(lease) if lease != ours => found.find(
            Warning,
            "other-lease",
            format!("its holder's lease is {} s, and that of this lock is {seconds} s:", lease.as_secs()),
            "configure the same lease for all candidates",
        ),
        Some(_) => {}
    }
    if let Some(lease) = lease.filter(|lease| *lease < SHORT) {
        let message = format!(
            "its holder's lease of {} s leaves little time for an API server that restarts:",
            lease.as_secs()
        );
        found.find(Warning, "short-lease", message, "make it longer");
    }
    let renewed = record.renew_time.as_deref().and_then(record::parse_time);
    let ago = renewed.and_then(|renewed| now.duration_since(renewed).ok());
    if let Some(ago) = ago.filter(|ago| *ago > lease.unwrap_or(ours) + Duration::from_secs(1)) {
        let message = format!(
            "by its time and the local clock, its holder renewed {} ago, which is longer than its lease: the holder is gone and there is no other candidate, or a clock is wrong",
            roughly(ago)
        );
        found.find(Warning, "overdue", message, "");
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

    fn codes(findings: &[Finding]) -> Vec<&'static str> {
        findings.iter().map(Finding::code).collect()
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
        assert_eq!(codes(&found(lease(spec))), ["foreign-holder"]);
    }

    #[test]
    fn problems_of_a_record_are_reported() {
        let spec = json!({
            "holderIdentity": "a\nb", "leaseDurationSeconds": 2, "strategy": "Oldest\u{1b}",
            "preferredHolder": "c", "nothing": null, "renewTime": "2026-01-01T00:00:00Z",
        });
        let findings = found(lease(spec));
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "it has spec.strategy Oldest , so the API server chooses its holder (coordinated leader election): use another object, or remove spec.strategy",
                "its record has fields that this version does not know: preferredHolder; find out what else writes it",
                "a b holds it, which is not a candidate of this library: its terms have no token here",
                "its holder's lease is 2 s, and that of this lock is 15 s: configure the same lease for all candidates",
                "its holder's lease of 2 s leaves little time for an API server that restarts: make it longer",
                "by its time and the local clock, its holder renewed 60 s ago, which is longer than its lease: the holder is gone and there is no other candidate, or a clock is wrong",
            ]
        );
        assert_eq!(findings[0].fix(), Some("use another object, or remove spec.strategy"));
        assert!(findings[0].message().ends_with("(coordinated leader election)"));
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
        assert_eq!(codes(&found(lease(json!({})))), ["no-record"]);
        assert_eq!(codes(&found(lease(Value::Null))), ["no-record"]);
        assert_eq!(codes(&found(lease(json!("junk")))), ["unreadable"]);
        let no_duration = json!({ "holderIdentity": "a", "leaseDurationSeconds": -1 });
        assert!(codes(&found(lease(no_duration))).contains(&"no-duration"));
        let object = json!({
            "metadata": {
                "resourceVersion": "x", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{ "kind": "Deployment", "name": "d" }],
            },
        });
        let expected = ["being-deleted", "no-token", "owned", "no-record"];
        assert_eq!(codes(&found(object)), expected);
        let life = json!({ "metadata": { "annotations": { "incumbent/for-life": "1" } } });
        assert_eq!(codes(&found(life)), ["for-life"]);
        let junk = json!({ "metadata": {
            "resourceVersion": "7", "annotations": { record::ANNOTATION: "junk" },
        } });
        let now = SystemTime::now();
        let found = examine(RecordLocation::Annotation, &junk, LEASE, now);
        assert_eq!(codes(&found), ["unreadable"]);
    }
}
