//! The sentinel of a pod, with the permissions of its manifest.

use incumbent_test_support::eventually;
use serde_json::{Value, json};

use super::env::{OBSERVER, TestEnv};
use crate::shell::Shell;

const MANIFEST: &str = include_str!("../../../../deploy/kubernetes-sentinel.yaml");

/// Those of a candidate of the election `my-daemon`.
fn rules() -> Value {
    let group = "coordination.k8s.io";
    json!([
        {
            "apiGroups": [group], "resources": ["leases"], "resourceNames": ["my-daemon"],
            "verbs": ["get", "update", "watch", "patch"],
        },
        { "apiGroups": [group], "resources": ["leases"], "verbs": ["create"] },
        {
            "apiGroups": [group], "resources": ["leases"], "resourceNames": ["my-daemon-roll-call"],
            "verbs": ["get", "watch", "patch"],
        },
        {
            "apiGroups": [group], "resources": ["leases"], "resourceNames": ["my-daemon-checkpoint"],
            "verbs": ["get", "update"],
        },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create"] },
    ])
}

/// The server refuses fields that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn sentinel_manifest_is_accepted() {
    let env = TestEnv::new().await;
    let manifests: Vec<_> = MANIFEST.split("---\n").collect();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let paths = [
        ("/api/v1", "serviceaccounts"),
        (rbac, "roles"),
        (rbac, "rolebindings"),
        ("/apis/coordination.k8s.io/v1", "leases"),
        ("/apis/apps/v1", "deployments"),
    ];
    assert_eq!(manifests.len(), paths.len());
    for (manifest, (place, plural)) in manifests.into_iter().zip(paths) {
        let query = "dryRun=All&fieldValidation=Strict";
        let path = format!("{place}/namespaces/{}/{plural}?{query}", env.namespace);
        let request = http::Request::post(path).header("content-type", "application/yaml");
        let request = request.body(manifest.as_bytes().to_vec()).unwrap();
        let created: Value = env.admin.client().request(request).await.unwrap();
        if plural == "roles" {
            assert_eq!(created["rules"], rules());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_the_manifest_suffice_to_release() {
    let env = TestEnv::new().await;
    env.allow(OBSERVER, &rules()).await;
    env.out(&["election", "create", "my-daemon"]);
    let path = env.shell.home().join("own/socket").display().to_string();
    let user = Shell::bare().with("KUBECONFIG", env.config_of(OBSERVER));
    let _sentinel = user.start(&env.args(&["sentinel", "--listen", &path]));
    let program = Shell::bare()
        .with("KUBECONFIG", env.server.kubeconfig().display().to_string())
        .with("INCUMBENT_SENTINEL", &path);
    // A lease that no test waits for.
    let campaign = ["campaign", "my-daemon", "--lease", "10m", "--identity"];
    let mut first = program.start(&env.args(&[&campaign[..], &["first"]].concat()));
    first.line_with("won");
    eventually("the term is registered, and can be released", async || {
        let report = program.run(&env.args(&["doctor"])).stdout;
        report.contains("ok       sentinel    responds; processes: 1, terms: 1").then_some(())
    })
    .await;
    let mut second = env.start(&[&campaign[..], &["second"]].concat());
    second.line_with("leader: first");
    first.end_with("KILL");
    second.line_with("won");
}
