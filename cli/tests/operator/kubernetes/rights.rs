//! What those see and do who lack a right.

use incumbent_test_support::eventually;
use serde_json::json;

use super::scene::{NOBODY, OBSERVER, SERVE, Scene, cells};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_told() {
    let scene = Scene::new().await;
    let nobody = scene.config_of(NOBODY);
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
        let args = [&args[..at], &["--kubeconfig", &nobody], &args[at..]].concat();
        scene.refuses(&args, right, 5);
    }
    // And one whom the server does not know.
    let stranger = std::fs::read_to_string(&nobody).unwrap();
    scene.shell.write("stranger", &stranger.replace("nobody-token", "s3cret"));
    let line = scene.refuses(
        &["election", "list", "--kubeconfig", "stranger"],
        "does not accept the credentials",
        5,
    );
    assert!(!line.contains("s3cret"), "{line}");
}

/// Without the right to watch it is looked every second, and nobody is evicted without the right to update.
#[tokio::test(flavor = "multi_thread")]
async fn an_observer_needs_no_more_than_to_list() {
    let scene = Scene::new().await;
    let rule = json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "get"],
    });
    scene.allow(OBSERVER, &json!([rule])).await;
    let observer = scene.config_of(OBSERVER);
    let list = ["election", "list", "--kubeconfig", &observer];
    // The server hears of the binding a little later.
    eventually("the right", async || {
        (scene.shell.run(&scene.args(&list)).code == Some(0)).then_some(())
    })
    .await;
    let mut watch = scene.start(&["election", "watch", "--kubeconfig", &observer]);
    let mut first = scene.campaign("first");
    first.line_with("won");
    watch.line_with("my-app: first leads with token ");
    let evict = ["election", "evict", "my-app", "--force", "--kubeconfig", &observer];
    scene.refuses(&evict, "the right to update is missing", 5);
    first.end_by("TERM");
    watch.line_with("first released: stopped");
    let lease = format!("{}/my-app", scene.leases());
    let mut second = scene.campaign("second");
    watch.line_with("my-app: second leads");
    scene.send("DELETE", &lease, "application/json", json!({})).await;
    second.line_with("lost: evicted"); // a deletion is as good
}

/// What the documentation says of each right.
#[tokio::test(flavor = "multi_thread")]
async fn rights_to_look_and_to_evict_are_the_documented_ones() {
    let scene = Scene::new().await;
    let uid = scene.pod("first").await;
    let mut first = scene.life("first", SERVE);
    first.line_with("serves");
    let rule = |resources: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resources], "verbs": verbs});
    let rules = json!([rule("configmaps", &["list", "get"])]);
    scene.allow(OBSERVER, &rules).await;
    let observer = scene.config_of(OBSERVER);
    let as_observer = |args: &[&str]| -> Vec<String> {
        let args = [args, &["--kubeconfig", &observer]].concat();
        scene.for_life(&args).into_iter().map(str::to_owned).collect()
    };
    let run = |args: &[&str]| {
        let args = as_observer(args);
        scene.shell.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    eventually("the right", async || (run(&["election", "list"]).code == Some(0)).then_some(()))
        .await;
    let told = run(&["election", "info", "my-app"]);
    assert_eq!(cells(told.out.lines().last().unwrap())[..3], ["my-app", "first", "unknown"]);
    let evict = ["election", "evict", "my-app", "--force", "--wait", "0s"];
    let told = run(&evict);
    assert!(told.error.contains("the right to delete is missing"), "{told:?}");
    assert_eq!(told.code, Some(5));
    assert_eq!(scene.lock().await["metadata"]["ownerReferences"][0]["uid"], uid);

    let rules = json!([rule("configmaps", &["get", "delete"]), rule("pods", &["get"])]);
    scene.allow_only(&rules).await;
    eventually("the right to list is gone", async || {
        let told = run(&["election", "list"]);
        (told.code == Some(5)).then(|| assert!(told.error.contains("the right to list is missing")))
    })
    .await;
    let told = run(&["election", "info", "my-app"]);
    assert_eq!(cells(told.out.lines().last().unwrap())[..3], ["my-app", "first", "Pending"]);
    // Without that to create Events, there is none.
    let told = run(&evict);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!(first.ended(), Some(3));
}
