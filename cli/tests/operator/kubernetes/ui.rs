//! `ui` on objects of Kubernetes.

use std::sync::Arc;

use incumbent_test_support::KubeServer;
use serde_json::{Value, json};

use super::env::{SERVE, TestEnv};
use crate::ui::{event, follow, request, serve, token_file};

#[tokio::test(flavor = "multi_thread")]
async fn page_is_told_of_leases_also_after_a_restart_of_the_server() {
    let env = TestEnv::on(Arc::new(KubeServer::start(&[]).await)).await;
    let mut leader = env.start_campaign("first");
    leader.line_with("won");
    let (_ui, address) = serve(&env.shell, &env.args(&[])[..]);
    let mut events = follow(&address, "");
    let mut leads = |leader: &str| {
        while event(&mut events, "changes")["elections"][0]["leader"] != leader {}
    };
    leads("first");
    env.server.restart().await;
    leader.end_with("TERM");
    let mut next = env.start_campaign("second");
    next.line_with("won");
    leads("second");
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
