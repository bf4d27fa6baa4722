//! Golden outputs: what the commands that read elections print, on each lock.
//!
//! A file below `golden` is what one lock answers in one history: the words, the fields of JSON and
//! their order, what goes to standard error (behind `!`), and the exit codes. `UPDATE_EXPECT=1`
//! writes the files, for a review of what changed. What differs between runs is replaced by a name
//! in capitals.

use std::sync::LazyLock;
use std::time::Duration;

use expect_test::{ExpectFile, expect_file};
use incumbent_test_support::{
    EtcdCluster, HttpMessage, Port, PostgresServer, Server, eventually, http_request,
};
use regex::Regex;
use serde_json::json;

use crate::doctor::run_doctor;
use crate::kubernetes::{SERVE, TestEnv};
use crate::object_storage_doctor::versitygw;
use crate::shell::{CommandOutput, Running, Shell, TIMEOUT};

/// What differs between runs, and its name.
static VOLATILE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let table = [
        // Each object of JSON in one line.
        (r#"\n *(["}\]])"#, " $1"),
        // The check of the machine.
        (r"(?m)^\w+ +clock rate .*\n", ""),
        (r#"\{ "check": "clock rate", [^}]*\}"#, "CLOCK RATE"),
        (r#""worst": "(ok|unknown)""#, r#""worst": OK"#),
        (r"\S*/incumbent-shell-\w+", "HOME"),
        (r"20\d\d-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"(\d+ ?(ns|us|µs|ms|s|m|h|days?|months?|years?)\s?)+ ago", "SPAN ago"),
        (r"cooling down for [\d.a-zµ ]+:", "cooling down for SPAN:"),
        (r"[\d.]+[nuµm]?s (off the|\(median|\(longest)", "SPAN $1"),
        (r"(nats-server|SQLite|PostgreSQL|Kubernetes|etcd) v?[\d.]+( \([^)]*\))?", "$1 VERSION"),
        (r"\d+(\.\d+)? ?[KMGT]i?B free", "SIZE free"),
        (r"with token \d+", "with token TOKEN"),
        (r"SPAN ago +\d+", "SPAN ago  TOKEN"),
        (r#"("(token|revision|\w+_ms)": ?)[1-9]\d*"#, "${1}N"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"\bt\d+\b", "NAMESPACE"),
        // Widths of columns depend on what was replaced.
        (r"(\S) {2,}", "$1  "),
        (r" +\n", "\n"),
    ];
    table.map(|(pattern, name)| (Regex::new(pattern).expect("a pattern"), name)).into()
});

fn normalized(text: &str) -> String {
    VOLATILE.iter().fold(text.to_owned(), |text, (pattern, name)| {
        pattern.replace_all(&text, *name).into_owned()
    })
}

/// What a lock has answered so far.
struct Golden {
    shell: Shell,
    /// The flags that select the lock.
    lock: Vec<String>,
    /// Whether the lock carries roll calls: holders say why they cool down.
    calls: bool,
    /// Whether `election watch` asks holders too: a Lease shows no token while the roll is called.
    watch_calls: bool,
    /// Whether entries state the priority, from the second write on.
    states_priority: bool,
    /// Whether the last write of a leader that is gone is still shown.
    keeps_last_write: bool,
    /// The longest lease of the lock.
    max_lease: &'static str,
    /// The lease of a leader that a machine that stands still is not to end.
    steady_lease: &'static str,
    text: String,
}

/// `election watch`, as text and as JSON, and what it has printed.
struct Watch {
    name: String,
    running: [Running; 2],
    printed: [String; 2],
}

/// A running candidate and the port of its `--http`.
struct Candidate {
    /// The line that it was waited for.
    line: String,
    running: Running,
    port: Port,
}

impl Watch {
    /// Waits until each has printed its text.
    fn until(&mut self, texts: [&str; 2]) {
        assert!(self.prints(texts, TIMEOUT), "{texts:?}: {:?}", self.printed);
    }

    /// Whether each prints its text. `limit`: of the wait for each line.
    fn prints(&mut self, texts: [&str; 2], limit: Duration) -> bool {
        for (index, text) in texts.into_iter().enumerate() {
            loop {
                let Some(line) = self.running[index].line_within(limit) else { return false };
                self.printed[index] += &format!("{line}\n");
                if line.contains(text) {
                    break;
                }
            }
        }
        true
    }
}

impl Golden {
    fn new(shell: Shell, lock: &[&str]) -> Self {
        let lock = lock.iter().map(|&flag| flag.to_owned()).collect();
        Self {
            shell,
            lock,
            calls: true,
            watch_calls: true,
            states_priority: true,
            keeps_last_write: false,
            max_lease: "1m",
            steady_lease: "24s",
            text: String::new(),
        }
    }

    fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        args.iter().copied().chain(self.lock.iter().map(String::as_str)).collect()
    }

    fn start(&self, args: &[&str]) -> Running {
        self.shell.start(&self.args(args))
    }

    /// Starts a candidate with `--http`, and waits until it prints this text.
    fn campaign(&self, election: &str, identity: &str, more: &[&str], text: &str) -> Candidate {
        let port = Port::pick();
        let http = port.number().to_string();
        let args = ["campaign", election, "--identity", identity, "--http", &http];
        let mut running = self.start(&[&args[..], more].concat());
        let line = running.line_with(text);
        Candidate { line, running, port }
    }

    fn watch(&self, name: &[&str]) -> Watch {
        let args = [&["election", "watch"], name].concat();
        let formats = [&[][..], &["--output", "json"]];
        let running = formats.map(|format| self.start(&[&args, format].concat()));
        Watch { name: name.concat(), running, printed: Default::default() }
    }

    /// A watch of one election that has printed these texts: it asks the holder once, which may
    /// answer too late.
    async fn watch_until(&self, name: &str, texts: [&str; 2]) -> Watch {
        eventually("each text of the watch", async || {
            let mut watch = self.watch(&[name]);
            watch.prints(texts, Duration::from_secs(10)).then_some(watch)
        })
        .await
    }

    /// Waits until `election list -o json`, which asks no candidate, contains this text.
    async fn list_with(&self, text: &str) {
        eventually(text, async || {
            let list = ["election", "list", "--output", "json"];
            self.shell.run(&self.args(&list)).stdout.contains(text).then_some(())
        })
        .await;
    }

    /// Waits until `election info NAME -o json` contains this text.
    async fn info_with(&self, name: &str, text: &str) {
        eventually(text, async || {
            let info = ["election", "info", name, "--output", "json"];
            self.shell.run(&self.args(&info)).stdout.contains(text).then_some(())
        })
        .await;
    }
}

/// What is written to the file.
impl Golden {
    fn section(&mut self, title: &str) {
        self.text += &format!("\n# {title}\n");
    }

    fn run(&mut self, args: &[&str]) {
        let output = self.shell.run(&self.args(args));
        self.print(args, &output);
    }

    /// As `run`, again until standard output contains this text.
    async fn run_until(&mut self, args: &[&str], text: &str) {
        let output = self.shell.run_until(&self.args(args), text).await;
        self.print(args, &output);
    }

    fn run_doctor(&mut self, args: &[&str]) {
        let args = [&["doctor"], args].concat();
        let output = run_doctor(&self.shell, &self.args(&args));
        self.print(&args, &output);
    }

    fn print(&mut self, args: &[&str], output: &CommandOutput) {
        self.text += &format!("$ incumbent {}\n{}", args.join(" "), output.stdout);
        for line in output.stderr.lines() {
            self.text += &format!("! {line}\n");
        }
        let code = output.code.expect("no signal");
        if code != 0 {
            self.text += &format!("exit code {code}\n");
        }
    }

    fn show(&mut self, name: &str) {
        self.run(&["election", "info", name]);
        self.run(&["election", "info", name, "--output", "json"]);
        self.show_leader(name);
    }

    fn show_leader(&mut self, name: &str) {
        self.run(&["leader", name, "--identity", "alpha"]);
        self.run(&["leader", name, "--output", "json"]);
    }

    fn show_all(&mut self) {
        self.run(&["election", "list"]);
        self.run(&["election", "list", "--output", "json"]);
        self.run(&["election", "info"]);
        self.run(&["election", "info", "--output", "json"]);
    }

    fn show_watch(&mut self, watch: Watch) {
        for (running, printed) in watch.running.into_iter().zip(watch.printed) {
            let signal = running.end_with("INT").expect("a signal");
            let title = format!("$ incumbent election watch {}", watch.name);
            self.text += &format!("{title}\n{printed}ended by signal {signal}\n");
        }
    }

    /// `GET /leader`, once it contains this text.
    async fn show_http(&mut self, title: &str, port: &Port, text: &str) {
        let request = HttpMessage::new("GET /leader HTTP/1.1").with("host", "localhost");
        let body = eventually(text, async || {
            let response = http_request(port.number(), &request).await?;
            let body = String::from_utf8(response.body).ok()?;
            body.contains(text).then_some(body)
        });
        self.text += &format!("GET /leader of {title}\n{}\n", body.await);
    }

    /// The lock before any candidate used it, and a name that no election has.
    fn show_unused(&mut self) {
        self.section("before any candidate");
        self.show_all();
        self.show("my-app");
        for command in [&["election", "watch"][..], &["election", "info"], &["leader"]] {
            self.run(&[command, &["a name"]].concat());
        }
        self.run_doctor(&[]);
    }

    /// A holder of a new election in a lock in use, and its eviction after a crash.
    async fn show_new_election(&mut self, watch: &mut Watch) {
        let holder = self.campaign("beta", "second", &["--lease", self.max_lease], "cooling");
        watch.until(["beta: second leads", r#""leader":"second""#]);
        self.section("second election");
        self.text += &format!("$ incumbent campaign beta\n{}\n", holder.line);
        if self.watch_calls {
            self.show_cool_down("beta").await;
        } else if self.calls {
            self.info_with("beta", "left_ms").await;
            let from = self.text.len();
            self.show("beta");
            self.hide_calls(from);
        }
        self.show_http("the holder", &holder.port, "second").await;
        holder.running.end_with("KILL");
        self.section("evicted");
        self.run(&["election", "evict", "beta", "--force", "--wait", "0s"]);
        watch.until(["second was evicted", r#""cause":"evicted""#]);
        self.show("beta");
    }

    /// A holder that states why it cools down, which may answer too late.
    async fn show_cool_down(&mut self, name: &str) {
        self.run_until(&["election", "info", name], "cooling down").await;
        self.run_until(&["election", "info", name, "--output", "json"], "left_ms").await;
        self.show_leader(name);
        let watch = self.watch_until(name, ["cooling down", "cooling_down"]).await;
        self.show_watch(watch);
    }

    /// A Lease shows no token from a roll call until its next renewal, which may come at any time.
    /// Without a token nobody is asked.
    fn hide_calls(&mut self, from: usize) {
        let shown = self.text.split_off(from);
        let patterns = [
            (r"(second .*? ago +)(-|\d+)", "${1}TOKEN-OR-NONE"),
            (r#"("token": )(null|\d+)"#, "${1}TOKEN-OR-NONE"),
            (r"\nThe holder does not lead yet: .*\n", ""),
            (r#"\s*"cool_down": \{[^}]*\},"#, ""),
        ]
        .map(|(pattern, name)| (Regex::new(pattern).expect("a pattern"), name));
        self.text += &patterns
            .iter()
            .fold(shown, |text, (pattern, name)| pattern.replace_all(&text, *name).into_owned());
    }

    async fn show_held(&mut self, leader: &Candidate) {
        let standby = self.campaign("my-app", "bravo", &["--lease", "6s"], "leader: alpha");
        self.section("held");
        if self.states_priority {
            self.info_with("my-app", r#""priority": 7"#).await;
        }
        self.show_all();
        self.show("my-app");
        self.run(&["leader", "my-app", "--identity", "alpha", "--output", "json"]);
        self.run_doctor(&[]);
        self.run_doctor(&["my-app", "--output", "json"]);
        self.show_http("the leader", &leader.port, r#""mine":true"#).await;
        self.show_http("a standby", &standby.port, r#""fresh":true"#).await;
        self.section("paused");
        self.run(&["election", "pause", "my-app", "--for", "10m", "--within", "20s"]);
        if self.calls {
            self.info_with("my-app", r#""paused_until": "20"#).await;
        }
        self.run(&["election", "info", "my-app"]);
        self.run(&["election", "info", "my-app", "--output", "json"]);
        standby.running.end_with("TERM");
    }

    /// A leader that does not renew.
    async fn show_expired(&mut self, watch: &mut Watch) {
        let last = self.campaign("my-app", "last", &["--lease", "12s"], "won");
        watch.until(["my-app: last leads", r#""leader":"last""#]);
        if self.keeps_last_write {
            // The second write states more than the first. It must not come beside the kill.
            self.list_with(r#""priority": 0"#).await;
        }
        last.running.end_with("KILL");
        watch.until(["last did not renew", r#""before":"last""#]);
        self.section("expired");
        eventually("its lease is over", async || {
            let leader = self.shell.run(&self.args(&["leader", "my-app"]));
            leader.stderr.contains("no leader").then_some(())
        })
        .await;
        self.show("my-app");
    }

    /// All of these in one history. The first candidate, of this lease, creates the lock.
    async fn show_history(&mut self, lease: &str) {
        let creator = self.campaign("my-app", "creator", &["--lease", lease], "won");
        creator.running.end_with("TERM");
        let advertised = ["--advertise", "c1.example.net:50051", "--metadata", "zone=größer"];
        let placed = ["--priority", "7", "--site", "north", "--lease", self.steady_lease];
        let flags = [&advertised[..], &placed].concat();
        let leader = self.campaign("my-app", "alpha", &flags, "won");
        let mut watch = self.watch(&[]);
        watch.until(["my-app: alpha leads", r#""found":true"#]);
        self.show_new_election(&mut watch).await;
        self.show_held(&leader).await;
        leader.running.end_with("TERM");
        watch.until(["alpha released: stopped", r#""cause":"stopped""#]);
        self.section("released, and a name without an election");
        self.show_all();
        self.show("my-app");
        self.run(&["leader", "my-app", "--quiet"]);
        self.show("absent");
        self.show_expired(&mut watch).await;
        self.section("watched");
        self.show_watch(watch);
    }

    /// What another program wrote to the election `theirs`.
    fn show_foreign(&mut self) {
        self.section("of another program");
        self.run(&["election", "list"]);
        self.show("theirs");
        self.run_doctor(&["theirs"]);
        let mut named = self.watch(&["theirs"]);
        named.until(["theirs: ", r#""found":true"#]);
        self.show_watch(named);
    }

    /// The elections by a URL instead of flags.
    fn show_by_url(&mut self, url: String) {
        self.section("by a URL");
        self.lock = vec!["--lock".to_owned(), url];
        self.show_all();
        self.show("my-app");
    }

    fn compare(self, file: ExpectFile) {
        file.assert_eq(&normalized(&self.text));
    }
}

#[tokio::test]
async fn nats() {
    let server = Server::start().await;
    let mut golden = Golden::new(Shell::at(&server), &["--bucket", "B"]);
    golden.show_unused();
    // As long the bucket keeps what has ended.
    golden.show_history("10m").await;
    golden.shell.out(&["kv", "put", "B", "theirs", "go-1.example.net"]);
    golden.show_foreign();
    golden.show_by_url(format!("{}/B", server.url()));
    golden.compare(expect_file!["golden/nats.txt"]);
}

#[tokio::test]
async fn sqlite() {
    let mut golden = Golden::new(Shell::bare(), &["--lock", "sqlite:elections.db"]);
    (golden.calls, golden.watch_calls) = (false, false);
    golden.show_unused();
    golden.show_history("1m").await;
    golden.compare(expect_file!["golden/sqlite.txt"]);
}

#[tokio::test]
async fn postgres() {
    let server = PostgresServer::start(&["fsync=on"]).await;
    let mut golden = Golden::new(Shell::bare(), &["--lock", &server.url("postgres")]);
    golden.show_unused();
    golden.show_history("1m").await;
    let theirs = "INSERT INTO incumbent_elections (name, holder, renewed_at, lease_duration, revision) \
                  VALUES ('theirs', 'go-1.example.net', '2026-01-01', '1s', 1)";
    server.sql("postgres", &[theirs]);
    golden.show_foreign();
    golden.compare(expect_file!["golden/postgres.txt"]);
}

#[tokio::test]
async fn object_storage() {
    let (_store, shell) = versitygw().await;
    let mut golden = Golden::new(shell, &["--lock", "s3://bucket?max-lease=12s"]);
    (golden.calls, golden.watch_calls, golden.states_priority) = (false, false, false);
    (golden.max_lease, golden.steady_lease) = ("12s", "12s");
    golden.show_unused();
    golden.show_history("12s").await;
    golden.compare(expect_file!["golden/object_storage.txt"]);
}

#[tokio::test]
async fn etcd() {
    let cluster = EtcdCluster::start(1, &[]).await;
    let lock = format!("etcd://{}/elections?max-lease=12s", cluster.endpoints().join(","));
    let mut golden = Golden::new(Shell::bare(), &["--lock", &lock]);
    (golden.calls, golden.watch_calls, golden.keeps_last_write) = (false, false, true);
    (golden.max_lease, golden.steady_lease) = ("12s", "12s");
    golden.show_unused();
    golden.show_history("12s").await;
    golden.compare(expect_file!["golden/etcd.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_lease() {
    let env = TestEnv::new().await;
    let lock = ["--lock", "kubernetes", "--namespace", &env.namespace];
    let shell = Shell::bare().with("KUBECONFIG", env.server.kubeconfig().display().to_string());
    let mut golden = Golden::new(shell, &lock);
    (golden.watch_calls, golden.keeps_last_write) = (false, true);
    golden.show_unused();
    golden.show_history("6s").await;
    let spec = json!({
        "holderIdentity": "go-1", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": "2026-01-01T00:00:00.000001Z",
    });
    env.create_lease("theirs", spec).await;
    golden.show_foreign();
    golden.show_by_url(format!("kubernetes:{}", env.namespace));
    golden.compare(expect_file!["golden/kubernetes_lease.txt"]);
}

/// Objects of a kind that carries no roll calls.
async fn kubernetes_without_calls(kind: &str, file: ExpectFile) {
    let env = TestEnv::new().await;
    let lock = ["--lock", "kubernetes", "--kind", kind, "--namespace", &env.namespace];
    let shell = Shell::bare().with("KUBECONFIG", env.server.kubeconfig().display().to_string());
    let mut golden = Golden::new(shell, &lock);
    (golden.calls, golden.watch_calls, golden.keeps_last_write) = (false, false, true);
    golden.show_unused();
    golden.run(&["election", "members", "my-app"]);
    golden.show_history("6s").await;
    golden.show_by_url(format!("kubernetes:{}?kind={kind}", env.namespace));
    golden.compare(file);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_configmap() {
    kubernetes_without_calls("configmap", expect_file!["golden/kubernetes_configmap.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_endpoints() {
    kubernetes_without_calls("endpoints", expect_file!["golden/kubernetes_endpoints.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_for_life() {
    let env = TestEnv::new().await;
    let lock = ["--lock", "kubernetes", "--kind", "for-life", "--namespace", &env.namespace];
    let shell = Shell::bare().with("KUBECONFIG", env.server.kubeconfig().display().to_string());
    let mut golden = Golden::new(shell, &lock);
    golden.show_unused();
    let uid = env.create_pod("first").await;
    env.set_phase("first", "Running").await;
    let mut first = env.start_life("first", SERVE);
    first.line_with("serves");
    let mut watch = golden.watch(&[]);
    watch.until(["pod first", r#""found":true"#]);
    golden.section("held");
    golden.show_all();
    golden.show("my-app");
    golden.run(&["leader", "my-app", "--identity", "first"]);
    golden.run(&["election", "members", "my-app"]);
    golden.run(&["election", "pause", "my-app"]);
    golden.run(&["doctor", "my-app"]);
    golden.section("evicted");
    golden.run(&["election", "evict", "my-app", "--force", "--wait", "0s"]);
    watch.until(["no leader", r#""event":"vacant""#]);
    golden.show("my-app");
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": uid}]);
    let theirs = json!({"metadata": {"name": "theirs", "ownerReferences": owner}});
    env.post(&env.core("configmaps"), theirs).await;
    watch.until(["theirs: pod first", r#""election":"theirs""#]);
    golden.show_foreign();
    golden.section("watched");
    golden.show_watch(watch);
    golden.compare(expect_file!["golden/kubernetes_for_life.txt"]);
}

/// Three voters, each with an election of its own; a fourth member reads.
#[tokio::test]
async fn peers() {
    let ports = [Port::pick(), Port::pick(), Port::pick()].map(|port| port.number());
    let peers = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let lock = |port| format!("peer:127.0.0.1:{port}?quorum=3&lease=8s&peers={peers}");
    let mut golden = Golden::new(Shell::bare(), &["--lock", &lock(0)]);
    let start = |election, identity, port| {
        let args = ["campaign", election, "--identity", identity, "--lock", &lock(port)];
        golden.shell.start(&args)
    };
    let mut members = [
        start("my-app", "alpha", ports[0]),
        start("beta", "bravo", ports[1]),
        start("gamma", "charlie", ports[2]),
    ];
    members.iter_mut().for_each(|member| drop(member.line_with("won")));
    golden.section("held");
    golden.show_all();
    golden.show("my-app");
    golden.run(&["election", "pause", "my-app"]);
    golden.run_until(&["doctor"], "3 of 3 respond").await;
    let [leader, _second, _third] = members;
    leader.end_with("TERM");
    golden.section("released");
    golden.show("my-app");
    golden.compare(expect_file!["golden/peers.txt"]);
}
