//! `election members` on Kubernetes.

use incumbent_test_support::eventually;
use serde_json::{Value, json};

use super::env::{OBSERVER, TestEnv};

#[tokio::test(flavor = "multi_thread")]
async fn members_need_a_lease_and_the_right_to_call() {
    let env = TestEnv::new().await;
    let members = ["election", "members", "my-app"];
    for (kind, what) in [
        ("configmap", "a ConfigMap carries no roll calls"),
        ("for-life", "a lock for life carries no roll calls"),
    ] {
        env.expect_refusal(&[&members[..], &["--kind", kind]].concat(), what, 2);
    }
    env.create_lease("my-app", Value::Null).await;
    let rule = json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "get"],
    });
    env.allow(OBSERVER, &json!([rule])).await;
    let observer = env.config_of(OBSERVER);
    let members = [&members[..], &["--kubeconfig", &observer]].concat();
    eventually("the right to get", async || {
        let refused = env.shell.run(&env.args(&members)).stderr;
        refused.contains("the right to create is missing").then_some(())
    })
    .await;
    env.expect_refusal(&members, "my-app-roll-call: the right to create is missing", 5);
}

/// A roll call changes the version of the Lease, which is the token of a term's first write.
#[tokio::test(flavor = "multi_thread")]
async fn token_is_not_the_version_after_a_roll_call() {
    let env = TestEnv::new().await;
    env.out(&["election", "create", "my-app"]);
    let mut leader = env.start(&["campaign", "my-app", "--lease", "1m", "--identity", "first"]);
    let token = leader.line_with("won").rsplit(' ').next().expect("a token").to_owned();
    let mut watch = env.start(&["election", "watch", "-o", "json"]);
    let found: Value = serde_json::from_str(&watch.line()).expect("JSON");
    assert_eq!(found["token"].to_string(), token);
    env.out(&["election", "members", "my-app", "--within", "100ms"]);
    let info = env.json(&["election", "info", "my-app", "-o", "json"]);
    let shown = info["elections"][0]["token"].to_string();
    assert!(shown == token || shown == "null", "{token}: {info}");
    leader.end_with("TERM");
    let next: Value = serde_json::from_str(&watch.line()).expect("JSON");
    assert_eq!(next["event"], "vacant", "it is the same term: {next}");
}
