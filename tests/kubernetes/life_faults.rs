//! Leader for life, and what goes wrong around it.

use std::fs;
use std::time::Duration;

use incumbent::kubernetes::{Cluster, LifeErrorKind, leader_for_life};
use incumbent_test_support::{FaultProxy, eventually};
use serde_json::{Value, json};

use crate::conformance::soon;
use crate::env::OBJECT;
use crate::faults::busy_cluster;
use crate::life_env::{Life, start};

/// Takes a verb out of a rule of the account, and waits until the server applies it.
pub async fn lacks(life: &Life, resource: &str, verb: &str) {
    let namespace = &life.env.namespace;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let path = match resource {
        "nodes" => format!("{rbac}/clusterroles/{namespace}-nodes"),
        _ => format!("{rbac}/namespaces/{namespace}/roles/my-app-for-life"),
    };
    let mut role = life.env.get(&path).await.expect("a role");
    let rules = role["rules"].as_array_mut().unwrap();
    for rule in rules.iter_mut().filter(|rule| rule["resources"][0] == resource) {
        rule["verbs"].as_array_mut().unwrap().retain(|other| other != verb);
    }
    rules.retain(|rule| !rule["verbs"].as_array().unwrap().is_empty());
    let body = serde_json::to_vec(&role).unwrap();
    life.env.send("PUT", &path, "application/json", body).await.unwrap();
    let review = json!({ "spec": {
        "user": format!("system:serviceaccount:{namespace}:my-app"),
        "resourceAttributes": {
            "namespace": if resource == "nodes" { "" } else { namespace },
            "verb": verb, "resource": resource,
            "name": if resource == "configmaps" && verb != "create" { OBJECT } else { "" },
        },
    } });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    eventually("the right is gone", async || {
        let answer = life.env.post(path, &review).await;
        (answer["status"]["allowed"] == Value::Bool(false)).then_some(())
    })
    .await;
}

/// Each permission that cannot be done without is named when it is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_missing_right_is_one_clear_error() {
    let rights = [("configmaps", "get"), ("configmaps", "create"), ("pods", "get")];
    let cases = rights.map(async |(resource, verb)| {
        let life = Life::new().await;
        life.pod("first", None).await;
        lacks(&life, resource, verb).await;
        let says = format!("the right to {verb} is missing");
        life.campaign("first").await.fails(LifeErrorKind::Denied, &says).await;
    });
    futures_util::future::join_all(cases).await;
}

/// Without the permission to delete the garbage collector frees the lock, and knows only of pods
/// that are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn without_delete_permission_the_collector_frees_the_lock() {
    let life = Life::new().await;
    lacks(&life, "configmaps", "delete").await;
    let first = life.leader("first", None).await;
    let second = life.second("first").await;
    life.pod_status("first", json!({ "phase": "Failed", "reason": "Evicted" })).await;
    second.logs("the right to delete is missing").await;
    assert!(second.is_waiting());
    life.delete_pod("first").await;
    assert!(second.leads().await.token() > first.token());
}

/// Without a watch it polls.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn without_the_right_to_watch_it_polls() {
    let life = Life::new().await;
    for resource in ["configmaps", "pods"] {
        lacks(&life, resource, "watch").await;
    }
    let first = life.leader("first", None).await;
    life.pod("second", None).await;
    let second = start(life.candidate("second").await.poll(Duration::from_millis(200)));
    second.logs("stands by: pod first leads").await;
    life.delete_pod("first").await;
    assert!(second.leads().await.token() > first.token());
}

/// Without the nodes' permissions it waits until the pod of a node that is gone is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn without_the_right_to_nodes_the_pod_decides() {
    let life = Life::new().await;
    lacks(&life, "nodes", "get").await;
    let first = life.leader("first", Some("gone")).await;
    life.pod("second", None).await;
    let second = start(life.candidate("second").await.node_gone_after(Duration::ZERO));
    second.logs("no permission to get nodes").await;
    second.logs("stands by: pod first leads").await;
    assert!(second.is_waiting());
    life.delete_pod("first").await;
    assert!(second.leads().await.token() > first.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_unusable_pod_is_one_clear_error() {
    let life = Life::new().await;
    life.campaign("nobody").await.fails(LifeErrorKind::Misconfigured, "set POD_NAME").await;
    life.campaign("No Pod").await.fails(LifeErrorKind::Misconfigured, "set POD_NAME").await;
    let cluster = life.cluster().await;
    let misnamed = start(leader_for_life("my_app", &cluster).pod("nobody"));
    misnamed.fails(LifeErrorKind::Misconfigured, "not a valid name of a Kubernetes object").await;
    let hasty = start(life.candidate("nobody").await.poll(Duration::ZERO));
    hasty.fails(LifeErrorKind::Misconfigured, "a poll interval of 0ns").await;
}

/// Who waits in a pod that goes away takes nothing any more, though its process runs on.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_candidate_whose_pod_is_gone_does_not_take_the_lock() {
    let life = Life::new().await;
    let _first = life.leader("first", None).await;
    let second = life.second("first").await;
    life.delete_pod("second").await;
    life.delete_pod("first").await;
    second.fails(LifeErrorKind::PodEnded, "is gone").await;
    eventually("the lock is free", async || life.env.object().await.is_none().then_some(())).await;
}

/// An API server that is away costs no term.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_api_server_that_is_restarted_is_waited_for() {
    let life = Life::alone().await;
    let first = life.leader("first", None).await;
    let second = life.second("first").await;
    life.env.server.kill();
    second.logs("checks of the lock fail").await;
    life.env.server.restart().await;
    let lost = tokio::spawn(async move {
        first.lost().await;
        first
    });
    // A later candidate has read all of it.
    life.pod("third", None).await;
    life.campaign("third").await.logs("stands by: pod first leads").await;
    assert!(second.is_waiting() && !lost.is_finished());
    life.delete_pod("first").await;
    let first = soon("the first one hears of it", lost).await.unwrap();
    assert!(second.leads().await.token() > first.token());
}

/// A watch that goes silent with its connection open hides nothing for longer than a poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_silent_watch_is_covered_by_polling() {
    let life = Life::new().await;
    let proxy = FaultProxy::start(life.env.server.port()).await;
    let own = fs::read_to_string(&life.env.kubeconfig).unwrap();
    let file = life.env.server.file(&format!("{}-proxy.kubeconfig", life.env.namespace));
    let (from, to) =
        (format!("127.0.0.1:{}", life.env.server.port()), format!("127.0.0.1:{}", proxy.port()));
    fs::write(&file, own.replace(&from, &to)).unwrap();
    let cluster = Cluster::from_kubeconfig(&file, None).await.unwrap();
    let cluster = cluster.in_namespace(&*life.env.namespace);

    let first = life.leader("first", None).await;
    life.pod("second", None).await;
    let second = leader_for_life(OBJECT, &cluster).pod("second").poll(Duration::from_secs(1));
    let second = start(second);
    second.logs("watch began object=my-app").await;
    second.logs("watch began object=first").await;
    proxy.silence();
    life.delete_pod("first").await;
    assert!(second.leads().await.token() > first.token());
}

/// A stuck lock is deleted only if it is the one that was read: a lock created since then stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_stuck_lock_is_deleted_conditionally() {
    let (server, cluster) = busy_cluster().await;
    let object = |uid: &str| json!({ "metadata": { "uid": uid, "resourceVersion": "7" } });
    server.answers("200 OK", "", &object("ours").to_string());
    server.answers("200 OK", "", &object("stuck").to_string());
    server.answers("409 Conflict", "", "{\"message\":\"it is another one\"}");
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "faster", "uid": "theirs" });
    let mut taken = object("taken");
    taken["metadata"]["ownerReferences"] = json!([owner]);
    server.answers("200 OK", "", &taken.to_string());
    server.answers("200 OK", "", &object("theirs").to_string());
    let candidate = start(leader_for_life(OBJECT, &cluster).pod("ours"));
    candidate.logs("stands by: pod faster leads").await;
    let asked = server.requests();
    let delete = asked.iter().find(|request| request.starts_with("DELETE")).expect("a delete");
    let (_, body) = delete.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["preconditions"], json!({ "uid": "stuck", "resourceVersion": "7" }));
}
