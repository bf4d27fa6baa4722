//! The Role of the documentation is the least: each of its permissions is needed for its documented
//! purpose.

use std::time::Duration;

use incumbent::lock::{Coverage, Hint, HintSink, Lock, LockErrorKind, Mark, Nonce, Write, WriteId};
use incumbent_test_support::eventually;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::conformance::{Service, TIMEOUT, change, soon};
use crate::env::{InLease, TestEnv};

const LEASE: Duration = Duration::from_secs(5);

pub async fn rules(env: &TestEnv) -> (String, Value) {
    let path = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/my-app-election",
        env.namespace
    );
    let role = env.get(&path).await.expect("a role");
    (path, role)
}

pub async fn lacks(env: &TestEnv, rule: usize, verb: &str) {
    let (path, mut role) = rules(env).await;
    let verbs = role["rules"][rule]["verbs"].as_array_mut().unwrap();
    verbs.retain(|other| other != verb);
    if verbs.is_empty() {
        role["rules"].as_array_mut().unwrap().remove(rule);
    }
    let body = serde_json::to_vec(&role).unwrap();
    env.send("PUT", &path, "application/json", body).await.unwrap();
}

fn create() -> Write {
    Write {
        expected: None,
        identity: "ours".into(),
        mark: Mark::new(WriteId { nonce: Nonce(1), number: 1 }, LEASE, None),
        ttl: LEASE,
        advertisement: None,
        timeout: TIMEOUT,
    }
}

async fn coverage(lock: &dyn Lock) -> Coverage {
    let (told, mut hints) = mpsc::unbounded_channel();
    let sink = HintSink::new(move |hint| {
        if let Hint::Coverage(coverage) = hint {
            let _ = told.send(coverage);
        }
    });
    let _subscription = lock.subscribe("my_app", sink);
    // A watch begins at once or is refused at once; a read that is answered later shows that it had
    // the time.
    let asked = tokio::time::timeout(Duration::from_secs(3), hints.recv()).await;
    asked.ok().flatten().unwrap_or(Coverage::None)
}

/// Waits until a watch has begun.
async fn watches(lock: &dyn Lock) {
    let (told, mut hints) = mpsc::unbounded_channel();
    let sink = HintSink::new(move |hint| drop(told.send(hint)));
    let _subscription = lock.subscribe("my_app", sink);
    let full = async { while hints.recv().await != Some(Hint::Coverage(Coverage::Full)) {} };
    soon("the watch", full).await;
}

/// Each permission that the documentation lists is missed when it is taken away, with the
/// documented effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_documented_role_has_no_unneeded_right() {
    let (_, role) = rules(&TestEnv::<InLease>::new(LEASE).await).await;
    let listed: Vec<Vec<String>> = role["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| serde_json::from_value(rule["verbs"].clone()).unwrap())
        .collect();
    let documented: [&[&str]; 5] = [
        &["get", "update", "watch", "patch"],
        &["create"],
        &["get", "watch", "patch"],
        &["get", "update"],
        &["create"],
    ];
    assert_eq!(listed, documented, "those of roll calls and checkpoints have tests of their own");

    for (verb, rule) in [("get", 0), ("update", 0), ("create", 1)] {
        let env = TestEnv::<InLease>::new(LEASE).await;
        let lock = Service::lock(&env).await;
        let created = if verb == "create" {
            None
        } else {
            Some(lock.write("my_app", create()).await.unwrap())
        };
        lacks(&env, rule, verb).await;
        eventually(&format!("{verb} is refused"), async || {
            let refused = match verb {
                "get" => lock.read("my_app", TIMEOUT).await.err(),
                "create" => lock.write("my_app", create()).await.err(),
                _ => {
                    let expected = match lock.read("my_app", TIMEOUT).await.ok()? {
                        incumbent::lock::Reading::Found(record) => Some(record.revision),
                        _ => created,
                    };
                    lock.write("my_app", Write { expected, ..create() }).await.err()
                }
            };
            if verb == "create" && refused.is_none() {
                env.evict("my_app").await; // the server had not heard of it yet
            }
            let refused = refused.filter(|refused| refused.kind() == LockErrorKind::Denied)?;
            assert!(
                refused.to_string().contains(&format!("the right to {verb} is missing")),
                "{refused}"
            );
            Some(())
        })
        .await;
    }

    let env = TestEnv::<InLease>::new(LEASE).await;
    watches(&*Service::lock(&env).await).await;
    lacks(&env, 0, "watch").await;
    eventually("the watch is refused", async || {
        let lock = Service::lock(&env).await;
        (coverage(&*lock).await == Coverage::None).then_some(())
    })
    .await;
    // Without it the candidate polls, and campaigns all the same.
    let ours = env.campaign("ours").await;
    drop(crate::conformance::leads(&ours).await);
}

/// Of the rule of the checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_checkpoint_needs_the_rights_of_its_rule() {
    for verb in ["get", "update"] {
        let env = TestEnv::<InLease>::new(LEASE).await;
        let lock = Service::lock(&env).await;
        let store = lock.checkpoints().expect("it stores them");
        let mut last = store.store("my_app", vec![1], None, TIMEOUT).await.expect("a write");
        lacks(&env, 3, verb).await;
        eventually(&format!("{verb} is refused"), async || {
            let refused = match verb {
                "get" => store.load("my_app", TIMEOUT).await.err(),
                _ => match store.store("my_app", vec![2], Some(&last), TIMEOUT).await {
                    Ok(version) => {
                        last = version;
                        None
                    }
                    Err(refused) => Some(refused),
                },
            };
            let refused = refused.filter(|refused| refused.kind() == LockErrorKind::Denied)?;
            let says = format!("the right to {verb} is missing");
            assert!(refused.to_string().contains(&says), "{refused}");
            Some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_checkpoint_leaves_objects_of_another_use() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let mut object = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "my-app-checkpoint" },
        "spec": { "holderIdentity": "theirs" },
    });
    let namespace = &env.namespace;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let theirs = env.post(&path, &object).await;
    let lock = Service::lock(&env).await;
    let store = lock.checkpoints().expect("it stores them");
    let refused = store.load("my_app", TIMEOUT).await.expect_err("it is no checkpoint");
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
    assert!(refused.to_string().contains("my-app-checkpoint is not a checkpoint"), "{refused}");
    let refused = store.store("my_app", vec![1], None, TIMEOUT).await.expect_err("it exists");
    assert_eq!(refused.kind(), LockErrorKind::Conflict);
    let of_theirs = format!("{path}/my-app-checkpoint");
    assert_eq!(env.get(&of_theirs).await, Some(theirs));

    // Nor does an election take the object of a checkpoint, which the next save would replace.
    let annotations = json!({ "incumbent/checkpoint": "e30=" });
    object["metadata"] = json!({ "name": "my-app", "annotations": annotations });
    env.post(&path, &object).await;
    let refused = lock.read("my_app", TIMEOUT).await.expect_err("it is no entry");
    assert!(refused.to_string().contains("has the checkpoint of another election"), "{refused}");
}

/// A candidate without any permission reports that, and nothing else happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_candidate_without_rights_names_the_missing_one() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let (path, mut role) = rules(&env).await;
    role["rules"] = json!([]);
    let body = serde_json::to_vec(&role).unwrap();
    env.send("PUT", &path, "application/json", body).await.unwrap();
    let lock = Service::lock(&env).await;
    eventually("the permissions are revoked", async || {
        let refused = lock.read("my_app", TIMEOUT).await.err()?;
        (refused.kind() == LockErrorKind::Denied).then_some(())
    })
    .await;
    let ours = env.campaign("ours").await;
    let mut changes = ours.changes();
    let failure = change(&mut changes, "it says why", |change| match change {
        incumbent::Change::LockFailing(failure) if failure.kind == LockErrorKind::Denied => {
            Some(failure.clone())
        }
        _ => None,
    });
    let failure = soon("a failure", failure).await;
    assert!(failure.message.contains("the right to get is missing"), "{}", failure.message);
    assert!(!ours.is_leader());
}

/// The server refuses fields that it does not know and values that it does not take; nothing is
/// made of it here.
#[tokio::test]
async fn the_deployment_manifest_has_the_documented_role() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let namespace = &env.namespace;
    let manifests: Vec<_> = include_str!("../../deploy/kubernetes.yaml").split("---\n").collect();
    let places = [
        "/api/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        "/apis/coordination.k8s.io/v1",
        "/apis/apps/v1",
    ];
    let plurals = ["serviceaccounts", "roles", "rolebindings", "leases", "deployments"];
    assert_eq!(manifests.len(), plurals.len());
    for ((manifest, place), plural) in manifests.into_iter().zip(places).zip(plurals) {
        // There are such a role and account in the namespace, and a dry run does not replace them.
        let manifest = manifest.replacen("name: my-app", "name: another", 1);
        let path =
            format!("{place}/namespaces/{namespace}/{plural}?dryRun=All&fieldValidation=Strict");
        let made =
            env.send("POST", &path, "application/yaml", manifest.into_bytes()).await.unwrap();
        if plural == "roles" {
            assert_eq!(made["rules"], rules(&env).await.1["rules"]);
        }
    }
}
