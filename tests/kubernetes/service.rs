//! A Service that follows the leader, and the marks of the leader's pod.

use std::time::Duration;

use incumbent::Token;
use incumbent::clock::{BootClock, Clock};
use incumbent::kubernetes::{Cluster, ServiceFollowsLeader};
use incumbent::lock::{LockError, LockErrorKind};
use incumbent::memory::MemoryLock;
use incumbent::new_election;
use incumbent_test_support::eventually;
use serde_json::{Value, json};

use crate::conformance::is_passing;
use crate::env::OBJECT;
use crate::relay::{Relay, Way};
use crate::service_env::{ServiceEnv, addresses_of, far, follower, token_of};

/// What a request comes to once the server is not too busy to answer in time.
async fn answered(
    mut request: impl AsyncFnMut() -> Result<(), LockError>,
) -> Result<(), LockError> {
    eventually("an answer", async || match request().await {
        Err(error) if is_passing(error.kind()) => None,
        answer => Some(answer),
    })
    .await
}

fn refused(result: Result<(), LockError>, kind: LockErrorKind, says: &str) {
    let error = result.expect_err(says);
    let message = error.to_string();
    assert!(message.contains(says), "{says:?} in {message:?}");
    assert!(!message.contains('\n'), "{message:?}");
    assert_eq!(error.kind(), kind, "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn requests_go_to_the_last_leader_and_never_to_an_earlier_one() {
    let env = ServiceEnv::new().await;
    let pod = env.pod("p1", &["10.1.0.1"]).await;
    env.pod("p2", &["10.1.0.2"]).await;
    let (mut first, mut second) = (env.follower("p1").await, env.follower("p2").await);
    answered(async || first.check().await).await.unwrap();
    assert_eq!(env.slice("ipv4").await, None, "a check writes nothing");

    first.direct(Token(5), far()).await.unwrap();
    let slice = env.slice("ipv4").await.unwrap();
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], OBJECT);
    assert_eq!(slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"], "incumbent");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Service");
    assert_eq!(slice["ports"], json!([{ "name": "", "port": 8080, "protocol": "TCP" }]));
    let endpoint = json!({
        "addresses": ["10.1.0.1"],
        "conditions": { "ready": true },
        "nodeName": "n1",
        "zone": "z1",
        "targetRef": {
            "kind": "Pod", "namespace": env.env.namespace, "name": "p1",
            "uid": pod["metadata"]["uid"],
        },
    });
    assert_eq!(slice["endpoints"], json!([endpoint]));

    // The same again changes nothing; nor does a renewal.
    first.direct(Token(5), far()).await.unwrap();
    answered(async || first.extend(far()).await).await.unwrap();
    assert_eq!(env.slice("ipv4").await.unwrap(), slice);

    second.direct(Token(9), far()).await.unwrap();
    assert_eq!(env.directs().await, (vec!["10.1.0.2".to_owned()], 9));
    let late = first.direct(Token(5), far()).await;
    refused(late, LockErrorKind::Conflict, "the token 9 of a later leader than this one, 5");
    answered(async || first.withdraw().await).await.unwrap();
    assert_eq!(env.directs().await, (vec!["10.1.0.2".to_owned()], 9));
    answered(async || second.withdraw().await).await.unwrap();
    answered(async || second.withdraw().await).await.unwrap();
    assert_eq!(env.directs().await, (vec![], 9));
    let late = first.direct(Token(5), far()).await;
    refused(late, LockErrorKind::Conflict, "delete the slice");
    assert_eq!(env.directs().await, (vec![], 9));

    let over = second.direct(Token(12), BootClock.now()).await;
    refused(over, LockErrorKind::OutcomeUnknown, "the right to lead ended");
    assert_eq!(env.directs().await, (vec![], 9));
}

/// A renewal looks at the slices now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_slice_that_somebody_deletes_is_written_again() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    let mut first = env.follower("p1").await;
    first.direct(Token(5), far()).await.unwrap();
    let path = format!("{}/{OBJECT}-leader-ipv4", env.slices());
    env.env.delete(&path).await;
    eventually("the slice is there again", async || {
        answered(async || first.extend(far()).await).await.unwrap();
        env.slice("ipv4").await
    })
    .await;
    assert_eq!(env.directs().await, (vec!["10.1.0.1".to_owned()], 5));
}

/// A deleted Service takes its slices with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn slices_are_deleted_with_their_service() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    env.follower("p1").await.direct(Token(5), far()).await.unwrap();
    let path = format!("/api/v1/namespaces/{}/services/{OBJECT}", env.env.namespace);
    env.env.delete(&path).await;
    eventually("the slice is gone", async || env.slice("ipv4").await.is_none().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn ports_are_resolved_by_the_pod() {
    let env = ServiceEnv::without_service().await;
    let ports = json!([
        { "name": "a", "port": 80 },
        { "name": "b", "port": 81, "targetPort": 8081, "protocol": "UDP" },
        { "name": "c", "port": 443, "targetPort": "web", "appProtocol": "https" },
    ]);
    env.service(json!({ "ports": ports })).await;
    env.pod("p1", &["10.1.0.1"]).await;
    env.follower("p1").await.direct(Token(1), far()).await.unwrap();
    let slice = env.slice("ipv4").await.unwrap();
    assert_eq!(
        slice["ports"],
        json!([
            { "name": "a", "port": 80, "protocol": "TCP" },
            { "name": "b", "port": 8081, "protocol": "UDP" },
            { "name": "c", "port": 8443, "protocol": "TCP", "appProtocol": "https" },
        ])
    );
    let path = format!("/api/v1/namespaces/{}/services/{OBJECT}", env.env.namespace);
    let unknown = json!({ "spec": { "ports": [{ "port": 80, "targetPort": "none" }] } });
    env.patch(&path, unknown).await;
    let check = answered(async || env.follower("p1").await.check().await).await;
    refused(
        check,
        LockErrorKind::Misconfigured,
        "no container of the pod p1 has a port named none",
    );
}

/// Each family has a slice, and one for which the next leader has no address is emptied.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn families_have_slices_of_their_own() {
    let env = ServiceEnv::without_service().await;
    let both = json!({
        "clusterIP": "None", "ipFamilyPolicy": "RequireDualStack",
        "ipFamilies": ["IPv4", "IPv6"], "ports": [{ "port": 80 }],
    });
    env.service(both).await;
    env.pod("p1", &["10.1.0.1", "fd00::1"]).await;
    env.pod("p2", &["fd00::2"]).await;
    env.pod("p3", &["10.1.0.3"]).await;
    let mut first = env.follower("p1").await;
    answered(async || first.check().await).await.unwrap();
    first.direct(Token(1), far()).await.unwrap();
    let slices = async || {
        let (four, six) = (env.slice("ipv4").await.unwrap(), env.slice("ipv6").await.unwrap());
        assert_eq!((&four["addressType"], &six["addressType"]), (&json!("IPv4"), &json!("IPv6")));
        assert_eq!(token_of(&four), token_of(&six));
        (addresses_of(&four).join(" "), addresses_of(&six).join(" "), token_of(&four))
    };
    assert_eq!(slices().await, ("10.1.0.1".to_owned(), "fd00::1".to_owned(), 1));
    let mut second = env.follower("p2").await;
    second.direct(Token(2), far()).await.unwrap();
    assert_eq!(slices().await, (String::new(), "fd00::2".to_owned(), 2));
    answered(async || second.withdraw().await).await.unwrap();
    assert_eq!(slices().await, (String::new(), String::new(), 2));

    // An address that is not the pod's.
    let given = ["fd00::9".parse().unwrap()];
    let mut third = env.follower("p3").await.addresses(given);
    third.direct(Token(3), far()).await.unwrap();
    assert_eq!(slices().await, (String::new(), "fd00::9".to_owned(), 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_service_of_ipv6_waits_for_such_an_address() {
    let env = ServiceEnv::without_service().await;
    let six =
        json!({ "clusterIP": "None", "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack" });
    env.service(six).await;
    env.pod("p1", &[]).await;
    let mut first = env.follower("p1").await;
    answered(async || first.check().await).await.expect("the kubelet has not reported it yet");
    let none = first.direct(Token(1), far()).await;
    refused(none, LockErrorKind::Unavailable, "wait until status.podIPs has one");
    env.addresses("p1", &["fd00::1"]).await;
    first.direct(Token(1), far()).await.unwrap();
    assert_eq!(addresses_of(&env.slice("ipv6").await.unwrap()), ["fd00::1"]);
    assert_eq!(env.slice("ipv4").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_cannot_work_is_refused_before_the_first_term() {
    let env = ServiceEnv::without_service().await;
    let follower = env.follower("p1").await;
    let misconfigured = LockErrorKind::Misconfigured;
    let service = format!("Service {}/{OBJECT}", env.env.namespace);
    refused(
        answered(async || follower.check().await).await,
        misconfigured,
        &format!("no {service}: create it"),
    );
    env.service(json!({ "selector": { "app": OBJECT }, "ports": [{ "port": 80 }] })).await;
    refused(answered(async || follower.check().await).await, misconfigured, "has a selector");
    let path = format!("/api/v1/namespaces/{}/services/{OBJECT}", env.env.namespace);
    env.patch(&path, json!({ "spec": { "selector": null } })).await;
    refused(
        answered(async || follower.check().await).await,
        misconfigured,
        "set POD_NAME from the field metadata.name",
    );
    env.pod("p1", &["10.1.0.1"]).await;
    answered(async || follower.check().await).await.unwrap();
    let foreign = |name: &str| {
        json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": OBJECT } },
            "addressType": "IPv4", "endpoints": [{ "addresses": ["10.1.0.7"] }],
        })
    };
    env.env.post(&env.slices(), &foreign("theirs")).await;
    refused(
        answered(async || follower.check().await).await,
        misconfigured,
        "theirs sends requests of the Service",
    );
    let path = format!("{}/theirs", env.slices());
    env.env.delete(&path).await;
    env.env.post(&env.slices(), &foreign("my-app-leader-ipv4")).await;
    refused(
        answered(async || follower.check().await).await,
        misconfigured,
        "is not one of this Service that incumbent manages",
    );
    let cluster = env.env.cluster().await;
    for bad in ["", "a.b", "A", "a/b", &"x".repeat(64)] {
        let error = ServiceFollowsLeader::new(&cluster, bad).unwrap_err();
        assert!(error.to_string().contains("cannot be the name of a Service"), "{error}");
    }
    for (key, value) in [("", "a"), ("a", ""), ("a b", "c"), ("a/b/c", "d"), ("a", "b,c=d")] {
        let error = env.leader_pod("p1").await.label(key, value).unwrap_err();
        assert!(error.to_string().contains("cannot be a label"), "{error}");
    }
}

/// The documented Role is the least.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn each_documented_right_is_missed_by_name() {
    let slice = "my-app-leader-ipv4";
    let rights = [
        ("", "services", "get", OBJECT),
        ("", "pods", "get", "p1"),
        ("", "pods", "list", ""),
        ("", "pods", "patch", "p1"),
        ("discovery.k8s.io", "endpointslices", "get", slice),
        ("discovery.k8s.io", "endpointslices", "create", ""),
        ("discovery.k8s.io", "endpointslices", "patch", slice),
    ];
    let cases =
        [false, true].map(|exists| rights.map(|right| (exists, right))).into_iter().flatten();
    let cases = cases.map(async |(exists, (group, resource, verb, name))| {
        let env = ServiceEnv::new().await;
        env.pod("p1", &["10.1.0.1"]).await;
        let mut service = env.follower("p1").await;
        let pod = env.leader_pod("p1").await.label("role", "leader").unwrap();
        answered(async || service.check().await).await.unwrap();
        answered(async || pod.check().await).await.unwrap();
        if exists {
            service.direct(Token(1), far()).await.unwrap();
        }
        env.lacks(group, resource, verb, name).await;
        let checked = match (resource, verb) {
            ("pods", "list" | "patch") => answered(async || pod.check().await).await,
            _ => answered(async || service.check().await).await,
        };
        refused(checked, LockErrorKind::Denied, &format!("the right to {verb} is missing"));
    });
    futures_util::future::join_all(cases).await;

    // Without the list, the slices of others are not noticed.
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    env.lacks("discovery.k8s.io", "endpointslices", "list", "").await;
    answered(async || env.follower("p1").await.check().await).await.unwrap();
}

/// A write that was sent in time and arrives late changes nothing of what a successor wrote,
/// whether it creates the slice or changes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_late_write_never_replaces_that_of_a_successor() {
    for exists in [false, true] {
        let env = ServiceEnv::new().await;
        env.pod("p1", &["10.1.0.1"]).await;
        env.pod("p2", &["10.1.0.2"]).await;
        let mut second = env.follower("p2").await;
        if exists {
            second.direct(Token(1), far()).await.unwrap();
        }
        let relay = Relay::start(env.env.admin.clone(), "nobody").await;
        let mut first = behind(&relay, &env).await;
        cut_off(&relay, first.direct(Token(5), far())).await;
        second.direct(Token(9), far()).await.unwrap();
        relay.lands().await;
        assert_eq!(env.directs().await, (vec!["10.1.0.2".to_owned()], 9), "exists: {exists}");
        answered(async || first.withdraw().await).await.unwrap();
        assert_eq!(env.directs().await, (vec!["10.1.0.2".to_owned()], 9), "exists: {exists}");
    }
}

/// Also if the term had directed and withdrawn before, so that the slice is empty already.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_second_withdrawal_takes_back_a_second_write_in_doubt() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    let relay = Relay::start(env.env.admin.clone(), "nobody").await;
    let mut service = behind(&relay, &env).await;
    service.direct(Token(5), far()).await.unwrap();
    assert!(!service.is_withdrawn());
    answered(async || service.withdraw().await).await.unwrap();
    assert!(service.is_withdrawn());
    cut_off(&relay, service.direct(Token(5), far())).await;
    answered(async || service.withdraw().await).await.unwrap();
    relay.lands().await;
    assert_eq!(env.directs().await, (vec![], 5));

    let mut pod = marked(behind_cluster(&relay, &env).await, "p1");
    pod.direct(Token(5), far()).await.unwrap();
    answered(async || pod.withdraw().await).await.unwrap();
    cut_off(&relay, pod.direct(Token(5), far())).await;
    answered(async || pod.withdraw().await).await.unwrap();
    relay.lands().await;
    assert_eq!(marks(&env.read_pod("p1").await), (None, None));
}

/// Sends a request whose write is held up on its way, and gives it up.
async fn cut_off<T: std::fmt::Debug>(relay: &Relay, request: impl Future<Output = T>) {
    relay.set(Way::HoldsWrite);
    tokio::select! {
        done = request => panic!("it was not held up: {done:?}"),
        () = relay.holds() => {}
    }
}

/// One of several API servers is gone without a word: another answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_request_without_an_answer_is_sent_again() {
    for lost in [Way::LosesFirst, Way::HoldsWrite] {
        let env = ServiceEnv::new().await;
        env.pod("p1", &["10.1.0.1"]).await;
        let relay = Relay::start(env.env.admin.clone(), "nobody").await;
        let cluster = behind_cluster(&relay, &env).await;
        let (mut service, mut pod) = (follower(&cluster, "p1"), marked(cluster, "p1"));
        // Each attempt loses an answer, so that none succeeds but by a request that is sent again.
        answered(async || {
            relay.set(lost);
            service.check().await
        })
        .await
        .unwrap();
        relay.set(lost);
        service.direct(Token(5), far()).await.unwrap();
        relay.set(lost);
        pod.direct(Token(5), far()).await.unwrap();
        assert_eq!(env.directs().await, (vec!["10.1.0.1".to_owned()], 5), "{lost:?}");
        assert_eq!(marks(&env.read_pod("p1").await), (Some("leader"), Some("100")), "{lost:?}");
        answered(async || {
            relay.set(lost);
            service.check().await
        })
        .await
        .unwrap();
        answered(async || {
            relay.set(lost);
            service.withdraw().await
        })
        .await
        .unwrap();
        answered(async || {
            relay.set(lost);
            pod.withdraw().await
        })
        .await
        .unwrap();
        assert_eq!(env.directs().await, (vec![], 5), "{lost:?}");
        assert_eq!(marks(&env.read_pod("p1").await), (None, None), "{lost:?}");
    }
}

/// A leader knows its own slice by the pod in it, and the next finds it in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_somebody_breaks_in_a_slice_is_mended_by_its_leader() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    env.pod("p2", &["10.1.0.2"]).await;
    let (mut first, mut second) = (env.follower("p1").await, env.follower("p2").await);
    let path = format!("{}/{OBJECT}-leader-ipv4", env.slices());
    let manager = "endpointslice.kubernetes.io/managed-by";
    let broken = [
        json!({ "labels": { manager: "somebody" } }),
        json!({ "annotations": { "incumbent/token": "x" } }),
    ];
    for (metadata, token) in broken.into_iter().zip([5, 15]) {
        let broken = json!({ "metadata": metadata });
        first.direct(Token(token), far()).await.unwrap();
        env.patch(&path, broken.clone()).await;
        first.direct(Token(token), far()).await.unwrap();
        let slice = env.slice("ipv4").await.unwrap();
        assert_eq!(slice["metadata"]["labels"][manager], "incumbent");
        assert_eq!(env.directs().await, (vec!["10.1.0.1".to_owned()], token));

        env.patch(&path, broken.clone()).await;
        let other = second.direct(Token(token + 1), far()).await;
        refused(other, LockErrorKind::Misconfigured, "delete");
        answered(async || first.withdraw().await).await.unwrap();
        assert_eq!(env.directs().await, (vec![], token));
        second.direct(Token(token + 1), far()).await.unwrap();
        answered(async || second.withdraw().await).await.unwrap();
    }
}

/// The next process of the pod settles what a killed one has sent, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn after_a_clean_no_write_of_a_killed_process_is_applied() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    let mut earlier = env.follower("p1").await;
    earlier.direct(Token(1), far()).await.unwrap();
    answered(async || earlier.withdraw().await).await.unwrap();
    let relay = Relay::start(env.env.admin.clone(), "nobody").await;
    let mut killed = behind(&relay, &env).await;
    cut_off(&relay, killed.direct(Token(5), far())).await;
    answered(async || env.follower("p1").await.clean().await).await.unwrap();
    relay.lands().await;
    assert_eq!(env.directs().await, (vec![], 1));

    let mut killed = marked(behind_cluster(&relay, &env).await, "p1");
    cut_off(&relay, killed.direct(Token(5), far())).await;
    answered(async || marked(env.env.cluster().await, "p1").clean().await).await.unwrap();
    relay.lands().await;
    assert_eq!(marks(&env.read_pod("p1").await), (None, None));
}

/// What fails for one family does not keep the other's slice from being written.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn each_family_is_written_for_itself() {
    for is_new in [false, true] {
        let env = dual_stack().await;
        let mut service = env.follower("p1").await;
        service.direct(Token(5), far()).await.unwrap();
        env.lacks_slice("my-app-leader-ipv4").await;
        let failed = if is_new {
            answered(async || env.follower("p1").await.clean().await).await
        } else {
            answered(async || service.withdraw().await).await
        };
        refused(failed, LockErrorKind::Denied, "my-app-leader-ipv4");
        assert_eq!(addresses_of(&env.slice("ipv4").await.unwrap()), ["10.1.0.1"]);
        assert!(addresses_of(&env.slice("ipv6").await.unwrap()).is_empty(), "new: {is_new}");
        refused(service.direct(Token(6), far()).await, LockErrorKind::Denied, "");
        assert_eq!(addresses_of(&env.slice("ipv6").await.unwrap()), ["fd00::1"]);
    }
}

/// The slice of a family that the Service no longer has is emptied.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_family_may_be_taken_from_a_service() {
    for directs_again in [false, true] {
        let env = dual_stack().await;
        let mut service = env.follower("p1").await;
        service.direct(Token(5), far()).await.unwrap();
        let path = format!("/api/v1/namespaces/{}/services/{OBJECT}", env.env.namespace);
        let single = json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"] });
        env.patch(&path, json!({ "spec": single })).await;
        if directs_again {
            service.direct(Token(5), far()).await.unwrap();
        } else {
            env.follower("p1").await.direct(Token(6), far()).await.unwrap();
        }
        assert_eq!(addresses_of(&env.slice("ipv4").await.unwrap()), ["10.1.0.1"]);
        assert!(addresses_of(&env.slice("ipv6").await.unwrap()).is_empty());
    }
}

async fn dual_stack() -> ServiceEnv {
    let env = ServiceEnv::without_service().await;
    let both = json!({
        "clusterIP": "None", "ipFamilyPolicy": "RequireDualStack",
        "ipFamilies": ["IPv4", "IPv6"], "ports": [{ "port": 80 }],
    });
    env.service(both).await;
    env.pod("p1", &["10.1.0.1", "fd00::1"]).await;
    env
}

/// A StatefulSet gives the name of a pod to the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_pod_that_was_replaced_is_left_to_its_own_process() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    let cluster = env.env.cluster().await;
    let (mut service, mut pod) = (env.follower("p1").await, marked(cluster.clone(), "p1"));
    service.direct(Token(5), far()).await.unwrap();
    pod.direct(Token(5), far()).await.unwrap();
    env.delete_pod("p1").await;
    env.pod("p1", &["10.1.0.9"]).await;
    let label = json!({ "metadata": { "labels": { "role": "leader" } } });
    env.patch_pod("p1", label).await;
    answered(async || pod.withdraw().await).await.unwrap();
    assert_eq!(marks(&env.read_pod("p1").await), (Some("leader"), None));
    let (missing, misconfigured) = ("no Pod", LockErrorKind::Misconfigured);
    refused(pod.direct(Token(5), far()).await, misconfigured, missing);
    refused(service.direct(Token(5), far()).await, misconfigured, missing);
    assert_eq!(env.directs().await.0, ["10.1.0.1"]);
    answered(async || service.withdraw().await).await.unwrap();
    assert_eq!(env.directs().await, (vec![], 5));

    // Nor does an earlier process of the same pod remove the marks of the next.
    let (mut first, mut next) = (marked(cluster.clone(), "p1"), marked(cluster, "p1"));
    first.direct(Token(6), far()).await.unwrap();
    next.direct(Token(9), far()).await.unwrap();
    answered(async || first.withdraw().await).await.unwrap();
    assert_eq!(marks(&env.read_pod("p1").await), (Some("leader"), Some("100")));
    let late = first.direct(Token(6), far()).await;
    refused(late, LockErrorKind::Conflict, "has the token 9 of a later leader");
}

/// What somebody else has set on a pod stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn marks_of_others_are_not_overwritten() {
    let env = ServiceEnv::new().await;
    let misconfigured = LockErrorKind::Misconfigured;
    env.pod("p1", &["10.1.0.1"]).await;
    let pod = marked(env.env.cluster().await, "p1");
    env.patch_pod("p1", json!({ "metadata": { "labels": { "role": "mine" } } })).await;
    refused(
        answered(async || pod.check().await).await,
        misconfigured,
        "has the label role=mine already",
    );
    let cost = json!({ "controller.kubernetes.io/pod-deletion-cost": "7" });
    let user = json!({ "metadata": { "labels": { "role": null }, "annotations": cost } });
    env.patch_pod("p1", user).await;
    refused(answered(async || pod.check().await).await, misconfigured, "pod-deletion-cost already");
    answered(async || marked(env.env.cluster().await, "p1").clean().await).await.unwrap();
    assert_eq!(marks(&env.read_pod("p1").await), (None, Some("7")));
    let bad = answered(async || env.leader_pod("../p1").await.clean().await).await;
    refused(bad, misconfigured, "set POD_NAME");
}

/// After a withdrawal, a write of the same term that is still under way is no longer applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_withdrawal_takes_back_a_write_in_doubt() {
    for exists in [false, true] {
        let env = ServiceEnv::new().await;
        env.pod("p1", &["10.1.0.1"]).await;
        if exists {
            let mut earlier = env.follower("p1").await;
            earlier.direct(Token(1), far()).await.unwrap();
            answered(async || earlier.withdraw().await).await.unwrap();
        }
        let relay = Relay::start(env.env.admin.clone(), "nobody").await;
        let mut first = behind(&relay, &env).await;
        cut_off(&relay, first.direct(Token(5), far())).await;
        answered(async || first.withdraw().await).await.unwrap();
        relay.lands().await;
        assert_eq!(env.directs().await, (vec![], 5), "exists: {exists}");

        // The pod's marks too.
        let mut pod = marked(behind_cluster(&relay, &env).await, "p1");
        cut_off(&relay, pod.direct(Token(5), far())).await;
        answered(async || pod.withdraw().await).await.unwrap();
        relay.lands().await;
        assert_eq!(marks(&env.read_pod("p1").await), (None, None));
    }
}

async fn behind_cluster(relay: &Relay, env: &ServiceEnv) -> Cluster {
    let cluster = Cluster::from_kubeconfig(relay.kubeconfig(&env.env), None).await.unwrap();
    cluster.in_namespace(&*env.env.namespace)
}

async fn behind(relay: &Relay, env: &ServiceEnv) -> ServiceFollowsLeader {
    follower(&behind_cluster(relay, env).await, "p1")
}

fn marked(cluster: Cluster, pod: &str) -> incumbent::kubernetes::LeaderPod {
    let pod = incumbent::kubernetes::LeaderPod::new(&cluster).pod(pod);
    pod.label("role", "leader").unwrap().deletion_cost(100)
}

/// The label and the deletion cost of a pod.
fn marks(pod: &Value) -> (Option<&str>, Option<&str>) {
    let metadata = &pod["metadata"];
    let cost = &metadata["annotations"]["controller.kubernetes.io/pod-deletion-cost"];
    (metadata["labels"]["role"].as_str(), cost.as_str())
}

/// What an earlier process of the pod left is removed at the start, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_an_earlier_process_left_is_removed() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    env.pod("p2", &["10.1.0.2"]).await;
    env.follower("p1").await.direct(Token(5), far()).await.unwrap();
    let cluster = env.env.cluster().await;
    marked(cluster.clone(), "p1").direct(Token(5), far()).await.unwrap();
    answered(async || env.follower("p2").await.clean().await).await.unwrap();
    answered(async || marked(cluster.clone(), "p2").clean().await).await.unwrap();
    assert_eq!(env.directs().await, (vec!["10.1.0.1".to_owned()], 5), "it is another pod's");
    assert_eq!(marks(&env.read_pod("p1").await), (Some("leader"), Some("100")));
    answered(async || env.follower("p1").await.clean().await).await.unwrap();
    answered(async || marked(cluster.clone(), "p1").clean().await).await.unwrap();
    assert_eq!(env.directs().await, (vec![], 5), "the token stays");
    assert_eq!(marks(&env.read_pod("p1").await), (None, None));
}

/// The next leader removes the label that a crashed one left.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn one_pod_is_marked() {
    let env = ServiceEnv::new().await;
    for (name, address) in [("p1", "10.1.0.1"), ("p2", "10.1.0.2"), ("p3", "10.1.0.3")] {
        env.pod(name, &[address]).await;
    }
    env.patch_pod("p3", json!({ "metadata": { "labels": { "role": "other" } } })).await;
    env.pod("p4", &["10.1.0.4"]).await;
    env.patch_pod("p4", json!({ "metadata": { "labels": { "role": "leader" } } })).await;
    let cluster = env.env.cluster().await;
    let (mut first, mut second) = (marked(cluster.clone(), "p1"), marked(cluster, "p2"));
    answered(async || first.check().await).await.unwrap();
    assert_eq!(marks(&env.read_pod("p1").await), (None, None), "a check writes nothing");
    first.direct(Token(1), far()).await.unwrap();
    assert_eq!(marks(&env.read_pod("p1").await), (Some("leader"), Some("100")));
    second.direct(Token(2), far()).await.unwrap();
    assert_eq!(marks(&env.read_pod("p1").await), (None, Some("100")), "it removes its cost");
    assert_eq!(marks(&env.read_pod("p2").await), (Some("leader"), Some("100")));
    answered(async || first.withdraw().await).await.unwrap();
    assert_eq!(marks(&env.read_pod("p1").await), (None, None));
    answered(async || second.withdraw().await).await.unwrap();
    answered(async || second.withdraw().await).await.unwrap();
    assert_eq!(marks(&env.read_pod("p4").await), (Some("leader"), None), "no leader wrote it");
    assert_eq!(marks(&env.read_pod("p2").await), (None, None));
    assert_eq!(marks(&env.read_pod("p3").await), (Some("other"), None));
    assert_eq!(env.read_pod("p1").await["metadata"]["labels"]["app"], OBJECT, "others stay");
}

/// An election on another lock, by the method that does all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn requests_are_withdrawn_before_the_leadership_is_dropped() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    let mut service = env.follower("p1").await;
    let lease = Duration::from_secs(60);
    let election = new_election("my_app", MemoryLock::new()).lease(lease).start().unwrap();
    let leadership = election.won().await.unwrap();
    let directed = async {
        eventually("requests are directed", async || env.slice("ipv4").await).await;
        env.directs().await
    };
    let done = service.while_leading(&leadership, directed).await.unwrap();
    assert_eq!(done, Some((vec!["10.1.0.1".to_owned()], leadership.token().0)));
    assert_eq!(env.directs().await, (vec![], leadership.token().0));
    assert!(leadership.is_valid());

    let ends = async {
        leadership.resign();
        std::future::pending::<()>().await
    };
    assert_eq!(service.while_leading(&leadership, ends).await.unwrap(), None);
    assert_eq!(env.directs().await.0, Vec::<String>::new());
    drop(leadership);
    election.stop().await;
}

/// An API server that hangs holds up the end of a term until its deadline alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_withdrawal_ends_with_the_term() {
    let env = ServiceEnv::new().await;
    env.pod("p1", &["10.1.0.1"]).await;
    let relay = Relay::start(env.env.admin.clone(), "nobody").await;
    let mut service = behind(&relay, &env).await;
    let lock = MemoryLock::new();
    let election = new_election("my_app", lock).lease(Duration::from_secs(15)).start().unwrap();
    let leadership = election.won().await.unwrap();
    let work = async {
        eventually("requests are directed", async || env.slice("ipv4").await).await;
        relay.set(Way::Cut);
    };
    let hung = service.while_leading(&leadership, work).await.map(drop);
    refused(hung, LockErrorKind::OutcomeUnknown, "the right to lead ended");
    assert!(!service.is_withdrawn());
    relay.set(Way::Passes);
    answered(async || service.withdraw().await).await.unwrap();
    assert_eq!(env.directs().await, (vec![], leadership.token().0));
    drop(leadership);
    election.stop().await;
}
