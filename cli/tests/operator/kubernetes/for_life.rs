//! Leaders for life in the command `election`, and where they are refused.

use serde_json::json;

use super::env::{SERVE, TestEnv, cells};

#[tokio::test(flavor = "multi_thread")]
async fn leaders_for_life_are_shown_watched_and_evicted() {
    let env = TestEnv::new().await;
    let mut watch = env.shell.start(&env.for_life_args(&["election", "watch"]));
    let uid = env.create_pod("first").await;
    env.set_phase("first", "Running").await;
    env.create_pod("second").await;
    let mut first = env.start_life("first", SERVE);
    let token = cells(&first.line_with("serves"))[3].clone();
    let line = watch.line_with("my-app: ");
    assert!(line.contains(&format!("pod first (Running, UID {uid}) leads")), "{line}");
    assert!(line.ends_with(&format!(" with token {token}")), "{line}");

    // A ConfigMap with data is not a lock, although a pod owns it. A ConfigMap of operator-sdk is a
    // lock.
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": uid}]);
    let theirs =
        json!({"metadata": {"name": "theirs", "ownerReferences": owner}, "data": {"a": "b"}});
    env.post(&env.core("configmaps"), theirs).await;
    let sdk = json!({"metadata": {"name": "sdk", "ownerReferences": owner}});
    env.post(&env.core("configmaps"), sdk).await;
    watch.line_with("sdk: pod first ");
    let list = env.shell.out(&env.for_life_args(&["election", "list"]));
    assert_eq!(cells(&list), ["ELECTION", "LEADER", "my-app", "first", "sdk", "first"]);

    let mut second = env.start_life("second", SERVE);
    second.line_with("pod first leads");
    let evict = env.for_life_args(&["election", "evict", "my-app"]);
    let line = env.shell.expect_refusal(&evict, "Delete the lock of pod first", 1);
    assert!(line.contains("--force"), "{line}");
    let mut terminal = env.shell.on_terminal(&evict);
    terminal.wait_for("when the successor starts? [y/N] ");
    terminal.type_line("n");
    assert_eq!(terminal.wait().1, Some(1));
    let output = env.shell.out(&[&*evict, &["--force", "--wait", "1m"]].concat());
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], format!("evicted pod first (Running, UID {uid}) from my-app"));
    second.line_with("serves");
    assert!(lines[1].starts_with("pod second (Pending, UID "), "{output}");
    assert_eq!(first.wait(), Some(3));
    watch.line_with("my-app: pod second ");
    env.delete_pod("second").await;
    watch.line_with("my-app: no leader: pod second ");
    env.shell.expect_refusal(&evict, "election my-app: no leader", 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_life_takes_part_for_life() {
    let env = TestEnv::new().await;
    for command in [
        &["run", "my-app", "--", "true"][..],
        &["run", "my-app", "--seats", "2", "--", "true"],
        &["campaign", "my-app"],
        &["election", "file", "my-app", "leads.json"],
    ] {
        let (verb, rest) = command.split_at(1);
        let args = [verb, &["--lock", "kubernetes", "--kind", "for-life"], rest].concat();
        env.shell.expect_refusal(&args, "use `incumbent life`", 2);
    }
}
