//! Leaders for life: `incumbent life`, and `election` with `--kind for-life`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;

use incumbent_test_support::eventually;
use serde_json::{Value, json};

use crate::kubernetes::{NOBODY, OBSERVER, Scene, cells};
use crate::shell::{Running, Shell};

const FOR_LIFE: [&str; 2] = ["--kind", "for-life"];

impl Scene {
    fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.namespace)
    }

    /// Makes a pod that nobody runs, and answers its UID.
    async fn pod(&self, name: &str) -> String {
        let container = json!({"name": "main", "image": "none"});
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
        let pod = self.post(&self.core("pods"), pod).await;
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn phase(&self, pod: &str, phase: &str) {
        let path = format!("{}/{pod}/status", self.core("pods"));
        let patch = json!({"status": {"phase": phase}});
        self.send("PATCH", &path, "application/merge-patch+json", patch).await;
    }

    /// By force, so that it is gone at once.
    async fn delete_pod(&self, name: &str) {
        let path = format!("{}/{name}", self.core("pods"));
        let at_once = json!({"gracePeriodSeconds": 0});
        self.send("DELETE", &path, "application/json", at_once).await;
    }

    async fn lock(&self) -> Value {
        self.get(&format!("{}/my-app", self.core("configmaps"))).await
    }

    fn life_args<'a>(&'a self, pod: &'a str, more: &[&'a str], script: &'a str) -> Vec<&'a str> {
        let args = ["life", "my-app", "--namespace", &self.namespace, "--pod", pod];
        [&args, more, &["--", "/bin/sh", "-c", script]].concat()
    }

    fn life(&self, pod: &str, script: &str) -> Running {
        self.shell.start_with_errors(&self.life_args(pod, &[], script))
    }

    fn for_life<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        self.args(&[args, &FOR_LIFE].concat())
    }
}

const SERVE: &str = "trap 'echo asked; exit 0' TERM; echo serves $INCUMBENT_ELECTION $INCUMBENT_IDENTITY \
                     $INCUMBENT_TOKEN $INCUMBENT_RESUMED; while :; do /bin/sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_once_its_pod_leads_and_ends_when_the_lock_is_lost() {
    let scene = Scene::new().await;
    let uid = scene.pod("first").await;
    scene.pod("second").await;
    let mut first = scene.life("first", SERVE);
    let told = cells(&first.line_with("serves"));
    assert_eq!(told[..3], ["serves", "my-app", "first"]);
    let lock = scene.lock().await;
    assert_eq!(told[3], lock["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(told[4], "0");
    assert_eq!(lock["metadata"]["ownerReferences"][0]["uid"], uid);

    let mut second = scene.life("second", SERVE);
    assert_eq!(second.line(), "incumbent: my-app: waiting: pod first leads");
    scene.delete_pod("first").await;
    let next = cells(&second.line_with("serves"));
    assert!(next[3].parse::<u64>().unwrap() > told[3].parse().unwrap(), "{next:?}");
    first.line_with("asked");
    let line = first.line_with("incumbent: ");
    assert!(line.contains("my-app: the lock was taken from pod first"), "{line}");
    assert_eq!(first.ended(), Some(3));
}

/// The kubelet starts a container again that has ended, in the same pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_leaves_the_lock_to_the_next_one_of_its_pod() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    scene.pod("second").await;
    let told = scene.shell.run(&scene.life_args("first", &[], "echo $INCUMBENT_RESUMED; exit 7"));
    assert_eq!((&*told.out, &*told.error, told.code), ("0\n", "", Some(7)));
    let lock = scene.lock().await;
    let mut second = scene.life("second", SERVE);
    second.line_with("pod first leads");

    let mut again = scene.life("first", SERVE);
    assert!(again.line_with("serves").ends_with(" 1"), "resumed");
    again.signal("TERM");
    again.line_with("asked");
    assert_eq!(again.ended(), Some(128 + 15));

    // One that is killed takes the command with it.
    let mut killed = scene.life("first", SERVE);
    killed.line_with("serves");
    killed.signal("KILL");
    killed.line_with("asked");
    let mut last = scene.life("first", SERVE);
    last.line_with("serves");
    assert_eq!(scene.lock().await, lock, "nobody has written");

    second.signal("TERM");
    assert_eq!(second.ended(), Some(128 + 15), "while it waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_stop_is_killed_after_its_grace() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    let stubborn = "trap '' TERM; echo up; while :; do /bin/sleep 0.05; done";
    let args = scene.life_args("first", &["--grace", "200ms", "--signal", "INT"], stubborn);
    let mut first = scene.shell.start_with_errors(&args);
    first.line_with("up");
    first.signal("TERM");
    assert_eq!(first.ended(), Some(128 + 15));
    let args = scene.life_args("first", &["--carrier", "lease"], "exit 0");
    assert_eq!(scene.shell.run(&args).code, Some(0));
    let lease = scene.get(&format!("{}/my-app", scene.leases())).await;
    assert_eq!(lease["metadata"]["ownerReferences"][0]["name"], "first");
    let list = scene.out(&["election", "list", "--kind", "for-life", "--carrier", "lease"]);
    assert!(list.ends_with("\nmy-app    first\n"), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_one_clear_line() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    let config = scene.server.kubeconfig().display().to_string();
    let namespace = &*scene.namespace;
    for (args, told, code) in [
        (&["life", "my app", "--namespace", namespace][..], "no name of a ConfigMap", 2),
        (&["life", "my_app"], "call the election otherwise, as in my-app", 2),
        (&["life", "a", "--namespace", "absent"], "there is no namespace absent", 3),
        (&["life", "a", "--namespace", "Not One"], "cannot be the name of a namespace", 2),
        (&["life", "a", "--namespace", namespace, "--pod", "x"], "there is no Pod t", 2),
        (&["life", "a", "--pod", "x y"], "\"x y\" is no name of a Kubernetes object", 2),
        (&["life", "a", "--context", "absent"], "it has no context \"absent\"", 2),
        (
            &["life", "a", "--kubeconfig", &config, "--context", "absent"],
            "it has no context \"absent\"",
            2,
        ),
        (&["life", "a", "--kubeconfig", "absent"], "the kubeconfig absent cannot be used", 2),
        (&["life", "a", "--poll", "1ms"], "a poll every 1ms is too often", 2),
    ] {
        let told = (told, code);
        let (line, code) = scene.shell.refusal(&[args, &["--", "/bin/true"]].concat());
        assert!(line.contains(told.0), "{line}");
        assert_eq!(code, told.1, "{line}");
    }
    let (line, code) = scene.shell.refusal(&["life", "a", "--", "/no/such/command"]);
    assert!(line.contains("there is no command /no/such/command"), "{line}");
    assert_eq!(code, 127);

    let lock = json!({"metadata": {"name": "theirs"}, "data": {"key": "value"}});
    scene.post(&scene.core("configmaps"), lock).await;
    let args = ["life", "theirs", "--namespace", namespace, "--pod", "first", "--", "/bin/true"];
    let (line, code) = scene.shell.refusal(&args);
    assert!(line.contains("it has data, so it is no lock; take another name"), "{line}");
    assert_eq!(code, 2);
    for verb in ["info", "evict"] {
        let (line, code) = scene.shell.refusal(&scene.for_life(&["election", verb, "theirs"]));
        assert!(line.contains("is no lock of a leader for life: it has data"), "{line}");
        assert_eq!(code, 1);
    }

    // A right that is missing may come: a server that has just started knows none.
    let nobody = scene.server.kubeconfig_of(NOBODY).display().to_string();
    let args = scene.life_args("first", &["--kubeconfig", &nobody], "true");
    let told = scene.shell.run(&args);
    let lines: Vec<&str> = told.error.lines().collect();
    let [waits, ends] = lines[..] else { panic!("two lines: {told:?}") };
    assert!(waits.contains("the right to get is missing") && waits.contains("my-app: waiting: "));
    assert!(ends.contains("the right to get is missing") && !ends.contains("waiting"), "{ends}");
    assert_eq!(told.code, Some(5));

    // Nobody listens there: it is waited for.
    scene.shell.write(
        "away",
        &std::fs::read_to_string(&config)
            .unwrap()
            .replace(&format!(":{}", scene.server.port()), ":1"),
    );
    let args = scene.life_args("first", &["--kubeconfig", "away"], "true");
    let mut waits = scene.shell.start_with_errors(&args);
    let line = waits.line();
    assert!(line.contains("no answer of the API server: "), "{line}");
    waits.signal("INT");
    assert_eq!(waits.ended(), Some(128 + 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_for_life_are_seen_watched_and_moved() {
    let scene = Scene::new().await;
    let mut watch = scene.shell.start(&scene.for_life(&["election", "watch"]));
    let uid = scene.pod("first").await;
    scene.phase("first", "Running").await;
    scene.pod("second").await;
    let mut first = scene.life("first", SERVE);
    let token = cells(&first.line_with("serves"))[3].clone();
    let line = watch.line_with("my-app: ");
    assert!(line.contains(&format!("pod first (Running, UID {uid}) leads")), "{line}");
    assert!(line.ends_with(&format!(" with token {token}")), "{line}");

    // What somebody keeps something in is no lock, though a pod owns it; what operator-sdk makes is one.
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": uid}]);
    let theirs =
        json!({"metadata": {"name": "theirs", "ownerReferences": owner}, "data": {"a": "b"}});
    scene.post(&scene.core("configmaps"), theirs).await;
    let sdk = json!({"metadata": {"name": "sdk", "ownerReferences": owner}});
    scene.post(&scene.core("configmaps"), sdk).await;
    watch.line_with("sdk: pod first ");
    let list = scene.shell.out(&scene.for_life(&["election", "list"]));
    assert_eq!(cells(&list), ["ELECTION", "LEADER", "my-app", "first", "sdk", "first"]);
    let info = scene.shell.out(&scene.for_life(&["election", "info", "my-app"]));
    let lines: Vec<&str> = info.lines().collect();
    assert_eq!(
        lines[0],
        format!("Namespace {}, leaders for life, kind ConfigMap", scene.namespace)
    );
    assert_eq!(cells(lines[2]), ["ELECTION", "POD", "PHASE", "SINCE", "TOKEN", "UID"]);
    assert_eq!(cells(lines[3])[..3], ["my-app", "first", "Running"]);
    assert!(lines[3].ends_with(&format!(" ago  {token:<5}  {uid}")), "{info}");
    let told = scene.shell.json(&scene.for_life(&["election", "info", "my-app", "-o", "json"]));
    let told = &told["elections"][0];
    assert_eq!(told["pod"], json!({"uid": uid, "phase": "Running"}));
    assert_eq!((told["token"].to_string(), &told["renewed"]), (token.clone(), &Value::Null));

    let mut second = scene.life("second", SERVE);
    second.line_with("pod first leads");
    let evict = scene.for_life(&["election", "evict", "my-app"]);
    let (line, code) = scene.shell.refusal(&evict);
    assert!(line.contains("Delete the lock of pod first") && line.contains("--force"), "{line}");
    assert_eq!(code, 1);
    let mut terminal = scene.shell.on_terminal(&evict);
    terminal.shows("when the next one begins? [y/N] ");
    terminal.types("n");
    assert_eq!(terminal.ended().1, Some(1));
    let told = scene.shell.out(&[&*evict, &["--force", "--wait", "1m"]].concat());
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], format!("evicted pod first (Running, UID {uid}) from my-app"));
    second.line_with("serves");
    assert!(lines[1].starts_with("pod second (Pending, UID "), "{told}");
    assert_eq!(first.ended(), Some(3));
    watch.line_with("my-app: pod second ");
    scene.delete_pod("second").await;
    watch.line_with("my-app: nobody leads: pod second ");
    let (line, code) = scene.shell.refusal(&evict);
    assert!(line.contains("election my-app: nobody leads"), "{line}");
    assert_eq!(code, 3);
}

/// `run` and `campaign` know leaders for life as well.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_commands_stand_for_life_where_they_are_told_so() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    scene.pod("second").await;
    let first = scene.for_life(&["run", "my-app", "--identity", "first"]);
    let mut first = scene.shell.start(&[&*first, &["--", "/bin/sh", "-c", SERVE]].concat());
    first.line_with("serves my-app first");
    let campaign = scene.for_life(&["campaign", "my-app", "--identity", "second"]);
    let mut second = scene.shell.start(&campaign);
    second.line_with("waiting: pod first leads");
    scene.delete_pod("first").await;
    second.line_with("won: leading with token ");
    let evict = scene.for_life(&["election", "evict", "my-app", "--force", "--wait", "0s"]);
    scene.shell.out(&evict);
    second.line_with("lost: the lock was taken");
    second.line_with("won: leading with token ");
    assert_eq!(second.end_by("TERM"), Some(15));
    assert_eq!(scene.lock().await["metadata"]["ownerReferences"][0]["name"], "second");

    let mut json = scene.shell.start(&[&*campaign, &["-o", "json"]].concat());
    json.line_with(r#"{"event":"won","resumed":true,"token":"#);
    assert_eq!(json.end_by("TERM"), Some(15));
    for flags in [["--lease", "5s"], ["--http", "0"]] {
        let (line, code) = scene.shell.refusal(&[&*campaign, &flags].concat());
        assert!(
            line.contains(&format!("{} says nothing with --kind for-life", flags[0])),
            "{line}"
        );
        assert_eq!(code, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_there_while_its_keepers_pod_owns_the_lock() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    let file = scene.shell.home().join("leads.json");
    let args = ["election", "file", "my-app", "leads.json", "--identity", "first"];
    let args = scene.for_life(&args);
    let read = async || serde_json::from_str::<Value>(&std::fs::read_to_string(&file).ok()?).ok();
    let keeper = scene.shell.start(&args);
    assert_eq!(eventually("a file", read).await["leader"], "first");
    assert_eq!(keeper.end_by("TERM"), Some(15));
    assert!(!file.exists());
    let keeper = scene.shell.start_with_errors(&args); // as a container that was restarted
    eventually("a file", read).await;
    let evict = scene.for_life(&["election", "evict", "my-app", "--force", "--wait", "0s"]);
    scene.shell.out(&evict);
    assert_eq!(keeper.ended(), Some(3));
    assert!(!file.exists());
    let (line, code) = scene.shell.refusal(&[&*args, &["--lease", "5s"]].concat());
    assert!(line.contains("--lease says nothing with --kind for-life"), "{line}");
    assert_eq!(code, 2);
}

/// What the documentation says of each right.
#[tokio::test(flavor = "multi_thread")]
async fn rights_to_look_and_to_evict_are_the_documented_ones() {
    let scene = Scene::new().await;
    let uid = scene.pod("first").await;
    let mut first = scene.life("first", SERVE);
    first.line_with("serves");
    let rule = |resources: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resources], "verbs": verbs});
    let rules = json!([rule("configmaps", &["list", "get"])]);
    scene.allow(OBSERVER, &rules).await;
    let observer = scene.server.kubeconfig_of(OBSERVER).display().to_string();
    let as_observer = |args: &[&str]| -> Vec<String> {
        let args = [args, &["--kubeconfig", &observer]].concat();
        scene.for_life(&args).into_iter().map(str::to_owned).collect()
    };
    let run = |args: &[&str]| {
        let args = as_observer(args);
        scene.shell.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    eventually("the right", async || (run(&["election", "list"]).code == Some(0)).then_some(()))
        .await;
    let told = run(&["election", "info", "my-app"]);
    assert_eq!(cells(told.out.lines().last().unwrap())[..3], ["my-app", "first", "unknown"]);
    let evict = ["election", "evict", "my-app", "--force", "--wait", "0s"];
    let told = run(&evict);
    assert!(told.error.contains("the right to delete is missing"), "{told:?}");
    assert_eq!(told.code, Some(5));
    assert_eq!(scene.lock().await["metadata"]["ownerReferences"][0]["uid"], uid);

    let role = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/{OBSERVER}",
        scene.namespace
    );
    let rules = json!([rule("configmaps", &["get", "delete"]), rule("pods", &["get"])]);
    scene.send("PATCH", &role, "application/merge-patch+json", json!({"rules": rules})).await;
    eventually("the right to list is gone", async || {
        let told = run(&["election", "list"]);
        (told.code == Some(5)).then(|| assert!(told.error.contains("the right to list is missing")))
    })
    .await;
    let told = run(&["election", "info", "my-app"]);
    assert_eq!(cells(told.out.lines().last().unwrap())[..3], ["my-app", "first", "Pending"]);
    // Without that to create Events, there is none.
    let told = run(&evict);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!(first.ended(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_and_a_namespace_that_are_not_there_are_told() {
    let scene = Scene::new().await;
    scene.out(&["election", "list", "--context", "x"]);
    let by_url = |context| format!("kubernetes:{}?context={context}", scene.namespace);
    scene.shell.out(&["election", "list", "--lock", &by_url("x")]);
    let (line, code) = scene.shell.refusal(&["election", "list", "--lock", &by_url("absent")]);
    assert!(line.contains("it has no context \"absent\""), "{line}");
    assert_eq!(code, 1);
    let config = scene.server.kubeconfig().display().to_string();
    for args in [
        &["election", "list", "--context", "absent"][..],
        &["election", "list", "--context", "absent", "--kubeconfig", &config],
        &["campaign", "a", "--context", "absent"],
    ] {
        let (line, code) = scene.refusal(args);
        assert!(line.contains("it has no context \"absent\""), "{line}");
        assert_eq!(code, 2);
    }
    for args in [
        &["election", "list"][..],
        &["election", "list", "--kind", "for-life"],
        &["election", "info", "a"],
        &["election", "evict", "a", "--kind", "configmap"],
        &["campaign", "a"],
        &["run", "a"],
    ] {
        let lock = ["--lock", "kubernetes", "--namespace", "absent"];
        let command: &[&str] = if args[0] == "run" { &["--", "/bin/true"] } else { &[] };
        let (line, code) = scene.shell.refusal(&[args, &lock, command].concat());
        assert!(line.contains("there is no namespace absent: make it"), "{line}");
        assert_eq!(code, 3);
    }
    let (line, code) = scene.refusal(&["election", "list", "--carrier", "lease"]);
    assert!(line.contains("--carrier says nothing without --kind for-life"), "{line}");
    assert_eq!(code, 2);
    // It is of NATS there, and its variable too.
    let shell = Shell::bare().with("NATS_CONTEXT", "absent").with("KUBECONFIG", config);
    shell.out(&["election", "list", "--lock", "kubernetes", "-n", &scene.namespace]);
}

/// An Event on the object says who was evicted, and by whom.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_leaves_an_event() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    let mut first = scene.life("first", SERVE);
    first.line_with("serves");
    let spec = json!({"holderIdentity": "theirs", "leaseDurationSeconds": 15});
    scene.lease("theirs", spec).await;
    let lease = scene.get(&format!("{}/theirs", scene.leases())).await;
    let lock = scene.lock().await;
    let evict = |name| ["election", "evict", name, "--force", "--wait", "0s"];
    scene.shell.out(&scene.for_life(&evict("my-app")));
    scene.out(&evict("theirs"));
    let events = scene.get(&scene.core("events")).await;
    let events = events["items"].as_array().unwrap();
    for (object, message) in [(lock, "first evicted by admin"), (lease, "theirs evicted by admin")]
    {
        let of_object = |event: &&Value| {
            event["reason"] == "LeaderElection"
                && event["message"] == message
                && event["involvedObject"]["uid"] == object["metadata"]["uid"]
        };
        assert!(events.iter().any(|event| of_object(&event)), "{message}: {events:?}");
    }
}

/// The server of the tests drops `spec.strategy`, for its feature is off there: this one shows it, and takes nothing.
#[test]
fn who_the_api_server_chose_is_not_evicted() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, asked) = channel();
    std::thread::spawn(move || {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "theirs", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "holderIdentity": "theirs", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000001Z", "strategy": "OldestEmulationVersion",
            },
        })
        .to_string();
        for mut client in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            let read = client.read(&mut bytes).unwrap_or_default();
            let request = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let length = lease.len();
            let _ = write!(
                client,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{lease}"
            );
            let _ = tell.send(request.lines().next().unwrap_or_default().to_owned());
        }
    });
    let shell = Shell::bare();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    shell.write("config", &config.to_string());
    let args = ["election", "evict", "theirs", "--force", "--lock", "kubernetes"];
    let (line, code) = shell.refusal(&[&args[..], &["--kubeconfig", "config"]].concat());
    assert!(line.contains("has spec.strategy, so the API server chooses its holder"), "{line}");
    assert!(line.contains("delete the LeaseCandidate"), "{line}");
    assert_eq!(code, 1);
    let asked: Vec<String> = asked.try_iter().collect();
    assert!(asked.len() >= 2 && asked.iter().all(|line| line.starts_with("GET ")), "{asked:?}");
}
