//! Commands of users who lack a permission.

use incumbent_test_support::eventually;
use serde_json::json;

use super::env::{NO_RIGHTS, OBSERVER, SERVE, TestEnv, cells};

#[tokio::test(flavor = "multi_thread")]
async fn missing_right_is_reported() {
    let env = TestEnv::new().await;
    let no_rights = env.config_of(NO_RIGHTS);
    for (args, right) in [
        (&["election", "list"][..], "the right to list is missing"),
        (&["election", "info", "my-app"], "the right to get is missing"),
        (&["election", "evict", "my-app", "--force"], "the right to get is missing"),
        (&["election", "watch"], "the right to list is missing"),
        (&["campaign", "my-app"], "the right to get is missing"),
        (&["run", "my-app", "--", "/bin/true"], "the right to get is missing"),
        (&["election", "file", "my-app", "f"], "the right to get is missing"),
    ] {
        let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let args = [&args[..at], &["--kubeconfig", &no_rights], &args[at..]].concat();
        env.expect_refusal(&args, right, 5);
    }
    // A user that is unknown to the server.
    let stranger = std::fs::read_to_string(&no_rights).unwrap();
    env.shell.write("stranger", &stranger.replace("no-rights-token", "s3cret"));
    let line = env.expect_refusal(
        &["election", "list", "--kubeconfig", "stranger"],
        "does not accept the credentials",
        5,
    );
    assert!(!line.contains("s3cret"), "{line}");
}

/// Without the permission to watch, the command polls every second. Without the permission to
/// update, it evicts no leader.
#[tokio::test(flavor = "multi_thread")]
async fn observer_needs_the_right_to_list_only() {
    let env = TestEnv::new().await;
    let rule = json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "get"],
    });
    env.allow(OBSERVER, &json!([rule])).await;
    let observer = env.config_of(OBSERVER);
    let list = ["election", "list", "--kubeconfig", &observer];
    // The binding takes effect a little later.
    eventually("the right", async || {
        (env.shell.run(&env.args(&list)).code == Some(0)).then_some(())
    })
    .await;
    let mut watch = env.start(&["election", "watch", "--kubeconfig", &observer]);
    let mut first = env.start_campaign("first");
    first.line_with("won");
    watch.line_with("my-app: first leads with token ");
    let evict = ["election", "evict", "my-app", "--force", "--kubeconfig", &observer];
    env.expect_refusal(&evict, "the right to update is missing", 5);
    first.end_with("TERM");
    watch.line_with("first released: stopped");
    let lease = format!("{}/my-app", env.leases());
    let mut second = env.start_campaign("second");
    watch.line_with("my-app: second leads");
    env.send("DELETE", &lease, "application/json", json!({})).await;
    second.line_with("lost: evicted"); // a deletion evicts as well
}

/// Each permission of a leader for life, as documented.
#[tokio::test(flavor = "multi_thread")]
async fn rights_to_read_and_to_evict_match_the_documentation() {
    let env = TestEnv::new().await;
    let uid = env.create_pod("first").await;
    let mut first = env.start_life("first", SERVE);
    first.line_with("serves");
    let rule = |resources: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resources], "verbs": verbs});
    let rules = json!([rule("configmaps", &["list", "get"])]);
    env.allow(OBSERVER, &rules).await;
    let observer = env.config_of(OBSERVER);
    let as_observer = |args: &[&str]| -> Vec<String> {
        let args = [args, &["--kubeconfig", &observer]].concat();
        env.for_life_args(&args).into_iter().map(str::to_owned).collect()
    };
    let run = |args: &[&str]| {
        let args = as_observer(args);
        env.shell.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    eventually("the right", async || (run(&["election", "list"]).code == Some(0)).then_some(()))
        .await;
    let output = run(&["election", "info", "my-app"]);
    assert_eq!(cells(output.stdout.lines().last().unwrap())[..3], ["my-app", "first", "unknown"]);
    let evict = ["election", "evict", "my-app", "--force", "--wait", "0s"];
    let output = run(&evict);
    assert!(output.stderr.contains("the right to delete is missing"), "{output:?}");
    assert_eq!(output.code, Some(5));
    assert_eq!(env.get_lock().await["metadata"]["ownerReferences"][0]["uid"], uid);

    let rules = json!([rule("configmaps", &["get", "delete"]), rule("pods", &["get"])]);
    env.allow_only(&rules).await;
    eventually("the right to list is gone", async || {
        let output = run(&["election", "list"]);
        (output.code == Some(5))
            .then(|| assert!(output.stderr.contains("the right to list is missing")))
    })
    .await;
    let output = run(&["election", "info", "my-app"]);
    assert_eq!(cells(output.stdout.lines().last().unwrap())[..3], ["my-app", "first", "Pending"]);
    // Without the permission to create Events, the eviction writes none.
    let output = run(&evict);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(first.wait(), Some(3));
}
