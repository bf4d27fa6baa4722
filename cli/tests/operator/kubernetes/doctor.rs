//! `incumbent doctor --lock kubernetes`, and the documented permissions.

use incumbent_test_support::{eventually, roles_in_deploy};
use serde_json::{Value, json};

use super::env::{OBSERVER, TestEnv};
use crate::doctor::run_doctor;
use crate::shell::CommandOutput;

impl TestEnv {
    /// The rules of the Role of a manifest in `deploy`, as the server parses them.
    async fn rules_of(&self, manifest: &str) -> Value {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", self.roles());
        let roles = roles_in_deploy(manifest);
        let (_, role) = roles.into_iter().find(|(kind, _)| kind == "Role").unwrap();
        let request = http::Request::post(path).header("content-type", "application/yaml");
        let request = request.body(role.into_bytes()).unwrap();
        let role: Value = self.admin.client().request(request).await.unwrap();
        role["rules"].clone()
    }

    fn doctor(&self, args: &[&str]) -> CommandOutput {
        let config = self.config_of(OBSERVER);
        let args = [&["doctor"], args, &["--kubeconfig", &config]].concat();
        run_doctor(&self.shell, &self.args(&args))
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

/// The doctor requires exactly the permissions of the documented Roles.
#[tokio::test(flavor = "multi_thread")]
async fn each_missing_documented_right_is_named() {
    let operator = ["--role", "administrator"];
    for (manifest, args, kinds) in [
        ("kubernetes.yaml", &["my-app", "--checkpoint"][..], &["leases"][..]),
        ("kubernetes-life.yaml", &["my-app", "--kind", "for-life"], &["configmaps", "pods"]),
        ("kubernetes-operator.yaml", &operator, &["leases"]),
        (
            "kubernetes-operator.yaml",
            &["--role", "administrator", "--kind", "for-life"],
            &["configmaps", "pods"],
        ),
    ] {
        let env = TestEnv::new().await;
        let rules = env.rules_of(manifest).await;
        env.allow(OBSERVER, &rules).await;
        let has_all = |report: &CommandOutput| {
            let missing = report.stdout.lines().filter(|line| line.contains(" rights "));
            let mut missing = missing.filter(|line| !line.starts_with("ok "));
            // Nodes belong to the ClusterRole, which is not bound here.
            missing.all(|line| {
                line.contains("with get of nodes, watch of nodes; add to its ClusterRole")
            })
        };
        eventually("all rights", async || has_all(&env.doctor(args)).then_some(())).await;
        for (number, rule) in rules.as_array().unwrap().iter().enumerate() {
            let resource = rule["resources"][0].as_str().unwrap();
            if resource != "events" && !kinds.contains(&resource) {
                continue; // belongs to the other kind
            }
            for verb in rule["verbs"].as_array().unwrap() {
                let verb = verb.as_str().unwrap();
                env.allow_only(&without(&rules, number, verb)).await;
                let named = match rule["resourceNames"][0].as_str() {
                    Some(name) => format!("{verb} of {resource} {name}"),
                    None => format!("{verb} of {resource}"),
                };
                let report = eventually(&named, async || {
                    let report = env.doctor(args);
                    (report.stdout.contains(&named) && report.code != Some(0)).then_some(report)
                })
                .await;
                let line = report
                    .stdout
                    .lines()
                    .find(|line| line.contains(&named) && !line.starts_with("ok "));
                let line = line.unwrap_or_else(|| panic!("{named}: {report:?}"));
                assert!(line.contains("add to its Role {apiGroups: ["), "{line}");
                assert!(line.contains(&format!("verbs: [{verb}]")), "{line}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_of_a_candidate_are_errors() {
    let env = TestEnv::new().await;
    let report = env.doctor(&["my-app"]);
    assert_eq!(report.code, Some(2), "{report:?}");
    let line = |level: &str| {
        let line = report.stdout.lines().find(|line| line.starts_with(level));
        line.unwrap_or_else(|| panic!("{level}: {report:?}")).to_owned()
    };
    assert!(line("ok ").contains("Kubernetes v1."));
    assert!(line("error ").contains(
        "a candidate needs get of leases my-app, update of leases my-app; add to its Role {apiGroups: \
         [coordination.k8s.io], resources: [leases], resourceNames: [my-app], verbs: [get, update]}"
    ));
    assert!(line("unknown ").contains("without the right to get it"));
    let config = env.config_of(OBSERVER);
    let url = format!("kubernetes:{}?kubeconfig={config}", env.namespace);
    for (lock, name) in [(url.clone(), "my-app"), (format!("{url}&object=my-app"), "other")] {
        let by_url = env.shell.run(&["doctor", name, "--lock", &lock]);
        assert_eq!(by_url.code, Some(2), "{by_url:?}");
        assert!(by_url.stdout.contains(&line("error ")), "{by_url:?}");
    }
    // Without a Lease, a candidate must be able to create it.
    let rules = json!([{
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"],
    }]);
    env.allow(OBSERVER, &rules).await;
    eventually("the right to get", async || {
        let report = env.doctor(&["my-app"]);
        report.stdout.contains("a candidate needs create of leases; add").then_some(())
    })
    .await;
    env.create_lease("my-app", json!({})).await;
    let report = env.doctor(&["my-app"]);
    assert!(
        report.stdout.contains("a candidate works better with watch of leases my-app, create of")
    );
    assert_eq!(report.code, Some(1), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn object_of_an_election_is_checked() {
    let env = TestEnv::new().await;
    let doctor = |args: &[&str]| run_doctor(&env.shell, &env.args(&[&["doctor"], args].concat()));
    let report = doctor(&["my-app"]);
    assert!(report.stdout.contains("object      it does not exist yet"), "{report:?}");
    assert!(
        report.stdout.contains("namespace   t")
            && report.stdout.contains("all rights of a candidate")
    );
    assert_eq!(report.code, Some(0), "{report:?}");
    let mut first = env.start(&["campaign", "my-app", "--lease", "24s", "--identity", "first"]);
    first.line_with("won");
    let report = doctor(&["my-app"]);
    assert!(report.stdout.contains("object      its record fits elections"), "{report:?}");
    assert_eq!(report.code, Some(0), "{report:?}");
    let report = doctor(&["my-app", "--lease", "40s"]);
    assert!(
        report.stdout.contains("its holder's lease is 24 s, and that of this lock is 40 s"),
        "{report:?}"
    );
    assert_eq!(report.code, Some(1));

    let spec = json!({
        "holderIdentity": "theirs", "leaseDurationSeconds": 2,
        "renewTime": "2026-01-01T00:00:00.000001Z",
    });
    env.create_lease("theirs", spec).await;
    let report = env.shell.run(&env.args(&["doctor", "theirs", "-o", "json"]));
    let json: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!((&json["worst"], report.code), (&json!("warning"), Some(1)));
    for text in ["theirs holds it", "lease of 2 s leaves little time", " days ago, which is longer"]
    {
        assert!(report.stdout.contains(text), "{text}: {report:?}");
    }

    let owner = |kind: &str, name: &str, object: &Value| {
        let uid = &object["metadata"]["uid"];
        json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}])
    };
    let core = format!("/api/v1/namespaces/{}", env.namespace);
    let containers = json!([{"name": "main", "image": "none"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
    let pod = env.post(&format!("{core}/pods"), pod).await;
    let no_pod = json!({"metadata": {"name": "no-pod"}});
    let no_pod = env.post(&format!("{core}/configmaps"), no_pod).await;
    for (name, owners, text, code) in [
        ("unowned", json!([]), "warning  object      no pod owns it; the next candidate", 1),
        ("pods", owner("Pod", "p", &pod), "ok       object      pod p leads (Pending)", 0),
        ("other", owner("ConfigMap", "no-pod", &no_pod), "error    object      the ConfigMap t", 2),
    ] {
        let lock = json!({"metadata": {"name": name, "ownerReferences": owners}});
        env.post(&format!("{core}/configmaps"), lock).await;
        let report = doctor(&[name, "--kind", "for-life"]);
        assert!(report.stdout.contains(text), "{text}: {report:?}");
        assert_eq!(report.code, Some(code), "{report:?}");
    }
    let patch = json!({"status": {"phase": "Failed"}});
    let status = format!("{core}/pods/p/status");
    env.send("PATCH", &status, "application/merge-patch+json", patch).await;
    let report = doctor(&["pods", "--kind", "for-life"]);
    assert!(
        report.stdout.contains("its pod p has ended (Failed); the next candidate"),
        "{report:?}"
    );
    assert_eq!(report.code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_server_namespace_and_credentials_are_errors() {
    let env = TestEnv::new().await;
    let report = env.shell.run(&["doctor", "--lock=kubernetes", "--namespace=absent"]);
    assert!(report.stdout.contains("no namespace absent: create it"), "{report:?}");
    assert_eq!(report.code, Some(2));
    let config = std::fs::read_to_string(env.server.kubeconfig()).unwrap();
    env.shell.write("away", &config.replace(&format!(":{}", env.server.port()), ":1"));
    env.shell.write("wrong", &config.replace("admin-token", "wrong"));
    for kind in ["lease", "for-life"] {
        for (file, text) in [
            ("away", "error    server      read of the API server's version: no response"),
            ("wrong", "the API server does not accept the credentials"),
        ] {
            let args = ["doctor", "--lock=kubernetes", "--kind", kind, "--kubeconfig", file];
            let report = env.shell.run(&args);
            assert!(report.stdout.contains(text), "{report:?}");
            let of_the_server = report.stdout.lines().filter(|line| !line.contains("clock rate"));
            assert_eq!((of_the_server.count(), report.code), (1, Some(2)), "{report:?}");
        }
    }
    for (args, text) in [
        (&["--monitor", "127.0.0.1:1"][..], "--monitor requires --lock nats"),
        (&["--lease", "1500ms"], "1.5s is not a whole number of seconds"),
        (&["--kind", "for-life", "--lease", "5s"], "--lease cannot be used with --kind for-life"),
        (&["my_app"], "\"my_app\" is not a valid name of a Lease"),
        (&["my_app", "--kind", "for-life"], "\"my_app\" is not a valid name of a ConfigMap"),
    ] {
        env.expect_refusal(&[&["doctor"], args].concat(), text, 2);
    }
}
