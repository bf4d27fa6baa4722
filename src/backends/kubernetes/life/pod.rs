//! Whether a pod may still be running, by its own object and its node's.

use serde_json::Value;

/// The taint by which an administrator states that a machine is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub(in crate::backends::kubernetes) fn uid(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn version(object: &Value) -> &str {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn is_being_deleted(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Returns the node that a pod was assigned to, if any.
pub(in crate::backends::kubernetes) fn node(pod: &Value) -> Option<&str> {
    pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty())
}

/// Returns how a pod has ended for good, if it has: its phase is final, and none of its containers
/// is shown as running. Kubelets before 1.27 could report an eviction before the containers had
/// stopped.
pub(super) fn ended(pod: &Value) -> Option<String> {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str)?;
    if !matches!(phase, "Succeeded" | "Failed") || runs(pod) {
        return None;
    }
    let reason = pod.pointer("/status/reason").and_then(Value::as_str).unwrap_or_default();
    Some(if reason.is_empty() { phase.to_owned() } else { format!("{phase}: {reason}") })
}

fn runs(pod: &Value) -> bool {
    ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
        .iter()
        .filter_map(|list| pod.get("status")?.get(list)?.as_array())
        .flatten()
        .any(|status| status.pointer("/state/running").is_some_and(|running| !running.is_null()))
}

/// The health of a node, as it affects its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// No condition that ends a pod.
    Serves,
    /// The node has been unreachable for a while; its pods may still run.
    Unreachable,
    /// Off according to an administrator, and not ready.
    OutOfService,
}

pub(super) fn health(node: &Value) -> Health {
    let items = |path| node.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let ready = items("/status/conditions")
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some("Ready"))
        .and_then(|condition| condition.get("status")?.as_str());
    let mut taints = items("/spec/taints").filter_map(|taint| taint.get("key")?.as_str());
    match ready {
        Some("True") => Health::Serves, // regardless of its taints
        _ if taints.any(|taint| taint == OUT_OF_SERVICE) => Health::OutOfService,
        Some("Unknown") => Health::Unreachable,
        _ => Health::Serves,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_final_phase_without_running_containers_is_an_end() {
        let of = |status: Value| ended(&json!({ "status": status }));
        for phase in ["Pending", "Running", "Unknown", ""] {
            assert_eq!(of(json!({ "phase": phase, "reason": "Evicted" })), None, "{phase}");
        }
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({ "phase": "Succeeded" })).as_deref(), Some("Succeeded"));
        let evicted = json!({ "phase": "Failed", "reason": "Evicted" });
        assert_eq!(of(evicted).as_deref(), Some("Failed: Evicted"));
        let containers = |state: Value| json!({ "phase": "Failed", "containerStatuses": [{ "state": { "terminated": {} } }, { "state": state }] });
        assert_eq!(of(containers(json!({ "running": { "startedAt": null } }))), None);
        assert_eq!(of(containers(json!({ "terminated": {} }))).as_deref(), Some("Failed"));
        let sidecar =
            json!({ "phase": "Failed", "initContainerStatuses": [{ "state": { "running": {} } }] });
        assert_eq!(of(sidecar), None);
    }

    #[test]
    fn a_node_is_off_only_by_an_administrators_word() {
        let node = |ready: &str, taint: &str| {
            health(&json!({
                "spec": { "taints": [{ "key": taint, "effect": "NoExecute" }] },
                "status": { "conditions": [
                    { "type": "MemoryPressure", "status": "Unknown" },
                    { "type": "Ready", "status": ready },
                ] },
            }))
        };
        let unreachable = "node.kubernetes.io/unreachable";
        assert_eq!(node("True", OUT_OF_SERVICE), Health::Serves);
        assert_eq!(node("Unknown", OUT_OF_SERVICE), Health::OutOfService);
        assert_eq!(node("False", OUT_OF_SERVICE), Health::OutOfService);
        assert_eq!(node("Unknown", unreachable), Health::Unreachable);
        assert_eq!(node("False", unreachable), Health::Serves, "the node reports it");
        assert_eq!(health(&json!({})), Health::Serves);
    }
}
