//! Leader for life: releasing the lock, and the state that a probe reads.

use incumbent::kubernetes::{Cluster, LifeErrorKind, LifeResource, LifeState, leader_for_life};
use incumbent_test_support::eventually;
use k8s_openapi::api::core::v1::Secret;
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::conformance::{becomes_true, soon};
use crate::env::OBJECT;
use crate::faults::busy_cluster;
use crate::life_env::{Life, start};
use crate::life_faults::lacks;

/// The pod lives on, and another one leads, at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_that_releases_is_replaced_and_may_campaign_again() {
    becomes_true("the Events", is_replaced_after_a_release).await;
}

/// False: an Event was not written in time.
async fn is_replaced_after_a_release() -> bool {
    let life = Life::new().await;
    life.pod("first", None).await;
    let candidate = life.candidate("first").await;
    let status = candidate.status();
    assert_eq!(status.state(), LifeState::Idle);
    let first = start(candidate).leads().await;
    let second = life.second("first").await;
    // Whatever else is written to the lock is no reason to keep it.
    life.env.patch(json!({ "metadata": { "labels": { "a": "b" } } })).await;
    first.release().await.expect("a release");
    soon("it hears of its own release", first.lost()).await;
    assert_eq!(status.state(), LifeState::Released);
    assert_eq!(status.to_string(), "no longer leading my-app: released");
    let next = second.leads().await;
    assert!(next.token() > first.token());
    for message in ["first became leader", "first stopped leading"] {
        let Some(event) = life.env.event(message).await else { return false };
        assert_eq!(event["reason"], "LeaderElection");
    }

    // Once more: the lock is another's now, and stays.
    first.release().await.expect("nothing to release");
    let again = life.campaign("first").await;
    again.logs("stands by: pod second leads").await;
    assert!(again.is_waiting());
    next.release().await.expect("a release");
    assert!(again.leads().await.token() > next.token());
    true
}

/// Only the lock that was read is deleted, in the version that was read; and a request whose
/// response is lost is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_release_deletes_conditionally_and_retries() {
    let (server, cluster) = busy_cluster().await;
    let pod = json!({ "metadata": { "uid": "ours", "resourceVersion": "3" } }).to_string();
    let lock = |version: &str| {
        let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "ours" });
        let metadata =
            json!({ "uid": "lock", "resourceVersion": version, "ownerReferences": [owner] });
        json!({ "metadata": metadata }).to_string()
    };
    for answer in [&pod, &lock("7"), &pod] {
        server.answers("200 OK", "", answer);
    }
    let leadership =
        leader_for_life(OBJECT, &cluster).pod("p").without_events().await.expect("leadership");
    server.answers("200 OK", "", &lock("7"));
    server.answers("409 Conflict", "", "{\"message\":\"it has another version\"}");
    server.answers("200 OK", "", &lock("8"));
    server.answers("500 Internal Server Error", "", "{\"message\":\"who knows\"}");
    server.answers("404 Not Found", "", &crate::answers::not_found(OBJECT));
    soon("a release", leadership.release()).await.expect("a release");
    let asked = server.requests();
    let deletes = asked.iter().filter(|request| request.starts_with("DELETE"));
    let conditions = deletes.map(|request| {
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<Value>(body).unwrap()["preconditions"].clone()
    });
    let on = |version: &str| json!({ "uid": "lock", "resourceVersion": version });
    assert_eq!(conditions.collect::<Vec<_>>(), [on("7"), on("8")]);
}

/// Dropped half-way, it can be called again; and a missing permission is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_release_that_is_cancelled_can_be_repeated() {
    let life = Life::alone().await;
    let first = life.leader("first", None).await;
    let second = life.second("first").await;
    life.env.server.pause();
    let cancelled =
        tokio::time::timeout(std::time::Duration::from_millis(300), first.release()).await;
    assert!(cancelled.is_err(), "nobody answers");
    life.env.server.resume();
    first.release().await.expect("a release");
    let next = second.leads().await;
    lacks(&life, "configmaps", "delete").await;
    let denied = next.release().await.unwrap_err();
    assert_eq!(denied.kind(), LifeErrorKind::Denied);
    assert!(denied.to_string().contains("the right to delete is missing"), "{denied}");
    assert!(life.env.object().await.is_some(), "it leads still");
}

/// A probe can read the state of a candidate at any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_probe_reads_the_state_of_a_candidate() {
    let life = Life::new().await;
    let first = life.leader("first", None).await;
    life.pod("second", None).await;
    let candidate = life.candidate("second").await;
    let mut status = candidate.status();
    assert!(!status.state().is_ready());
    let second = start(candidate);
    let reach = async |status: &mut incumbent::kubernetes::LifeStatus, line: &str| {
        soon(line, async {
            while status.to_string() != line {
                status.changed().await.expect("a change");
            }
        })
        .await;
    };
    reach(&mut status, "standing by for my-app: pod first leads").await;
    assert!(status.state().is_ready() && !status.state().is_leading());
    first.release().await.expect("a release");
    let leadership = second.leads().await;
    reach(&mut status, &format!("leading my-app with token {}", leadership.token())).await;
    assert!(status.state().is_ready() && status.state().is_leading());
    life.delete_lock().await;
    soon("it hears of it", leadership.lost()).await;
    reach(&mut status, "no longer leading my-app: the lock is gone").await;
    assert!(!status.state().is_ready());

    // One that ends without leading, and one whose caller has gone.
    let nobody = life.candidate("nobody").await;
    let status = nobody.status();
    start(nobody).fails(LifeErrorKind::Misconfigured, "set POD_NAME").await;
    let failed = status.state();
    assert!(matches!(&failed, LifeState::Failed { kind: LifeErrorKind::Misconfigured, .. }));
    assert!(!failed.is_ready() && status.to_string().contains("set POD_NAME"), "{status}");
    let _third = life.leader("third", None).await;
    let candidate = life.candidate("second").await;
    let mut status = candidate.status();
    let waiting = start(candidate);
    reach(&mut status, "standing by for my-app: pod third leads").await;
    drop(waiting);
    reach(&mut status, "not campaigning for my-app").await;
}

/// A Secret, and an object of a kind that the cluster was taught.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_secret_or_a_custom_resource_can_be_the_lock() {
    let life = Life::new().await;
    let admin = Cluster::new(life.env.admin.clone()).in_namespace(&*life.env.namespace);
    let group = format!("{}.example.com", life.env.namespace);
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    let definition = json!({
        "metadata": { "name": format!("widgets.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    life.env.post(definitions, &definition).await;
    let widget = ApiResource {
        group: group.clone(),
        version: "v1".into(),
        api_version: format!("{group}/v1"),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    let widgets = format!("/apis/{group}/v1/namespaces/{}/widgets", life.env.namespace);
    eventually("the kind is served", async || life.env.get(&widgets).await.map(drop)).await;
    for (number, resource) in [ApiResource::erase::<Secret>(&()), widget].into_iter().enumerate() {
        let (a, b) = (format!("a{number}"), format!("b{number}"));
        let campaign = |pod: &str| {
            let resource = LifeResource::object(resource.clone());
            start(leader_for_life("another", &admin).pod(pod).resource(resource))
        };
        life.pod(&a, None).await;
        let first = campaign(&a).leads().await;
        life.pod(&b, None).await;
        let second = campaign(&b);
        second.logs(&format!("stands by: pod {a} leads")).await;
        life.delete_pod(&a).await;
        let second = second.leads().await;
        assert!(second.token() > first.token());
        second.release().await.expect("a release");
    }
}
