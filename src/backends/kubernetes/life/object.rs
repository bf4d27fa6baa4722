//! The content of a lock's object.

use serde_json::{Map, Value, json};

use crate::backends::kubernetes::record;

/// The annotation on a lock of this library, which identifies the candidate that created it.
pub(in crate::backends::kubernetes) const MARK: &str = "incumbent/for-life";

/// A reference to a pod that owns a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) name: String,
    pub(super) uid: String,
}

/// The state of a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The lock is being deleted, and has no owner.
    Leaving,
    /// Pods own the lock; empty if it has lost its owner.
    Of(Vec<Owner>),
    /// The object is not a lock, for this reason.
    NoLock(String),
}

/// Reads an object under the lock's name. A lock carries nothing, or this library's mark: an object
/// with other content is not a lock, and must never be deleted.
pub(super) fn read(object: &Value) -> Content {
    let ours = record::annotation(object, MARK).is_some();
    if record::annotation(object, record::ANNOTATION).is_some() {
        return Content::NoLock("it carries the record of an election with leases".to_owned());
    }
    if !ours && let Some(field) = carried(object, &Map::new()) {
        return Content::NoLock(format!("it has {field}, so it is not a lock"));
    }
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Content::Leaving;
    }
    let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let (mut pods, mut other) = (Vec::new(), None);
    for reference in references.into_iter().flatten() {
        let text = |key| reference.get(key).and_then(Value::as_str).unwrap_or_default();
        if (text("apiVersion"), text("kind")) == ("v1", "Pod") {
            pods.push(Owner { name: text("name").to_owned(), uid: text("uid").to_owned() });
        } else {
            other = Some(format!("{} {}", text("kind"), text("name")));
        }
    }
    match other {
        Some(other) if pods.is_empty() => {
            Content::NoLock(format!("it is owned by the {other}, not by a pod"))
        }
        _ => Content::Of(pods),
    }
}

/// Returns a field that neither every object has nor a lock with these fields, if there is one.
pub(super) fn carried<'a>(object: &'a Value, own: &Map<String, Value>) -> Option<&'a str> {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let fields = object.as_object()?.iter().find(|(key, value)| {
        let every = matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status");
        !every && !own.contains_key(*key) && !empty(value)
    });
    fields.map(|(key, _)| key.as_str())
}

/// Returns the lock of a pod.
pub(super) fn new_lock(
    api_version: &str,
    kind: &str,
    name: &str,
    mark: &str,
    owner: &Owner,
    fields: &Map<String, Value>,
) -> Value {
    let mut object = fields.clone();
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    let reference =
        json!({ "apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid });
    let metadata = json!({
        "name": name,
        "annotations": { MARK: mark },
        "ownerReferences": [reference],
    });
    object.insert("metadata".to_owned(), metadata);
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Value {
        json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": format!("{name}-uid") })
    }

    #[test]
    fn the_lock_of_operator_sdk_is_read() {
        let lock = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "my-app", "ownerReferences": [pod("a")] },
        });
        let owner = Owner { name: "a".to_owned(), uid: "a-uid".to_owned() };
        assert_eq!(read(&lock), Content::Of(vec![owner]));
    }

    #[test]
    fn objects_with_other_content_are_not_locks() {
        for object in [
            json!({ "metadata": {}, "data": { "key": "value" } }),
            json!({ "metadata": { "ownerReferences": [pod("a")] }, "data": { "key": "value" } }),
            json!({ "metadata": {}, "spec": { "holderIdentity": "b" } }),
            json!({ "metadata": {}, "immutable": true }),
            json!({ "metadata": { "annotations": { record::ANNOTATION: "{}" } } }),
            json!({ "metadata": { "annotations": { MARK: "1", record::ANNOTATION: "{}" } } }),
            json!({ "metadata": { "ownerReferences": [{ "kind": "Deployment", "name": "d" }] } }),
            json!({ "metadata": { "ownerReferences": [
                { "apiVersion": "example.com/v1", "kind": "Pod", "name": "d" }
            ] } }),
        ] {
            assert!(matches!(read(&object), Content::NoLock(_)), "{object}");
        }
    }

    #[test]
    fn a_lock_that_carries_nothing_or_our_mark_is_one() {
        for object in [
            json!({ "metadata": {} }),
            json!({ "metadata": {}, "spec": {}, "data": null, "subsets": [] }),
            json!({ "metadata": { "annotations": { MARK: "1" } }, "data": { "note": "by hand" } }),
            json!({ "metadata": null }),
            json!([]),
        ] {
            assert_eq!(read(&object), Content::Of(vec![]), "{object}");
        }
        let leaving = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        assert_eq!(read(&leaving), Content::Leaving);
    }
}
