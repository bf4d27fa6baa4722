//! `top` on objects of Kubernetes.

use serde_json::json;

use super::env::TestEnv;
use crate::screen::Screen;

#[tokio::test]
async fn leader_of_a_lease_is_live() {
    let env = TestEnv::new().await;
    let mut leader = env.start_campaign("first");
    leader.line_with("won");
    let screen = Screen::start(&env.shell, &env.args(&["top"]), (80, 24));
    screen.wait_for(&["my-app", "first", "["]);
    screen.press("\r");
    screen.wait_for(&["first", "leader", "ready"]);
    screen.press("\u{1b}");
    leader.end_with("KILL");
    screen.wait_for(&["my-app: first did not renew: expired"]);
    screen.wait_for(&["my-app", "none (expired)"]);
    let mut next = env.start_campaign("second");
    next.line_with("won");
    screen.wait_for(&["my-app: second leads", "ms without a leader"]);
}

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
