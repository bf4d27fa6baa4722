//! `--lock kubernetes`: elections in the objects of a Kubernetes namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent::kubernetes::Cluster;
use incumbent_test_support::{KubeServer, eventually};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::shell::{Running, Shell};

pub const NOBODY: &str = "nobody";
pub const OBSERVER: &str = "observer";

/// One server serves all tests that do not break it.
async fn shared_server() -> Arc<KubeServer> {
    static SERVER: OnceCell<Arc<KubeServer>> = OnceCell::const_new();
    let start = || async { Arc::new(KubeServer::start(&[NOBODY, OBSERVER]).await) };
    Arc::clone(SERVER.get_or_init(start).await)
}

/// A namespace, and its administrator's shell.
pub struct Scene {
    pub server: Arc<KubeServer>,
    pub admin: Cluster,
    pub namespace: String,
    pub shell: Shell,
}

impl Scene {
    pub async fn new() -> Self {
        Self::on(shared_server().await).await
    }

    pub async fn on(server: Arc<KubeServer>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let namespace = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = Cluster::from_kubeconfig(server.kubeconfig(), None).await.unwrap();
        let shell = Shell::bare().with("KUBECONFIG", server.kubeconfig().display().to_string());
        let scene = Self { server, admin, namespace, shell };
        scene.post("/api/v1/namespaces", json!({"metadata": {"name": scene.namespace}})).await;
        scene
    }

    pub async fn send(&self, method: &str, path: &str, content: &str, object: Value) -> Value {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", content);
        let request = request.body(serde_json::to_vec(&object).unwrap()).unwrap();
        self.admin.client().request(request).await.unwrap()
    }

    pub async fn post(&self, path: &str, object: Value) -> Value {
        self.send("POST", path, "application/json", object).await
    }

    pub async fn get(&self, path: &str) -> Value {
        self.send("GET", path, "", Value::Null).await
    }

    /// Binds the rules to a user, and to no other, and waits for nothing: the server hears of it a little later.
    pub async fn allow(&self, user: &str, rules: &Value) {
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", self.namespace);
        let named = json!({"name": user});
        self.post(&format!("{rbac}/roles"), json!({"metadata": named, "rules": rules})).await;
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": named,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        self.post(&format!("{rbac}/rolebindings"), binding).await;
    }

    pub fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// A Lease as client-go writes it.
    pub async fn lease(&self, name: &str, spec: Value) {
        self.post(&self.leases(), json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// Arguments with the lock and its namespace.
    pub fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let lock = ["--lock", "kubernetes", "--namespace", &self.namespace];
        [&args[..at], &lock, &args[at..]].concat()
    }

    pub fn out(&self, args: &[&str]) -> String {
        self.shell.out(&self.args(args))
    }

    pub fn json(&self, args: &[&str]) -> Value {
        self.shell.json(&self.args(args))
    }

    pub fn refusal(&self, args: &[&str]) -> (String, i32) {
        self.shell.refusal(&self.args(args))
    }

    pub fn start(&self, args: &[&str]) -> Running {
        self.shell.start(&self.args(args))
    }

    pub fn campaign(&self, identity: &str) -> Running {
        self.start(&["campaign", "my-app", "--lease", "2s", "--identity", identity])
    }
}

pub fn cells(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_is_seen_watched_and_moved() {
    let scene = Scene::new().await;
    let mut watch = scene.start(&["election", "watch"]);
    let mut first = scene.campaign("first");
    let token = first.line_with("won").rsplit(' ').next().unwrap().to_owned();
    watch.line_with(&format!("my-app: first leads with token {token}"));

    let told = scene.out(&["election", "info"]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], format!("Namespace {}, kind Lease", scene.namespace));
    assert_eq!(cells(lines[2]), ["ELECTION", "LEADER", "SINCE", "TOKEN", "RENEWED"]);
    assert_eq!(cells(lines[3])[..2], ["my-app", "first"]);
    assert!(cells(lines[3]).contains(&token) && lines[3].ends_with(" ago"), "{told}");
    let json = scene.json(&["election", "info", "my-app", "-o", "json"]);
    assert_eq!(json["namespace"], scene.namespace.as_str());
    assert_eq!(json["elections"][0]["token"].to_string(), token);
    assert_eq!(json["elections"][0]["overdue"], false);
    assert_eq!(cells(&scene.out(&["election", "list"]))[2..], ["my-app", "first"]);

    let mut second = scene.campaign("second");
    second.line_with("leader: first");
    let (line, code) = scene.refusal(&["election", "evict", "my-app"]);
    assert!(line.contains("Evict first, who leads my-app") && line.contains("--force"), "{line}");
    assert_eq!(code, 1);
    let mut terminal = scene.shell.on_terminal(&scene.args(&["election", "evict", "my-app"]));
    terminal.shows("who leads my-app? [y/N] ");
    terminal.types("n");
    assert_eq!(terminal.ended().1, Some(1));
    let told = scene.out(&["election", "evict", "my-app", "--force", "--wait", "1m"]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "evicted first from my-app");
    first.line_with("lost: evicted");
    let token = second.line_with("won").rsplit(' ').next().unwrap().to_owned();
    assert!(lines[1].starts_with("second leads after "), "{told}");
    assert!(lines[1].ends_with(&format!(" with token {token}")), "{told}");
    watch.line_with("my-app: nobody leads: first was evicted");
    watch.line_with("my-app: second leads with token ");

    // Who leaves says so; who is killed says nothing, and nobody writes it.
    first.end_by("TERM");
    second.end_by("TERM");
    watch.line_with("my-app: nobody leads: second released: stopped");
    assert!(scene.out(&["election", "list"]).ends_with("\nmy-app    nobody (stopped)\n"));
    let mut third = scene.campaign("third");
    third.line_with("won");
    watch.line_with("my-app: third leads");
    third.end_by("KILL");
    watch.line_with("my-app: nobody leads: third did not renew: expired");
    eventually("the same by its times", async || {
        let list = scene.out(&["election", "list"]);
        list.ends_with("\nmy-app    third (overdue)\n").then_some(())
    })
    .await;
    assert_eq!(watch.end_by("INT"), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_kinds_are_seen_and_moved_and_keep_what_else_they_carry() {
    let scene = Scene::new().await;
    for (kind, plural) in [("configmap", "configmaps"), ("endpoints", "endpoints")] {
        let path = format!("/api/v1/namespaces/{}/{plural}", scene.namespace);
        scene.post(&path, json!({"metadata": {"name": "no-election"}})).await;
        let stays = match kind {
            "configmap" => json!({"metadata": {"name": "my-app"}, "data": {"theirs": "stays"}}),
            _ => json!({"metadata": {"name": "my-app", "labels": {"theirs": "stays"}}}),
        };
        scene.post(&path, stays).await;
        let mut watch = scene.start(&["election", "watch", "--kind", kind]);
        let mut first =
            scene.start(&["campaign", "my-app", "--kind", kind, "--lease=1s", "--identity=first"]);
        first.line_with("won");
        watch.line_with("my-app: first leads");
        let list = scene.out(&["election", "list", "--kind", kind]);
        assert_eq!(cells(&list)[2..], ["my-app", "first"]);
        let told =
            scene.out(&["election", "evict", "my-app", "--kind", kind, "--force", "--wait", "0s"]);
        assert!(told.starts_with("evicted first from my-app\n"), "{told}");
        first.line_with("lost: evicted");
        watch.line_with("first was evicted");
        let object = scene.send("GET", &format!("{path}/my-app"), "", Value::Null).await;
        assert!(object.to_string().contains(r#""theirs":"stays""#), "{object}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_while_its_lease_is_held_under_whatever_name() {
    let scene = Scene::new().await;
    let print = "echo $INCUMBENT_ELECTION $INCUMBENT_IDENTITY $INCUMBENT_TOKEN; exit 7";
    let told = scene.shell.run(&scene.args(&[
        "run",
        "my_app",
        "--object=my-app",
        "--lease=2s",
        "--identity=me",
        "--",
        "/bin/sh",
        "-c",
        print,
    ]));
    assert_eq!(told.code, Some(7), "{told:?}");
    let words = cells(&told.out);
    assert_eq!(words[..2], ["my_app", "me"]);
    assert!(words[2].parse::<u64>().is_ok_and(|token| token > 0), "{told:?}");
    let list = scene.out(&["election", "list"]);
    assert!(list.contains("my-app    nobody ("), "{list}");

    let (line, code) = scene.refusal(&["campaign", "my_app"]);
    assert!(line.contains("is no name of a Lease") && line.contains("--object, as in my-app"));
    assert_eq!(code, 2);
    let (line, code) = scene.refusal(&["election", "info", "my_app"]);
    assert!(line.contains("is no name of a Lease") && line.contains("as in my-app"), "{line}");
    assert_eq!(code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_there_while_its_keeper_holds_the_lease() {
    let scene = Scene::new().await;
    let file = scene.shell.home().join("leads.json");
    let args = ["election", "file", "my-app", "leads.json", "--lease=1s", "--identity", "a"];
    let keeper = scene.start(&args);
    let read = async || serde_json::from_str::<Value>(&std::fs::read_to_string(&file).ok()?).ok();
    let kept = eventually("a file", read).await;
    assert_eq!((&kept["election"], &kept["leader"]), (&"my-app".into(), &"a".into()));
    let ok = scene.out(&["election", "file", "my-app", "leads.json", "--check", "1m"]);
    assert!(ok.starts_with("OK: my-app: a wrote leads.json "), "{ok}");
    assert_eq!(keeper.end_by("TERM"), Some(15));
    assert!(!file.exists());
    let list = scene.out(&["election", "list"]);
    assert!(list.ends_with("nobody (work_ended)\n"), "{list}");
}

/// client-go's campaigners write the same record without our mark.
#[tokio::test(flavor = "multi_thread")]
async fn leaders_of_client_go_are_seen_and_moved() {
    let scene = Scene::new().await;
    let time = "2026-01-01T00:00:00.000001Z";
    let spec = json!({
        "holderIdentity": "theirs", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": time, "renewTime": time,
    });
    scene.lease("theirs", spec).await;
    let told = scene.out(&["election", "info"]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[3].starts_with("theirs    theirs (overdue)"), "{told}");
    assert_eq!(scene.json(&["election", "list", "-o", "json"])[0]["token"], Value::Null);

    let evict = ["election", "evict", "theirs", "--force", "--wait", "1s"];
    assert_eq!(scene.out(&evict), "evicted theirs from theirs\nnobody took over in 1s\n");
    let lease = format!("{}/theirs", scene.leases());
    let lease = scene.send("GET", &lease, "", Value::Null).await;
    assert_eq!(lease["spec"]["holderIdentity"], "");
    assert_eq!(lease["spec"]["leaseTransitions"], 3);
    let (line, code) = scene.refusal(&evict);
    assert!(line.contains("election theirs: nobody leads"), "{line}");
    assert_eq!(code, 3);
    assert_eq!(scene.refusal(&["election", "info", "absent"]).1, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_of_another_lock_are_refused() {
    let shell = Shell::bare();
    let kubernetes = "--lock=kubernetes";
    for (args, told) in [
        (&["election", "list", kubernetes, "--bucket", "B"][..], "--bucket says nothing without"),
        (&["election", "list", kubernetes, "-s", "h"], "--server says nothing without --lock nats"),
        (&["campaign", "a", kubernetes, "--creds", "f"], "--creds says nothing without"),
        (&["election", "list", "-n", "a"], "--namespace says nothing without --lock kubernetes"),
        (&["campaign", "a", "--kind", "lease"], "--kind says nothing without --lock kubernetes"),
        (&["campaign", "a", "--kubeconfig", "f"], "--kubeconfig says nothing without"),
        (&["campaign", "a", "--object", "b"], "--object says nothing without --lock kubernetes"),
    ] {
        let (line, code) = shell.refusal(args);
        assert!(line.contains(told), "{line}");
        assert_eq!(code, 2, "{line}");
    }
    let scene = Scene::new().await;
    for (args, told) in [
        (&["campaign", "a", "--no-create"][..], "--no-create says nothing without --lock nats"),
        (&["campaign", "a", "--lease", "1500ms"], "1.5s is not a whole number of seconds"),
        (
            &["run", "a", "--lease", "2s", "--grace", "2s", "--", "/bin/true"],
            "too long for a lease",
        ),
    ] {
        let (line, code) = scene.refusal(args);
        assert!(line.contains(told), "{line}");
        assert_eq!(code, 2, "{line}");
    }
    let (line, code) =
        scene.shell.refusal(&["election", "list", kubernetes, "--namespace", "../../nodes"]);
    assert!(line.contains("cannot be the name of a namespace"), "{line}");
    assert_eq!(code, 2);
    // A variable of the other lock is not meant for this one.
    let shell = Shell::bare()
        .with("NATS_URL", "nats://h")
        .with("KUBECONFIG", scene.server.kubeconfig().display().to_string());
    shell.out(&["election", "list", kubernetes, "-n", &scene.namespace]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_cannot_be_used_is_one_clear_line_without_secrets() {
    let shell = Shell::bare();
    let config = |token: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{{"name": "k", "cluster": {{"server": "https://127.0.0.1:1"}}}}],
            "contexts": [{{"name": "c", "context": {{"cluster": "k", "user": "u"}}}}],
            "users": [{{"name": "u", "user": {token}}}]}}"#
        )
    };
    shell.write("junk", "s3cret: [");
    shell.write("kind", &config(r#""s3cret""#));
    shell.write("type", &config(r#"{"token": {"s3cret": 1}}"#));
    shell.write(
        "data",
        &config(r#"{"client-certificate-data": "s3cret!", "client-key-data": "s3cret!"}"#),
    );
    shell.write("nothing", "{}");
    for file in ["junk", "kind", "type", "data", "nothing", "absent"] {
        let args = ["election", "list", "--lock=kubernetes", "--kubeconfig", file];
        let (line, code) = shell.refusal(&args);
        let told = match file {
            "data" => "failed to load client certificate".to_owned(),
            file => format!("the kubeconfig {file} cannot be used"),
        };
        assert!(line.contains(&told) && !line.contains("s3cret"), "{line}");
        assert_eq!(code, 2, "{line}");
    }
    let (line, code) = shell.refusal(&["election", "list", "--lock=kubernetes"]);
    assert!(line.contains("no API server: set KUBECONFIG"), "{line}");
    assert_eq!(code, 2);
    shell.write("away", &config(r#"{"token": "s3cret"}"#));
    for args in [
        &["election", "list", "--kubeconfig", "away"][..],
        &["election", "evict", "a", "--force", "--kubeconfig", "away"],
        &["campaign", "a", "--timeout", "2s", "--kubeconfig", "away"],
    ] {
        let (line, code) = shell.refusal(&[args, &["--lock=kubernetes"]].concat());
        assert!(line.contains("no answer of the API server"), "{line}");
        assert_eq!(code, 4, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_told() {
    let scene = Scene::new().await;
    let nobody = scene.server.kubeconfig_of(NOBODY).display().to_string();
    for (args, right) in [
        (&["election", "list"][..], "the right to list is missing"),
        (&["election", "info", "my-app"], "the right to get is missing"),
        (&["election", "evict", "my-app", "--force"], "the right to get is missing"),
        (&["election", "watch"], "the right to list is missing"),
        (&["campaign", "my-app"], "the right to get is missing"),
        (&["run", "my-app", "--", "/bin/true"], "the right to get is missing"),
        (&["election", "file", "my-app", "f"], "the right to get is missing"),
    ] {
        let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let args = [&args[..at], &["--kubeconfig", &nobody], &args[at..]].concat();
        let (line, code) = scene.refusal(&args);
        assert!(line.contains(right), "{line}");
        assert_eq!(code, 5, "{line}");
    }
    // And one whom the server does not know.
    let stranger = std::fs::read_to_string(scene.server.kubeconfig_of(NOBODY)).unwrap();
    scene.shell.write("stranger", &stranger.replace("nobody-token", "s3cret"));
    let (line, code) = scene.refusal(&["election", "list", "--kubeconfig", "stranger"]);
    assert!(line.contains("does not accept the credentials") && !line.contains("s3cret"), "{line}");
    assert_eq!(code, 5);
}

/// Without the right to watch it is looked every second, and nobody is evicted without the right to update.
#[tokio::test(flavor = "multi_thread")]
async fn an_observer_needs_no_more_than_to_list() {
    let scene = Scene::new().await;
    let rule = json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "get"],
    });
    scene.allow(OBSERVER, &json!([rule])).await;
    let observer = scene.server.kubeconfig_of(OBSERVER).display().to_string();
    let list = ["election", "list", "--kubeconfig", &observer];
    // The server hears of the binding a little later.
    eventually("the right", async || {
        (scene.shell.run(&scene.args(&list)).code == Some(0)).then_some(())
    })
    .await;
    let mut watch = scene.start(&["election", "watch", "--kubeconfig", &observer]);
    let mut first = scene.campaign("first");
    first.line_with("won");
    watch.line_with("my-app: first leads with token ");
    let evict = ["election", "evict", "my-app", "--force", "--kubeconfig", &observer];
    let (line, code) = scene.refusal(&evict);
    assert!(line.contains("the right to update is missing"), "{line}");
    assert_eq!(code, 5);
    first.end_by("TERM");
    watch.line_with("first released: stopped");
    let lease = format!("{}/my-app", scene.leases());
    let mut second = scene.campaign("second");
    watch.line_with("my-app: second leads");
    scene.send("DELETE", &lease, "application/json", json!({})).await;
    second.line_with("lost: evicted"); // a deletion is as good
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_is_waited_for_or_not() {
    let server = Arc::new(KubeServer::start(&[]).await);
    let scene = Scene::on(server).await;
    let mut watch = scene.start(&["election", "watch"]);
    let mut first = scene.campaign("first");
    first.line_with("won");
    watch.line_with("first leads");
    scene.server.kill();
    watch.line_with("my-app: nobody leads: first did not renew: expired");
    let (line, code) = scene.refusal(&["election", "list"]);
    assert!(line.contains("no answer of the API server"), "{line}");
    assert_eq!(code, 4);
    let (line, code) = scene.refusal(&["campaign", "my-app", "--timeout", "1s"]);
    assert!(line.contains("no answer of the API server"), "{line}");
    assert_eq!(code, 4);
    first.end_by("KILL");
    let mut second = scene.campaign("second"); // which waits
    scene.server.restart().await;
    second.line_with("won");
    watch.line_with("my-app: second leads");
}
