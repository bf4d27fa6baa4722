//! Leader for life: who may lead, and when the next one may (operator-sdk#1305, #1874, #3462,
//! #3339; operator-lib#158).

use std::time::Duration;

use incumbent::kubernetes::{Cluster, LifeErrorKind, LifeResource, PodState, leader_for_life};
use incumbent::lock::LockErrorKind;
use incumbent_test_support::eventually;
use k8s_openapi::api::core::v1::{Event, LimitRange};
use kube::core::ApiResource;
use serde_json::json;

use crate::conformance::{TIMEOUT, becomes_true, soon};
use crate::env::OBJECT;
use crate::life_env::{Life, start};

/// The lock is the one that operator-sdk makes: a ConfigMap with one owner, a pod, by its UID.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_free_lock_is_taken_as_operator_sdk_takes_it() {
    becomes_true("an Event", takes_a_free_lock).await;
}

/// False: its Event was not written in time.
async fn takes_a_free_lock() -> bool {
    let life = Life::new().await;
    let uid = life.pod("first", None).await;
    let leadership = life.campaign("first").await.leads().await;
    assert!(!leadership.resumed());
    assert_eq!((leadership.name(), leadership.pod()), (OBJECT, "first"));
    let lock = life.env.object().await.unwrap();
    let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "first", "uid": uid }]);
    assert_eq!(lock["metadata"]["ownerReferences"], owner);
    assert_eq!(lock["metadata"]["resourceVersion"], leadership.token().to_string());
    assert!(lock["data"].is_null() && lock["binaryData"].is_null(), "{lock}");
    let Some(event) = life.env.event("first became leader").await else { return false };
    assert_eq!(event["reason"], "LeaderElection");
    assert_eq!(event["involvedObject"]["uid"], lock["metadata"]["uid"]);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_lock_moves_when_the_leaders_pod_is_deleted() {
    let life = Life::new().await;
    let first = life.leader("first", None).await;
    let second = life.second("first").await;
    assert!(second.is_waiting());
    life.delete_pod("first").await;
    let next = second.leads().await;
    assert!(next.token() > first.token());
    assert!(!next.resumed());
    soon("the first one hears of it", first.lost()).await;
}

/// A pod that is being deleted runs until its kubelet reports its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_pod_that_is_being_deleted_is_waited_for() {
    let life = Life::new().await;
    life.node("n").await;
    let first = life.leader("first", Some("n")).await;
    let second = life.second("first").await;
    life.delete_pod_gracefully("first").await;
    // A later candidate has read all of it.
    life.pod("third", None).await;
    life.campaign("third").await.logs("stands by: pod first leads").await;
    assert!(second.is_waiting());
    // In a pod that is being deleted, no candidate begins to lead.
    life.campaign("first").await.fails(LifeErrorKind::PodEnded, "is being deleted").await;
    life.delete_pod("first").await;
    assert!(second.leads().await.token() > first.token());
}

/// operator-sdk#1305, #3462: a pod that has ended stays as an object, and the garbage collector
/// leaves its lock alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_lock_moves_when_the_leaders_pod_is_evicted_or_has_ended() {
    for (phase, reason) in [
        ("Failed", json!("Evicted")),
        ("Failed", json!("Preempting")),
        ("Failed", json!(null)),
        ("Succeeded", json!(null)),
    ] {
        let life = Life::new().await;
        let first = life.leader("first", None).await;
        let second = life.second("first").await;
        life.pod_status("first", json!({ "phase": phase, "reason": reason })).await;
        assert!(second.leads().await.token() > first.token());
        life.campaign("first").await.fails(LifeErrorKind::PodEnded, "has ended").await;
    }
}

/// A phase that is final while a container is still shown as running is not believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_failed_pod_is_waited_for_while_its_containers_run() {
    let life = Life::new().await;
    let first = life.leader("first", None).await;
    let status = |state: serde_json::Value| {
        let container = json!({
            "name": "main", "image": "none", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        });
        json!({ "phase": "Failed", "reason": "Evicted", "containerStatuses": [container] })
    };
    life.pod_status("first", status(json!({ "running": {} }))).await;
    let second = life.second("first").await;
    assert!(second.is_waiting());
    life.pod_status("first", status(json!({ "running": null, "terminated": { "exitCode": 1 } })))
        .await;
    assert!(second.leads().await.token() > first.token());
}

/// As a StatefulSet makes them. operator-sdk takes the lock of the pod before it for its own. The
/// lock is an Event here, which the garbage collector leaves alone: it would otherwise be faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_pod_with_the_leaders_name_is_not_the_leader() {
    let life = Life::new().await;
    let namespace = &*life.env.namespace;
    let admin = Cluster::new(life.env.admin.clone()).in_namespace(namespace);
    let fields = json!({ "involvedObject": { "namespace": namespace } });
    let mut old = fields.clone();
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "first", "uid": "another" });
    old["metadata"] = json!({
        "name": OBJECT,
        "annotations": { "incumbent/for-life": "of an earlier pod" },
        "ownerReferences": [owner],
    });
    let events = format!("/api/v1/namespaces/{namespace}/events");
    let old = life.env.post(&events, &old).await;
    life.pod("first", None).await;
    let resource = LifeResource::object(ApiResource::erase::<Event>(&()))
        .with_fields(fields.as_object().unwrap().clone());
    let candidate =
        leader_for_life(OBJECT, &admin).pod("first").resource(resource).without_events();
    let leadership = start(candidate).leads().await;
    assert!(!leadership.resumed());
    let path = format!("{events}/{OBJECT}");
    let new = life.env.get(&path).await.expect("a lock");
    assert_ne!(old["metadata"]["uid"], new["metadata"]["uid"], "it is another lock");
}

/// operator-sdk#1874, #3339: the node is gone or off. A node that is merely unreachable keeps its
/// pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_lock_moves_when_the_leaders_node_is_gone() {
    let life = Life::new().await;
    life.node("n").await;
    let first = life.leader("first", Some("n")).await;
    life.pod("second", None).await;
    let second = start(life.candidate("second").await.node_gone_after(Duration::ZERO));
    second.logs("stands by: pod first leads").await;
    assert!(second.is_waiting());
    life.delete_node("n").await;
    assert!(second.leads().await.token() > first.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_node_that_is_missing_is_waited_for_as_kubernetes_does() {
    let life = Life::new().await;
    life.node("n").await;
    let first = life.leader("first", Some("n")).await;
    life.delete_node("n").await;
    let second = life.second("first").await;
    life.pod("third", None).await;
    let third = start(life.candidate("third").await.node_gone_after(Duration::from_secs(2)));
    third.logs("deleted a stale lock").await; // either may take the next one
    assert!(!second.has_logged("deleted a stale lock"), "40 s are not over");
    soon("the first one hears of it", first.lost()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_lock_moves_when_the_leaders_node_is_out_of_service() {
    let life = Life::new().await;
    life.node("n").await;
    let first = life.leader("first", Some("n")).await;
    life.taint_node("n", "node.kubernetes.io/out-of-service").await;
    let second = life.second("first").await;
    assert!(second.is_waiting(), "the node is ready, whatever the taint says");
    life.node_is_ready("n", "Unknown").await;
    assert!(second.leads().await.token() > first.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_unreachable_node_keeps_the_lock_unless_asked_otherwise() {
    let life = Life::new().await;
    life.node("n").await;
    let first = life.leader("first", Some("n")).await;
    life.node_is_ready("n", "Unknown").await;
    life.taint_node("n", "node.kubernetes.io/unreachable").await;
    let second = life.second("first").await;
    assert!(second.is_waiting());
    drop(second); // it would take the lock that the third one deletes
    life.pod("third", None).await;
    let third = start(life.candidate("third").await.presume_dead_after(Duration::from_secs(1)));
    assert!(third.leads().await.token() > first.token());
    soon("the first one hears of it, if it can", first.lost()).await;
}

/// The garbage collector never frees a lock without an owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lock_without_an_owner_is_replaced() {
    let life = Life::new().await;
    let old = life.lock_of(&[]).await;
    life.pod("first", None).await;
    let first = life.campaign("first").await.leads().await;
    let new = life.env.object().await.unwrap();
    assert_ne!(old["metadata"]["uid"], new["metadata"]["uid"]);

    // One that loses its owner during a term: its leader notices.
    let second = life.second("first").await;
    life.env.patch(json!({ "metadata": { "ownerReferences": null } })).await;
    soon("the first one hears of it", first.lost()).await;
    let _leadership = second.leads().await;
}

/// What somebody else has put into a lock is not deleted with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lock_with_content_of_others_is_left_alone() {
    let life = Life::new().await;
    let _first = life.leader("first", None).await;
    let second = life.second("first").await;
    life.env.patch(json!({ "data": { "key": "value" } })).await;
    life.pod_status("first", json!({ "phase": "Failed", "reason": "Evicted" })).await;
    second.fails(LifeErrorKind::Misconfigured, "has data, which no lock has").await;
    assert_eq!(life.env.object().await.unwrap()["data"]["key"], "value");
}

/// An object with other content is refused, and stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_object_that_is_not_a_lock_is_left_alone() {
    let record =
        json!({ "control-plane.alpha.kubernetes.io/leader": "{\"holderIdentity\":\"a\"}" });
    for (object, says) in [
        (json!({ "metadata": { "name": OBJECT }, "data": { "key": "value" } }), "it has data"),
        (json!({ "metadata": { "name": OBJECT, "annotations": record } }), "election with leases"),
        (json!({ "metadata": { "name": OBJECT } }), "owned by the ServiceAccount my-app"),
    ] {
        let life = Life::new().await;
        life.pod("first", None).await;
        let mut object = object;
        if says.starts_with("owned by") {
            let uid = life.account().await;
            let owner = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "name": "my-app", "uid": uid });
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        life.make_lock(object).await;
        let error = life.campaign("first").await.fails(LifeErrorKind::Misconfigured, says).await;
        assert!(error.to_string().contains("use another name"), "{error}");
        assert!(life.env.object().await.is_some());
    }
}

/// Both ways: hand-made as operator-sdk writes it, of another pod and of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn locks_of_operator_sdk_are_respected() {
    let life = Life::new().await;
    let sdk = life.pod("sdk", None).await;
    life.lock_of(&[("sdk", &sdk)]).await;
    let second = life.second("sdk").await;
    assert!(second.is_waiting());
    let resumed = life.campaign("sdk").await.leads().await;
    assert!(resumed.resumed(), "its own lock, though another program has made it");
    life.delete_pod("sdk").await;
    assert!(second.leads().await.token() > resumed.token());
}

/// With several owners all of them must be gone: the garbage collector sees it so as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lock_with_several_owners_is_held_by_each_of_them() {
    let life = Life::new().await;
    let (a, b) = (life.pod("a", None).await, life.pod("b", None).await);
    life.lock_of(&[("a", &a), ("b", &b)]).await;
    let second = life.second("a, b").await;
    life.delete_pod("a").await;
    second.logs("stands by: pod b leads").await;
    assert!(second.is_waiting());
    life.delete_pod("b").await;
    let _leadership = second.leads().await;
}

/// A container that is restarted finds its pod's lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restarted_container_continues_to_lead() {
    let life = Life::new().await;
    let first = life.leader("first", None).await;
    let second = life.second("first").await;
    let lock = life.env.object().await.unwrap();
    let again = life.campaign("first").await.leads().await;
    assert!(again.resumed());
    assert!(again.token() >= first.token());
    assert_eq!(life.env.object().await.unwrap(), lock, "nothing was written");
    assert!(second.is_waiting());
    life.delete_lock().await;
    soon("it hears of it", again.lost()).await;
    let _leadership = second.leads().await;
}

/// One at a time, each in turn, in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_candidates_lead_one_after_the_other() {
    const PODS: usize = 6;
    let life = Life::new().await;
    life.lock_of(&[]).await;
    let mut waiting = Vec::new();
    for number in 0..PODS {
        let pod = format!("pod-{number}");
        life.pod(&pod, None).await;
        waiting.push(life.campaign(&pod).await);
    }
    let mut last = None;
    while !waiting.is_empty() {
        let leads = eventually("there is a leader", async || {
            waiting.iter().position(|standing| !standing.is_waiting())
        })
        .await;
        let leadership = waiting.swap_remove(leads).leads().await;
        assert!(waiting.iter().all(crate::life_env::RunningCandidate::is_waiting), "two lead");
        assert!(last.replace(leadership.token()) < Some(leadership.token()));
        life.delete_pod(leadership.pod()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn any_object_can_be_the_lock() {
    let life = Life::new().await;
    let admin = Cluster::new(life.env.admin.clone()).in_namespace(&*life.env.namespace);
    let fields = json!({ "spec": { "limits": [{ "type": "PersistentVolumeClaim", "max": { "storage": "1Ti" } }] } });
    let limits = LifeResource::object(ApiResource::erase::<LimitRange>(&()))
        .with_fields(fields.as_object().unwrap().clone());
    for (number, resource) in [LifeResource::lease(), limits].into_iter().enumerate() {
        let (a, b) = (format!("a{number}"), format!("b{number}"));
        let campaign = |pod: &str| {
            let candidate = leader_for_life("another", &admin).pod(pod);
            start(candidate.resource(resource.clone()).poll(Duration::from_secs(3600)))
        };
        life.pod(&a, None).await;
        let first = campaign(&a).leads().await;
        life.pod(&b, None).await;
        let second = campaign(&b);
        second.logs(&format!("stands by: pod {a} leads")).await;
        assert!(campaign(&a).leads().await.resumed());
        life.delete_pod(&a).await;
        assert!(second.leads().await.token() > first.token());
    }
}

/// Only what was looked at is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_eviction_applies_to_the_lock_that_was_read() {
    let life = Life::new().await;
    let first = life.leader("first", None).await;
    life.pod("second", None).await;
    let second = life.campaign("second").await;
    second.logs("stands by: pod first leads").await;

    let admin = Cluster::new(life.env.admin.clone()).in_namespace(&*life.env.namespace);
    let locks = admin.life_locks(&LifeResource::config_map());
    let read = async || locks.lock(OBJECT, TIMEOUT).await.unwrap().expect("a lock");
    let before = read().await;
    assert_eq!(before.resource_version, first.token().0);
    let [owner] = &*before.owners else { panic!("{before:?}") };
    assert_eq!((&*owner.pod, &owner.state), ("first", &PodState::Phase("Pending".to_owned())));
    life.env.patch(json!({ "metadata": { "labels": { "a": "b" } } })).await;
    let refused = locks.evict(&before, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict);
    let now = read().await;
    assert_eq!(now.uid, before.uid, "it is still there");
    assert!(second.is_waiting());

    let mut watch = locks.watch(Some(OBJECT), TIMEOUT).await.unwrap();
    soon("what is there", watch.next()).await.unwrap().unwrap();
    locks.evict(&now, TIMEOUT).await.unwrap();
    soon("the first one hears of it", first.lost()).await;
    soon("who watches, too", watch.next()).await.unwrap().unwrap();
    assert!(second.leads().await.token() > first.token());
    let refused = locks.evict(&now, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "another one's");
    for path in ["../secrets/x", "a?b", ""] {
        let refused = locks.lock(path, TIMEOUT).await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
    }
}
