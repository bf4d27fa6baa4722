//! Elections in the objects of a namespace.

use serde_json::{Value, json};

use super::env::{TestEnv, cells};

#[tokio::test(flavor = "multi_thread")]
async fn configmap_and_endpoints_keep_other_fields() {
    let env = TestEnv::new().await;
    // Both at once: the first term of each waits for its lease.
    let mut started = Vec::new();
    for (kind, plural) in [("configmap", "configmaps"), ("endpoints", "endpoints")] {
        let path = format!("/api/v1/namespaces/{}/{plural}", env.namespace);
        env.post(&path, json!({"metadata": {"name": "no-election"}})).await;
        let object = match kind {
            "configmap" => json!({"metadata": {"name": "my-app"}, "data": {"theirs": "stays"}}),
            _ => json!({"metadata": {"name": "my-app", "labels": {"theirs": "stays"}}}),
        };
        env.post(&path, object).await;
        let watch = env.start(&["election", "watch", "--kind", kind]);
        let first =
            env.start(&["campaign", "my-app", "--kind", kind, "--lease=24s", "--identity=first"]);
        started.push((kind, path, watch, first));
    }
    for (kind, path, mut watch, mut first) in started {
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
        "--lease=10s",
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
