//! As a pod sees it: the files of its service account, and the variables that the kubelet sets.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use incumbent::Change;
use incumbent::kubernetes::{Cluster, LeaseTiming};
use incumbent::lock::{Lock, LockAdmin, LockErrorKind};
use incumbent_test_support::{Authority, eventually, not_run};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::Instant;

use crate::busy_server::BusyServer;
use crate::conformance::{Service, TIMEOUT, appears, soon, working};
use crate::env::{InLease, OBJECT, TestEnv};
use crate::fresh::made;

/// The lease of the candidate in a pod: its token is exchanged within it.
const LEASE_IN_POD: Duration = Duration::from_secs(20);
/// How often it renews.
const RETRY_IN_POD: Duration = Duration::from_secs(2);
/// How long a request may wait for a program that hangs.
const SHORT: Duration = Duration::from_secs(1);
/// How long a program that has printed credentials is not run again.
const PAUSE: Duration = Duration::from_secs(10);
/// Where a pod has them, in its view of `/var/run`.
const ACCOUNT: &str = "secrets/kubernetes.io/serviceaccount";
/// Has this program be the candidate of a pod.
const IN_POD: &str = "INCUMBENT_TEST_IN_POD";

/// The files of a service account, as the kubelet keeps them: exchanged all at once, by a link.
struct Files {
    run: tempfile::TempDir,
    versions: usize,
}

impl Files {
    fn new(token: &str, env: &TestEnv) -> Self {
        let mut files = Self { run: tempfile::tempdir().expect("a directory"), versions: 0 };
        fs::create_dir_all(files.account()).unwrap();
        files.write(token, env);
        for name in ["token", "ca.crt", "namespace"] {
            symlink(Path::new("..data").join(name), files.account().join(name)).unwrap();
        }
        files
    }

    fn account(&self) -> PathBuf {
        self.run.path().join(ACCOUNT)
    }

    fn write(&mut self, token: &str, env: &TestEnv) {
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        let directory = self.account().join(&version);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("token"), token).unwrap();
        fs::write(directory.join("namespace"), &env.namespace).unwrap();
        fs::copy(env.server.file("ca.crt"), directory.join("ca.crt")).unwrap();
        let new = self.account().join("..data-new");
        symlink(version, &new).unwrap();
        fs::rename(new, self.account().join("..data")).unwrap();
    }
}

/// A token of the account that is good as long as the Secret of this name is there.
async fn token_with(env: &TestEnv, secret: &str) -> String {
    let namespace = &env.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    let made = env.post(&path, &json!({ "metadata": { "name": secret } })).await;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/my-app/token");
    let bound = json!({
        "apiVersion": "v1", "kind": "Secret", "name": secret, "uid": made["metadata"]["uid"],
    });
    let asked = json!({ "spec": { "expirationSeconds": 3600, "boundObjectRef": bound } });
    env.post(&path, &asked).await["status"]["token"].as_str().unwrap().to_owned()
}

/// Takes back the token that goes with a Secret, and waits until the server refuses it.
async fn take_back(env: &TestEnv, secret: &str, token: &str) {
    env.delete(&format!("/api/v1/namespaces/{}/secrets/{secret}", env.namespace)).await;
    let review = json!({ "spec": { "token": token } });
    eventually("the token is refused", async || {
        let answer = env.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
        (answer["status"]["authenticated"] != Value::Bool(true)).then_some(())
    })
    .await;
}

/// This program in a pod: with its own view of `/var/run`, where the service account is.
struct Pod {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// What a mount namespace takes: root, or user namespaces. Not every user may have either.
const UNSHARE: &str = r#"mount='mount --bind "$0" /var/run && exec "$@"'
    for how in --mount "--mount --map-root-user"; do
        if unshare $how true 2>/dev/null; then exec unshare $how sh -c "$mount" "$@"; fi
    done
    exit 77"#;

impl Pod {
    /// `None` if this machine allows no pod, which is logged.
    async fn start(env: &TestEnv, files: &Files, name: &str, test: &str) -> Option<Self> {
        let home = files.run.path().join("home");
        let mut process = Command::new("sh")
            .args(["-c", UNSHARE, "sh"])
            .arg(files.run.path())
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--ignored"])
            .env(IN_POD, "yes")
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", env.server.port().to_string())
            .env("POD_NAME", name)
            .env("HOME", home)
            .env_remove("KUBECONFIG")
            .env_remove("POD_NAMESPACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("sh");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = soon("a line", lines.next_line()).await.unwrap();
        if first.is_none() && process.wait().await.unwrap().code() == Some(77) {
            not_run(test, "no mount namespaces: be root, or allow user namespaces");
            return None;
        }
        Some(Self { process, lines })
    }

    /// Waits for a line with this prefix, and returns the rest.
    async fn wait_for_line(&mut self, wanted: &str) -> String {
        soon(&format!("{wanted:?} is said"), async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                assert!(!line.starts_with("lost") || wanted == "lost", "{line}");
                if let Some(rest) = line.strip_prefix(wanted) {
                    return rest.trim().to_owned();
                }
            }
            panic!("it has ended before it said {wanted:?}");
        })
        .await
    }

    async fn stop(mut self) {
        let id = self.process.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(sent.unwrap().success());
        soon("its end", self.process.wait()).await.unwrap();
    }
}

/// What runs in a pod. It prints the events of its election, one per line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is what the pods of other tests run"]
async fn a_candidate_in_a_pod() {
    if std::env::var_os(IN_POD).is_none() {
        return;
    }
    println!(); // after what the test's harness has begun
    let cluster = Cluster::infer().await.expect("what a pod knows");
    println!("namespace {}", cluster.namespace());
    let timing = LeaseTiming::new(LEASE_IN_POD, LEASE_IN_POD * 4 / 5, RETRY_IN_POD);
    let lock = cluster.lease_lock().timing(timing.unwrap()).object(OBJECT);
    let election = working(incumbent::new_election("my_app", lock)).start().unwrap();
    println!("identity {}", election.identity());
    let mut changes = election.changes();
    tokio::spawn(async move {
        while let Some(change) = changes.next().await {
            match change {
                Change::Lost { cause, .. } => println!("lost: {cause}"),
                Change::LockFailing(failure) => println!("failing: {}", failure.message),
                _ => {}
            }
        }
    });
    let mut end =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    let works = async {
        loop {
            let leadership = election.won().await.expect("a campaign");
            println!("won {}", leadership.token());
            let mut deadline = leadership.deadline();
            loop {
                tokio::select! {
                    _ = leadership.ended() => break,
                    Ok(later) = leadership.renewed(deadline) => {
                        deadline = later;
                        println!("renewed");
                    }
                }
            }
        }
    };
    tokio::select! {
        () = works => {}
        _ = end.recv() => election.stop().await,
    }
}

/// Server, credentials, namespace and identity are the pod's; and when its token is exchanged, and
/// the old one refused at once, the leader keeps leading.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_in_a_pod_continues_when_its_token_is_replaced() {
    let env = TestEnv::<InLease>::new(LEASE_IN_POD).await;
    made(&env).await;
    let first = token_with(&env, "first-token").await;
    let mut files = Files::new(&first, &env);
    let test = "in_pod::a_candidate_in_a_pod";
    let Some(mut pod) = Pod::start(&env, &files, "my-app-0", test).await else { return };
    assert_eq!(pod.wait_for_line("namespace").await, env.namespace);
    assert_eq!(pod.wait_for_line("identity").await, "my-app-0");
    let token = pod.wait_for_line("won").await;
    assert_eq!(env.record().await.unwrap()["holderIdentity"], "my-app-0");
    pod.wait_for_line("renewed").await;

    let second = token_with(&env, "second-token").await;
    files.write(&second, &env);
    take_back(&env, "first-token", &first).await;
    // More than a lease holds: had one of them failed for good, it would have reported a loss.
    for _ in 0..12 {
        pod.wait_for_line("renewed").await;
    }
    let before = Service::holder(&env, "my_app").await;
    assert_eq!(before.as_deref(), Some("my-app-0"));

    // No other token in the file: the refusal is permanent, and reported, until there is one.
    let third = token_with(&env, "third-token").await;
    take_back(&env, "second-token", &second).await;
    let said = pod.wait_for_line("failing:").await;
    assert!(said.contains("does not accept the credentials"), "{said}");
    assert!(!said.contains(&second), "{said}");
    files.write(&third, &env);
    pod.wait_for_line("renewed").await;
    let before = Instant::now();
    pod.stop().await;
    // A request that takes longer is given up.
    let is_prompt = before.elapsed() < LEASE_IN_POD / 8;
    let holder = Service::holder(&env, "my_app").await;
    assert!(holder.is_none() || !is_prompt, "{holder:?}: it has released");
    assert!(token.parse::<u64>().is_ok());
}

/// Of a user of the server at `port`.
fn kubeconfig(port: u16, user: Value) -> String {
    let kubeconfig = json!({
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
        "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        "current-context": "x",
    });
    kubeconfig.to_string()
}

impl BusyServer {
    fn refuses(&self) {
        self.answers("401 Unauthorized", "", "{\"message\":\"Unauthorized\"}");
    }

    fn has_a_lease(&self) {
        let lease = json!({ "metadata": { "resourceVersion": "7" } });
        self.answers("200 OK", "", &lease.to_string());
    }

    /// The tokens that were sent so far.
    fn tokens(&self) -> Vec<String> {
        let sent = |request: &String| {
            request
                .lines()
                .find_map(|line| Some(line.strip_prefix("authorization: Bearer ")?.to_owned()))
        };
        self.requests().iter().filter_map(sent).collect()
    }
}

/// A token that the server refuses is read again from its file, and sent if it is another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_refused_token_is_read_again() {
    let server = BusyServer::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (config, file) = (directory.path().join("kubeconfig"), directory.path().join("token"));
    fs::write(&file, "first").unwrap();
    fs::write(&config, kubeconfig(server.port, json!({ "tokenFile": file }))).unwrap();
    let lock = Cluster::from_kubeconfig(&config, None).await.unwrap().lease_lock();

    server.refuses();
    let denied = lock.read("x", TIMEOUT).await.unwrap_err();
    assert_eq!(denied.kind(), LockErrorKind::Denied, "{denied}");
    fs::write(&file, "second").unwrap();
    server.refuses();
    server.has_a_lease();
    lock.read("x", TIMEOUT).await.expect("an answer to the second token");
    server.refuses();
    lock.read("x", TIMEOUT).await.expect_err("and no third");
    assert_eq!(server.tokens(), ["first", "first", "second", "second"]);

    fs::write(&file, "third").unwrap();
    server.refuses();
    server.answers("200 OK", "", "");
    lock.watch(&["x".to_owned()], TIMEOUT).await.expect("a watch with the third token");
    server.refuses();
    let denied = lock.watch(&["x".to_owned()], TIMEOUT).await.expect_err("no fourth token");
    assert_eq!(denied.kind(), LockErrorKind::Denied, "{denied}");
    assert_eq!(server.tokens()[4..], ["second", "third", "third"]);
}

/// As where a certificate is rotated, or a program writes a new token into the kubeconfig. Another
/// cluster that it names by then is not used.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn refused_credentials_of_a_kubeconfig_are_read_again() {
    let (server, other) = (BusyServer::start().await, BusyServer::start().await);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (config, certificate, key) = (path("kubeconfig"), path("client.crt"), path("client.key"));
    let user = json!({ "client-certificate": certificate, "client-key": key });
    let written = |port: u16, user: Value| fs::write(&config, kubeconfig(port, user)).unwrap();
    let issued = || {
        let [issued, its_key] = Authority::new().issue("c1");
        fs::write(&certificate, issued).unwrap();
        fs::write(&key, its_key).unwrap();
    };
    issued();
    written(server.port, user);
    let lock = Cluster::from_kubeconfig(&config, None).await.unwrap().lease_lock();

    server.refuses();
    lock.read("x", TIMEOUT).await.expect_err("there is no other certificate");
    issued();
    server.refuses();
    server.has_a_lease();
    lock.read("x", TIMEOUT).await.expect("an answer to the new certificate");
    written(other.port, json!({ "token": "of another" }));
    server.refuses();
    lock.read("x", TIMEOUT).await.expect_err("another cluster");
    written(server.port, json!({ "token": "new" }));
    server.refuses();
    server.has_a_lease();
    lock.read("x", TIMEOUT).await.expect("an answer to the token");
    let requests = server.requests();
    assert!(requests.last().unwrap().contains("authorization: Bearer new"), "{requests:?}");
    assert_eq!((requests.len(), other.requests().len()), (6, 0));
}

/// A kubeconfig whose credentials a shell prints.
struct Program {
    directory: tempfile::TempDir,
}

impl Program {
    /// `$0` of the script is the file with the credentials.
    fn new(port: u16, script: &str) -> Self {
        let program = Self { directory: tempfile::tempdir().unwrap() };
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script, program.file("credentials"), "s3cret"],
            "env": [{ "name": "SECRET", "value": "s3cret" }],
            "interactiveMode": "Never",
        });
        fs::write(program.file("kubeconfig"), kubeconfig(port, json!({ "exec": exec }))).unwrap();
        program
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Has the program print credentials from now on.
    fn prints(&self, status: Value) {
        let printed = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": status,
        });
        fs::write(self.file("credentials"), printed.to_string()).unwrap();
    }

    async fn cluster(&self) -> Cluster {
        Cluster::from_kubeconfig(self.file("kubeconfig"), None).await.unwrap()
    }
}

/// The kubeconfig stays as it was when its program would print another token.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn refused_credentials_of_a_program_are_asked_for_again() {
    let server = BusyServer::start().await;
    let program = Program::new(server.port, "cat \"$0\"");
    program.prints(json!({ "token": "first" }));
    let lock = program.cluster().await.lease_lock();

    let before = Instant::now();
    program.prints(json!({ "token": "second" }));
    server.refuses();
    server.has_a_lease();
    lock.read("x", TIMEOUT).await.expect("an answer to the second token");
    program.prints(json!({ "token": "third" }));
    server.refuses();
    let denied = lock.read("x", TIMEOUT).await.expect_err("the program has just run");
    // A machine that stood still for so long may have run it once more.
    if before.elapsed() < PAUSE {
        assert_eq!(denied.kind(), LockErrorKind::Denied, "{denied}");
        assert_eq!(server.tokens(), ["first", "second", "second"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_program_for_the_credentials_that_hangs_holds_up_no_other_request() {
    let server = BusyServer::start().await;
    let script = "while test -e \"$0.held\"; do sleep 0.1; done; cat \"$0\"";
    let program = Program::new(server.port, script);
    program.prints(json!({ "token": "first" }));
    let lock = program.cluster().await.lease_lock();

    program.prints(json!({ "token": "second" }));
    fs::write(program.file("credentials.held"), "").unwrap();
    appears("the refusal", async || {
        if server.left() == 0 {
            server.refuses();
        }
        let refused = lock.read("x", SHORT).await.expect_err("a refusal");
        match refused.kind() {
            LockErrorKind::Denied => Some(()),
            // The machine stood still until the request was given up.
            LockErrorKind::Unavailable => None,
            _ => panic!("{refused}"),
        }
    })
    .await;
    server.has_a_lease();
    // A program that hangs is given up after 20 s: nothing waits for that.
    let within = Duration::from_secs(15);
    soon("a response", lock.read("x", within)).await.expect("an answer to the first token");
    fs::remove_file(program.file("credentials.held")).unwrap();
    eventually("the second token is sent", async || {
        server.has_a_lease();
        lock.read("x", TIMEOUT).await.ok()?;
        (server.tokens().last()? == "second").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_program_for_the_credentials_that_hangs_once_runs_again() {
    let server = BusyServer::start().await;
    let hang = "while test -e \"$0.held\"; do sleep 0.1; done";
    let script = format!("if rm \"$0.hang\" 2>/dev/null; then {hang}; fi; cat \"$0\"");
    let program = Program::new(server.port, &script);
    program.prints(json!({ "token": "first" }));
    let lock = program.cluster().await.lease_lock();

    program.prints(json!({ "token": "second" }));
    let held = program.file("credentials.held");
    fs::write(&held, "").unwrap();
    fs::write(program.file("credentials.hang"), "").unwrap();
    appears("the second token is sent", async || {
        if server.tokens().last().is_some_and(|token| token == "second") {
            return Some(());
        }
        server.refuses();
        let _ = lock.read("x", SHORT).await;
        None
    })
    .await;
    fs::remove_file(held).unwrap(); // else the runtime waits for it
}

/// Its arguments, its variables and its output may all contain some.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_program_for_the_credentials_that_fails_is_reported_without_secrets() {
    let server = BusyServer::start().await;
    let program = Program::new(server.port, "cat \"$0\" || { echo s3cret; exit 3; }");
    let expired = json!({ "token": "first", "expirationTimestamp": "2001-01-01T00:00:00Z" });
    program.prints(expired);
    let lock = program.cluster().await.lease_lock();
    fs::remove_file(program.file("credentials")).unwrap();
    let failed = lock.read("x", TIMEOUT).await.expect_err("there is no token");
    let shown = format!("{failed:?}");
    assert!(shown.contains("exit status: 3"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert_eq!(server.tokens(), [""; 0]);
}
