//! Admission policies that change what candidates write.

use std::time::Duration;

use incumbent::Cause;
use incumbent::lock::LockErrorKind;
use incumbent_test_support::eventually;
use serde_json::json;

use crate::conformance::{leads, lost};
use crate::env::{InLease, TestEnv};
use crate::fresh::made;

/// Longer than a busy machine stands still.
const LEASE: Duration = Duration::from_secs(15);

/// Standbys would take the Lease of a leader whose renewals are shortened, while it leads by what
/// it wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_whose_writes_are_changed_steps_down() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    made(&env).await;
    let ours = env.campaign("ours").await;
    drop(leads(&ours).await);
    let mut changes = ours.changes();
    let name = format!("shorten-{}", env.namespace);
    let path = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({ "metadata": { "name": name }, "spec": {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": { "resourceRules": [{
            "apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["leases"],
        }] },
        "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression":
            "[JSONPatch{op: 'replace', path: '/spec/leaseDurationSeconds', value: 1}]",
        } }],
    } });
    env.post(&format!("{path}/mutatingadmissionpolicies"), &policy).await;
    let label = json!({ "kubernetes.io/metadata.name": env.namespace });
    let binding = json!({ "metadata": { "name": name }, "spec": {
        "policyName": name,
        "matchResources": { "namespaceSelector": { "matchLabels": label } },
    } });
    env.post(&format!("{path}/mutatingadmissionpolicybindings"), &binding).await;
    let cause = lost(&mut changes).await;
    assert!(matches!(cause, Cause::Superseded { .. }), "{cause:?}");
    assert!(!ours.is_leader());
    let failure = eventually("a report", async || {
        ours.lock_failure().filter(|failure| failure.kind == LockErrorKind::Misconfigured)
    });
    let failure = failure.await.message;
    assert!(failure.contains("leaseDurationSeconds is not stored as it was written"), "{failure}");
}
