//! `incumbent doctor --lock kubernetes`, and the rights that the documentation lists.

use incumbent_test_support::eventually;
use serde_json::{Value, json};

use super::scene::{OBSERVER, Scene};
use crate::shell::Told;

const DOCUMENTATION: &str = include_str!("../../../../docs/kubernetes.md");

/// The documents of the first manifest below a heading.
fn manifest(heading: &str) -> Vec<&'static str> {
    let (_, below) = DOCUMENTATION.split_once(heading).expect("its heading");
    let (_, yaml) = below.split_once("```yaml\n").expect("a manifest");
    let (yaml, _) = yaml.split_once("```").expect("its end");
    yaml.split("---\n").collect()
}

impl Scene {
    /// The rules of a documented Role, as the server reads them.
    async fn documented(&self, heading: &str) -> Value {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", self.roles());
        let manifest = manifest(heading)[0].as_bytes().to_vec();
        let request = http::Request::post(path).header("content-type", "application/yaml");
        let request = request.body(manifest).unwrap();
        let role: Value = self.admin.client().request(request).await.unwrap();
        role["rules"].clone()
    }

    fn doctor(&self, args: &[&str]) -> Told {
        let config = self.config_of(OBSERVER);
        let args = [&["doctor"], args, &["--kubeconfig", &config]].concat();
        self.shell.run(&self.args(&args))
    }
}

fn without(rules: &Value, rule: usize, verb: &str) -> Value {
    let mut rules = rules.clone();
    let verbs = rules[rule]["verbs"].as_array_mut().unwrap();
    verbs.retain(|other| other != verb);
    if verbs.is_empty() {
        rules.as_array_mut().unwrap().remove(rule);
    }
    rules
}

/// The Roles of the documentation are what the doctor asks for, right by right.
#[tokio::test(flavor = "multi_thread")]
async fn each_documented_right_is_missed_by_name() {
    let operator = ["--role", "administrator"];
    for (heading, args, kinds) in [
        ("\n## Rights\n", &["my-app"][..], &["leases"][..]),
        ("\n### Rights for it\n", &["my-app", "--kind", "for-life"], &["configmaps", "pods"]),
        ("\n### Rights to look and to evict\n", &operator, &["leases"]),
        (
            "\n### Rights to look and to evict\n",
            &["--role", "administrator", "--kind", "for-life"],
            &["configmaps", "pods"],
        ),
    ] {
        let scene = Scene::new().await;
        let rules = scene.documented(heading).await;
        scene.allow(OBSERVER, &rules).await;
        let has_all = |told: &Told| {
            let lacks = told.out.lines().filter(|line| line.contains(" rights "));
            let mut lacks = lacks.filter(|line| !line.starts_with("ok "));
            // Nodes are of the ClusterRole, which nobody has bound here.
            lacks.all(|line| {
                line.contains("with get of nodes, watch of nodes; add to its ClusterRole")
            })
        };
        eventually("all rights", async || has_all(&scene.doctor(args)).then_some(())).await;
        for (number, rule) in rules.as_array().unwrap().iter().enumerate() {
            let resource = rule["resources"][0].as_str().unwrap();
            if resource != "events" && !kinds.contains(&resource) {
                continue; // of the other kind
            }
            for verb in rule["verbs"].as_array().unwrap() {
                let verb = verb.as_str().unwrap();
                scene.allow_only(&without(&rules, number, verb)).await;
                let named = match rule["resourceNames"][0].as_str() {
                    Some(name) => format!("{verb} of {resource} {name}"),
                    None => format!("{verb} of {resource}"),
                };
                let told = eventually(&named, async || {
                    let told = scene.doctor(args);
                    (told.out.contains(&named) && told.code != Some(0)).then_some(told)
                })
                .await;
                let line =
                    told.out.lines().find(|line| line.contains(&named) && !line.starts_with("ok "));
                let line = line.unwrap_or_else(|| panic!("{named}: {told:?}"));
                assert!(line.contains("add to its Role {apiGroups: ["), "{line}");
                assert!(line.contains(&format!("verbs: [{verb}]")), "{line}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_campaigner_cannot_do_without_is_an_error() {
    let scene = Scene::new().await;
    let told = scene.doctor(&["my-app"]);
    assert_eq!(told.code, Some(2), "{told:?}");
    let line = |level: &str| {
        let line = told.out.lines().find(|line| line.starts_with(level));
        line.unwrap_or_else(|| panic!("{level}: {told:?}")).to_owned()
    };
    assert!(line("ok ").contains("Kubernetes v1."));
    assert!(line("error ").contains(
        "a candidate needs get of leases my-app, update of leases my-app; add to its Role {apiGroups: \
         [coordination.k8s.io], resources: [leases], resourceNames: [my-app], verbs: [get, update]}"
    ));
    assert!(line("unknown ").contains("without the right to get it"));
    let config = scene.config_of(OBSERVER);
    let url = format!("kubernetes:{}?kubeconfig={config}", scene.namespace);
    for (lock, name) in [(url.clone(), "my-app"), (format!("{url}&object=my-app"), "other")] {
        let by_url = scene.shell.run(&["doctor", name, "--lock", &lock]);
        assert_eq!(by_url.code, Some(2), "{by_url:?}");
        assert!(by_url.out.contains(&line("error ")), "{by_url:?}");
    }
    // Where nobody has made the Lease, somebody must.
    let rules = json!([{
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"],
    }]);
    scene.allow(OBSERVER, &rules).await;
    eventually("the right to get", async || {
        let told = scene.doctor(&["my-app"]);
        told.out.contains("a candidate needs create of leases; add").then_some(())
    })
    .await;
    scene.lease("my-app", json!({})).await;
    let told = scene.doctor(&["my-app"]);
    assert!(told.out.contains("a candidate works better with watch of leases my-app, create of"));
    assert_eq!(told.code, Some(1), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_object_of_an_election_is_examined() {
    let scene = Scene::new().await;
    let doctor = |args: &[&str]| scene.shell.run(&scene.args(&[&["doctor"], args].concat()));
    let told = doctor(&["my-app"]);
    assert!(told.out.contains("object      there is none yet"), "{told:?}");
    assert!(told.out.contains("namespace   t") && told.out.contains("all rights of a candidate"));
    assert_eq!(told.code, Some(0), "{told:?}");
    let mut first = scene.start(&["campaign", "my-app", "--lease", "5s", "--identity", "first"]);
    first.line_with("won");
    let told = doctor(&["my-app"]);
    assert!(told.out.contains("object      its record fits elections"), "{told:?}");
    assert_eq!(told.code, Some(0), "{told:?}");
    let told = doctor(&["my-app", "--lease", "10s"]);
    assert!(told.out.contains("its holder's lease is 5 s, and ours 10 s"), "{told:?}");
    assert_eq!(told.code, Some(1));

    let spec = json!({
        "holderIdentity": "theirs", "leaseDurationSeconds": 2,
        "renewTime": "2026-01-01T00:00:00.000001Z",
    });
    scene.lease("theirs", spec).await;
    let told = scene.shell.run(&scene.args(&["doctor", "theirs", "-o", "json"]));
    let report: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((&report["worst"], told.code), (&json!("warning"), Some(1)));
    for says in ["theirs holds it", "lease of 2 s leaves little time", " days ago, which is longer"]
    {
        assert!(told.out.contains(says), "{says}: {told:?}");
    }

    let owner = |kind: &str, name: &str, object: &Value| {
        let uid = &object["metadata"]["uid"];
        json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}])
    };
    let core = format!("/api/v1/namespaces/{}", scene.namespace);
    let containers = json!([{"name": "main", "image": "none"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
    let pod = scene.post(&format!("{core}/pods"), pod).await;
    let no_pod = json!({"metadata": {"name": "no-pod"}});
    let no_pod = scene.post(&format!("{core}/configmaps"), no_pod).await;
    for (name, owners, says, code) in [
        ("nobodys", json!([]), "warning  object      no pod owns it; the next candidate", 1),
        ("pods", owner("Pod", "p", &pod), "ok       object      pod p leads (Pending)", 0),
        ("other", owner("ConfigMap", "no-pod", &no_pod), "error    object      the ConfigMap t", 2),
    ] {
        let lock = json!({"metadata": {"name": name, "ownerReferences": owners}});
        scene.post(&format!("{core}/configmaps"), lock).await;
        let told = doctor(&[name, "--kind", "for-life"]);
        assert!(told.out.contains(says), "{says}: {told:?}");
        assert_eq!(told.code, Some(code), "{told:?}");
    }
    let patch = json!({"status": {"phase": "Failed"}});
    let status = format!("{core}/pods/p/status");
    scene.send("PATCH", &status, "application/merge-patch+json", patch).await;
    let told = doctor(&["pods", "--kind", "for-life"]);
    assert!(told.out.contains("its pod p has ended (Failed); the next candidate"), "{told:?}");
    assert_eq!(told.code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_a_namespace_and_credentials_that_are_wrong_are_errors() {
    let scene = Scene::new().await;
    let told = scene.shell.run(&["doctor", "--lock=kubernetes", "--namespace=absent"]);
    assert!(told.out.contains("no namespace absent: create it"), "{told:?}");
    assert_eq!(told.code, Some(2));
    let config = std::fs::read_to_string(scene.server.kubeconfig()).unwrap();
    scene.shell.write("away", &config.replace(&format!(":{}", scene.server.port()), ":1"));
    scene.shell.write("wrong", &config.replace("admin-token", "wrong"));
    for kind in ["lease", "for-life"] {
        for (file, says) in [
            ("away", "error    server      read of the API server's version: no answer"),
            ("wrong", "the API server does not accept the credentials"),
        ] {
            let args = ["doctor", "--lock=kubernetes", "--kind", kind, "--kubeconfig", file];
            let told = scene.shell.run(&args);
            assert!(told.out.contains(says), "{told:?}");
            let of_the_server = told.out.lines().filter(|line| !line.contains("clock rate"));
            assert_eq!((of_the_server.count(), told.code), (1, Some(2)), "{told:?}");
        }
    }
    for (args, says) in [
        (&["--monitor", "127.0.0.1:1"][..], "--monitor requires --lock nats"),
        (&["--lease", "1500ms"], "1.5s is not a whole number of seconds"),
        (&["--kind", "for-life", "--lease", "5s"], "--lease cannot be used with --kind for-life"),
        (&["my_app"], "\"my_app\" is not a valid name of a Lease"),
        (&["my_app", "--kind", "for-life"], "\"my_app\" is not a valid name of a ConfigMap"),
    ] {
        scene.refuses(&[&["doctor"], args].concat(), says, 2);
    }
}

/// The server refuses fields that it does not know and values that it does not take; nothing is made of it here.
#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_of_candidates_for_life_is_taken_and_has_the_documented_roles() {
    let scene = Scene::new().await;
    let documented = manifest("\n### Rights for it\n");
    let text = include_str!("../../../../deploy/kubernetes-life.yaml");
    let manifests: Vec<&str> = text.split("---\n").collect();
    assert_eq!(manifests.len(), 2 + documented.len());
    let namespaced = format!("namespaces/{}/", scene.namespace);
    for manifest in &manifests {
        let kind = manifest.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap();
        let kind = kind.split(' ').next().unwrap();
        let (place, of_cluster) = match kind {
            "ServiceAccount" => ("api/v1", false),
            "Deployment" => ("apis/apps/v1", false),
            kind => ("apis/rbac.authorization.k8s.io/v1", kind.starts_with("Cluster")),
        };
        if place.contains("rbac") {
            let same = |text: &&&str| {
                text.trim()
                    == manifest.replace("namespace: default", "namespace: my-namespace").trim()
            };
            assert!(documented.iter().any(|text| same(&text)), "{manifest}");
        }
        let plural = format!("{}s", kind.to_lowercase());
        let namespace = if of_cluster { "" } else { &namespaced };
        let path = format!("/{place}/{namespace}{plural}?dryRun=All&fieldValidation=Strict");
        let request = http::Request::post(path).header("content-type", "application/yaml");
        let request = request.body(manifest.as_bytes().to_vec()).unwrap();
        scene.admin.client().request::<Value>(request).await.unwrap();
    }
}
