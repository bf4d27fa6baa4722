//! `top` and `ui` of elections in Kubernetes.

use serde_json::{Value, json};

use super::env::{SERVE, TestEnv};
use crate::screen::Screen;
use crate::ui::{event, follow, request, serve, token_file};

#[tokio::test]
async fn leader_for_life_has_no_deadline() {
    let env = TestEnv::new().await;
    let uid = env.create_pod("pod-a").await;
    env.set_phase("pod-a", "Running").await;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "pod-a", "uid": uid});
    let lock = json!({"metadata": {"name": "my-app", "ownerReferences": [owner]}});
    env.post(&env.core("configmaps"), lock).await;
    let args = env.for_life_args(&["top"]);
    let screen = Screen::start(&env.shell, &args, (80, 24));
    let shown = screen.wait_for(&["my-app", "pod-a"]);
    assert!(!shown.contains("[|"), "{shown}");
    drop(screen);
    let view = env.shell.json(&env.for_life_args(&["top", "--once", "-o", "json"]));
    assert_eq!(view["elections"][0]["pod"]["uid"], uid);
    assert_eq!(view["elections"][0]["remaining_ms"], json!(null));
}

/// A pod of the same name is another leader, as is one with another lock.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_pod_that_was_shown_is_evicted() {
    let env = TestEnv::new().await;
    env.create_pod("first").await;
    env.set_phase("first", "Running").await;
    let mut leader = env.start_life("first", SERVE);
    leader.line_with("serves");
    let file = token_file(&env.shell);
    let flags = env.for_life_args(&["--token-file", &file, "--allow-changes"]);
    let (_ui, address) = serve(&env.shell, &flags);
    let fields = "Content-Type: application/json\r\nAuthorization: Bearer s3cret\r\n";
    let mut events = follow(&address, "Authorization: Bearer s3cret\r\n");
    let shown = event(&mut events, "changes")["elections"][0].clone();
    let evict = |pod: &Value| {
        let mut term = json!({"election": "my-app", "leader": "first", "pod": pod});
        term["token"] = shown["token"].clone();
        request(&address, "POST /api/evict", fields, &term.to_string())
    };
    for other in ["uid", "lock"] {
        let mut pod = shown["pod"].clone();
        pod[other] = "another".into();
        let (status, why) = evict(&pod);
        assert_eq!((status, why.contains("first leads now")), (409, true), "{why}");
    }
    let (status, done) = evict(&shown["pod"]);
    assert_eq!((status, done.contains("evicted first from my-app")), (200, true), "{done}");
}
