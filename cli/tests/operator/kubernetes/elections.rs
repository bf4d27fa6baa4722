//! Elections in the objects of a namespace.

use std::sync::Arc;

use incumbent_test_support::KubeServer;
use serde_json::{Value, json};

use super::env::{TestEnv, cells};

#[tokio::test(flavor = "multi_thread")]
async fn leader_is_evicted_and_its_successor_reported() {
    let env = TestEnv::new().await;
    let mut watch = env.start(&["election", "watch"]);
    let mut first = env.start_campaign("first");
    let token = first.line_with("won").rsplit(' ').next().unwrap().to_owned();
    watch.line_with(&format!("my-app: first leads with token {token}"));

    let mut second = env.start_campaign("second");
    second.line_with("leader: first");
    let line =
        env.expect_refusal(&["election", "evict", "my-app"], "Evict first, who leads my-app", 1);
    assert!(line.contains("--force"), "{line}");
    let mut terminal = env.shell.on_terminal(&env.args(&["election", "evict", "my-app"]));
    terminal.wait_for("who leads my-app? [y/N] ");
    terminal.type_line("n");
    assert_eq!(terminal.wait().1, Some(1));
    let output = env.out(&["election", "evict", "my-app", "--force", "--wait", "1m"]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "evicted first from my-app");
    first.line_with("lost: evicted");
    let token = second.line_with("won").rsplit(' ').next().unwrap().to_owned();
    assert!(lines[1].starts_with("second holds the entry after "), "{output}");
    assert!(lines[1].ends_with(&format!(" with token {token}")), "{output}");
    watch.line_with("my-app: no leader: first was evicted");
    watch.line_with("my-app: second leads with token ");

    assert_eq!(watch.end_with("INT"), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn configmap_and_endpoints_keep_other_fields() {
    let env = TestEnv::new().await;
    for (kind, plural) in [("configmap", "configmaps"), ("endpoints", "endpoints")] {
        let path = format!("/api/v1/namespaces/{}/{plural}", env.namespace);
        env.post(&path, json!({"metadata": {"name": "no-election"}})).await;
        let object = match kind {
            "configmap" => json!({"metadata": {"name": "my-app"}, "data": {"theirs": "stays"}}),
            _ => json!({"metadata": {"name": "my-app", "labels": {"theirs": "stays"}}}),
        };
        env.post(&path, object).await;
        let mut watch = env.start(&["election", "watch", "--kind", kind]);
        let mut first =
            env.start(&["campaign", "my-app", "--kind", kind, "--lease=1s", "--identity=first"]);
        first.line_with("won");
        watch.line_with("my-app: first leads");
        let list = env.out(&["election", "list", "--kind", kind]);
        assert_eq!(cells(&list)[2..], ["my-app", "first"]);
        let output =
            env.out(&["election", "evict", "my-app", "--kind", kind, "--force", "--wait", "0s"]);
        assert!(output.starts_with("evicted first from my-app\n"), "{output}");
        first.line_with("lost: evicted");
        watch.line_with("first was evicted");
        let object = env.send("GET", &format!("{path}/my-app"), "", Value::Null).await;
        assert!(object.to_string().contains(r#""theirs":"stays""#), "{object}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_runs_while_a_lease_of_another_name_is_held() {
    let env = TestEnv::new().await;
    let print = "echo $INCUMBENT_ELECTION $INCUMBENT_IDENTITY $INCUMBENT_TOKEN; exit 7";
    let output = env.shell.run(&env.args(&[
        "run",
        "my_app",
        "--object=my-app",
        "--lease=2s",
        "--identity=me",
        "--",
        "/bin/sh",
        "-c",
        print,
    ]));
    assert_eq!(output.code, Some(7), "{output:?}");
    let words = cells(&output.stdout);
    assert_eq!(words[..2], ["my_app", "me"]);
    assert!(words[2].parse::<u64>().is_ok_and(|token| token > 0), "{output:?}");
    let list = env.out(&["election", "list"]);
    assert!(list.contains("my-app    none ("), "{list}");

    let line = env.expect_refusal(&["campaign", "my_app"], "is not a valid name of a Lease", 2);
    assert!(line.contains("--object, as in my-app"), "{line}");
    let line =
        env.expect_refusal(&["election", "info", "my_app"], "is not a valid name of a Lease", 2);
    assert!(line.contains("as in my-app"), "{line}");
}

/// The candidates of client-go write the same record without a mark.
#[tokio::test(flavor = "multi_thread")]
async fn leader_of_client_go_is_evicted() {
    let env = TestEnv::new().await;
    let time = "2026-01-01T00:00:00.000001Z";
    let spec = json!({
        "holderIdentity": "theirs", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": time, "renewTime": time,
    });
    env.create_lease("theirs", spec).await;
    let evict = ["election", "evict", "theirs", "--force", "--wait", "1s"];
    let output = env.shell.run(&env.args(&evict));
    assert_eq!(
        (&*output.stdout, output.code),
        ("evicted theirs from theirs\n", Some(1)),
        "{output:?}"
    );
    assert!(output.stderr.contains("no successor within 1s"), "{output:?}");
    let lease = format!("{}/theirs", env.leases());
    let lease = env.send("GET", &lease, "", Value::Null).await;
    assert_eq!(lease["spec"]["holderIdentity"], "evicted: theirs");
    env.expect_refusal(&evict, "election theirs: no leader", 3);
    assert_eq!(env.refusal(&["election", "info", "absent"]).1, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_and_campaign_wait_for_the_server() {
    let server = Arc::new(KubeServer::start(&[]).await);
    let env = TestEnv::on(server).await;
    let mut watch = env.start(&["election", "watch"]);
    let mut first = env.start_campaign("first");
    first.line_with("won");
    watch.line_with("first leads");
    env.server.kill();
    env.expect_refusal(&["election", "list"], "no response from the API server", 4);
    env.expect_refusal(
        &["campaign", "my-app", "--timeout", "1s"],
        "no response from the API server",
        4,
    );
    first.end_with("KILL");
    let mut second = env.start_campaign("second"); // waits for the server
    env.server.restart().await;
    second.line_with("won");
    watch.line_with("my-app: second leads");
}
