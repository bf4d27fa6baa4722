//! `election create`: the object of an election without candidates.

use std::time::{Duration, Instant};

use super::env::{OBSERVER, TestEnv};
use crate::shell::Shell;
use serde_json::json;

const MANIFEST: &str = include_str!("../../../../deploy/kubernetes.yaml");

/// Checks that the first candidate leads without waiting for its lease of an hour.
fn assert_led_at_once(env: &TestEnv, kind: &str) {
    let began = Instant::now();
    let args = env.args(&["campaign", "my-app", "--lease", "3600s", "--kind", kind]);
    let mut first = env.shell.start(&args);
    first.line_with("won: leading with token");
    assert!(began.elapsed() < Duration::from_secs(3600));
    first.end_with("TERM");
}

#[tokio::test(flavor = "multi_thread")]
async fn created_election_has_a_leader_at_once() {
    for (kind, name) in [("lease", "Lease"), ("configmap", "ConfigMap")] {
        let env = TestEnv::new().await;
        let create = ["election", "create", "my-app", "--kind", kind];
        let output = env.out(&create);
        assert_eq!(output, format!("created the {name} {}/my-app\n", env.namespace));
        env.expect_refusal(&create, "already", 1);
        assert_led_at_once(&env, kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_the_manifest_has_a_leader_at_once() {
    let env = TestEnv::new().await;
    let lease = MANIFEST.split("---\n").find(|part| part.contains("\nkind: Lease\n"));
    let lease: serde_json::Value = {
        let (_, annotation) = lease.expect("a Lease").split_once("annotations:\n").unwrap();
        let (key, value) = annotation.trim().split_once(": ").unwrap();
        json!({"metadata": {"name": "my-app", "annotations": {key: value.trim_matches('"')}}})
    };
    env.post(&env.leases(), lease).await;
    assert_led_at_once(&env, "lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_creation_is_reported() {
    let env = TestEnv::new().await;
    env.expect_refusal(&["election", "create", "my_app"], "is not a valid name of a Lease", 2);
    env.expect_refusal(&["election", "create", "a", "--kind", "for-life"], "nothing to create", 2);
    let lock = ["--lock", "kubernetes", "--namespace", "absent"];
    let args = [&["election", "create", "a"][..], &lock].concat();
    env.shell.expect_refusal(&args, "no namespace absent", 3);
    let observer = Shell::bare().with("KUBECONFIG", env.config_of(OBSERVER));
    observer.expect_refusal(
        &env.args(&["election", "create", "a"]),
        "the right to create is missing",
        5,
    );
    let file = format!("sqlite:{}", env.shell.home().join("elections.db").display());
    let output = env.shell.out(&["election", "create", "a", "--lock", &file]);
    assert!(output.contains("exists: a needs nothing else"), "{output}");
}
