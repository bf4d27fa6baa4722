//! `incumbent run --service`: three candidates in pods without a kubelet, a client that watches the
//! slice, and one that writes through what the slice says while leaders are killed, stopped, moved
//! and suspended.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::clock::{BootClock, Clock};
use incumbent::kubernetes::kube::Client;
use incumbent::kubernetes::kube::core::{Request, WatchEvent, params::WatchParams};
use incumbent_test_support::{KubeServer, Port, PostgresServer, Server, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::env::TestEnv;
use crate::shell::{Running, Shell};

/// What a leader runs: it passes writes on to a server, with its token.
const SERVE: &str = r#"
import os, socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
token = os.environ["INCUMBENT_TOKEN"]
print("leads", token, os.environ["INCUMBENT_DEADLINE_FILE"], flush=True)
while True:
    client, _ = listener.accept()
    try:
        client.recv(64)
        with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as server:
            server.sendall((token + "\n").encode())
            client.sendall(server.recv(16))
    except OSError:
        pass
    client.close()
"#;
const PODS: [&str; 3] = ["p0", "p1", "p2"];
const NAME: &str = "my-app";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Kill,
    Stop,
    Move,
    /// `incumbent` is suspended, and killed once another one leads.
    Hang,
}

/// How often leaders are killed, stopped, moved and suspended, each.
fn faults() -> usize {
    std::env::var("SERVICE_FAULTS").map_or(2, |n| n.parse().expect("a number"))
}

/// The address of a pod.
fn address(pod: usize) -> String {
    format!("10.9.0.{}", pod + 1)
}

/// The pod with an address.
fn pod_at(address: &str) -> Option<usize> {
    (0..PODS.len()).find(|pod| self::address(*pod) == address)
}

fn now() -> f64 {
    BootClock.now().since_origin().as_secs_f64()
}

/// What the clients saw, in seconds since boot.
#[derive(Default)]
struct Seen {
    /// The addresses in the slice, and its token, since when.
    slices: Vec<(f64, Vec<String>, u64)>,
    /// The last deadline of each term.
    deadlines: BTreeMap<u64, f64>,
    /// The tokens that the server received, in order, and how many of them it refused.
    tokens: Vec<u64>,
    refused: usize,
    written: Vec<f64>,
    /// The files with deadlines.
    files: Vec<String>,
    /// When the whole machine stood still for a while, from and to.
    standstills: Vec<(f64, f64)>,
}

impl Seen {
    /// Whether the machine stood still shortly before: what is seen then happened earlier, and a
    /// leader that stood still takes nothing back.
    fn stood_still_before(&self, at: f64) -> bool {
        self.standstills.iter().any(|(from, to)| *from < at && at < to + 1.0)
    }
}

type Shared = Arc<Mutex<Seen>>;

/// A server that refuses a smaller token than it has seen.
async fn fencing_server(listener: TcpListener, seen: Shared) {
    while let Ok((mut client, _)) = listener.accept().await {
        let (reader, mut writer) = client.split();
        let mut line = String::new();
        if BufReader::new(reader).read_line(&mut line).await.is_err() {
            continue;
        }
        let Ok(token) = line.trim().parse::<u64>() else { continue };
        let is_stale = {
            let mut seen = seen.lock().unwrap();
            let is_stale = seen.tokens.last().is_some_and(|last| *last > token);
            if is_stale {
                seen.refused += 1;
            } else {
                seen.tokens.push(token);
            }
            is_stale
        };
        let _ = writer.write_all(if is_stale { b"stale" } else { b"ok" }).await;
    }
}

/// Follows the slice, as kube-proxy does.
async fn watch(client: Client, namespace: String, seen: Shared) {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    loop {
        let params = WatchParams::default().labels(&format!("kubernetes.io/service-name={NAME}"));
        let request = Request::new(path.clone()).watch(&params, "0").unwrap();
        let events = client.request_events::<Value>(request).await.expect("a watch");
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(slice) | WatchEvent::Modified(slice)) = event else { continue };
            let endpoints = slice["endpoints"].as_array().into_iter().flatten();
            let addresses = endpoints.map(|one| one["addresses"][0].as_str().unwrap().to_owned());
            let token = slice["metadata"]["annotations"]["incumbent/token"].as_str().unwrap();
            let token = token.parse().unwrap();
            seen.lock().unwrap().slices.push((now(), addresses.collect(), token));
        }
    }
}

/// Writes through what the slice says.
async fn write(ports: [u16; 3], seen: Shared) {
    loop {
        let address = {
            let seen = seen.lock().unwrap();
            seen.slices.last().and_then(|(_, addresses, _)| addresses.first().cloned())
        };
        if let Some(address) = address {
            let pod = pod_at(&address).expect("the address of a pod");
            let wrote = timeout(Duration::from_millis(500), async {
                let mut server = TcpStream::connect(("127.0.0.1", ports[pod])).await.ok()?;
                server.write_all(b"write").await.ok()?;
                let mut answer = Vec::new();
                server.read_to_end(&mut answer).await.ok()?;
                (answer == b"ok").then_some(())
            });
            if let Ok(Some(())) = wrote.await {
                seen.lock().unwrap().written.push(now());
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Reads the deadline of each term, as long as its file is there.
async fn read_deadlines(seen: Shared) {
    let mut last = now();
    loop {
        let time = now();
        if time - last > 0.5 {
            seen.lock().unwrap().standstills.push((last, time));
        }
        last = time;
        let files = seen.lock().unwrap().files.clone();
        for file in files {
            let text = fs::read_to_string(Path::new(&file)).unwrap_or_default();
            let words: Vec<_> = text.split_whitespace().collect();
            let [deadline, _, token] = words[..] else { continue };
            let (deadline, token) = (deadline.parse().unwrap(), token.parse().unwrap());
            if token > 0 {
                let mut seen = seen.lock().unwrap();
                let last: &mut f64 = seen.deadlines.entry(token).or_default();
                *last = last.max(deadline);
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Where the lock is.
enum Store {
    Kubernetes,
    Nats(Server),
    Postgres(PostgresServer),
}

impl Store {
    fn lock(&self) -> String {
        match self {
            Self::Kubernetes => "kubernetes".to_owned(),
            Self::Nats(_) => "nats".to_owned(),
            Self::Postgres(server) => server.url("postgres"),
        }
    }
}

/// Three candidates on a lock, and the clients.
struct Fleet {
    env: TestEnv,
    store: Store,
    shells: Vec<Shell>,
    candidates: Vec<Option<Running>>,
    ports: [Port; 3],
    server: u16,
    seen: Shared,
    _clients: JoinSet<()>,
}

impl Fleet {
    async fn new(env: TestEnv, store: Store) -> Self {
        let core = format!("/api/v1/namespaces/{}", env.namespace);
        let service = json!({
            "metadata": { "name": NAME },
            "spec": { "ports": [{ "port": 80, "targetPort": 8080 }] },
        });
        env.post(&format!("{core}/services"), service).await;
        for (at, name) in PODS.into_iter().enumerate() {
            let pod = json!({
                "metadata": { "name": name },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            });
            env.post(&format!("{core}/pods"), pod).await;
            let ip = address(at);
            let status = json!({ "status": { "podIP": ip, "podIPs": [{ "ip": ip }] } });
            let path = format!("{core}/pods/{name}/status");
            env.send("PATCH", &path, "application/merge-patch+json", status).await;
        }
        let shells = PODS.map(|name| {
            let shell = match &store {
                Store::Nats(server) => Shell::at(server),
                Store::Kubernetes | Store::Postgres(_) => Shell::bare(),
            };
            shell
                .with("KUBECONFIG", env.server.kubeconfig().display().to_string())
                .with("POD_NAMESPACE", &*env.namespace)
                .with("POD_NAME", name)
                .with("PATH", "/usr/bin:/bin")
        });
        let ports = PODS.map(|_| Port::pick());
        let candidates = PODS.map(|_| None).into();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = listener.local_addr().unwrap().port();
        let (seen, mut clients) = (Shared::default(), JoinSet::new());
        clients.spawn(fencing_server(listener, Arc::clone(&seen)));
        clients.spawn(write(ports.each_ref().map(Port::number), Arc::clone(&seen)));
        clients.spawn(read_deadlines(Arc::clone(&seen)));
        let (client, namespace) = (env.admin.client().clone(), env.namespace.clone());
        clients.spawn(watch(client, namespace, Arc::clone(&seen)));
        let shells = shells.into();
        Self { env, store, shells, candidates, ports, server, seen, _clients: clients }
    }

    fn start(&mut self, at: usize) {
        let (port, server) = (self.ports[at].number().to_string(), self.server.to_string());
        let flags = ["--service", NAME, "--leader-label", "role=leader", "--identity", PODS[at]];
        let command = ["--on-exit", "restart", "--", "python3", "-c", SERVE, &port, &server];
        let lock = self.store.lock();
        let lock = ["--lock", &lock, "--lease", "8s"];
        let args = [&["run", NAME], &lock[..], &flags, &command].concat();
        self.candidates[at] = Some(self.shells[at].start(&args));
    }

    /// The candidate whose pod the slice names, since after `since`.
    async fn leader(&self, since: f64) -> usize {
        eventually("a leader in the slice serves", async || {
            let seen = self.seen.lock().unwrap();
            let (at, addresses, _) = seen.slices.last()?;
            let served = *seen.written.last()? > at.max(since);
            pod_at(addresses.first()?).filter(|_| served)
        })
        .await
    }

    /// Reads which files have the deadlines.
    fn take_lines(&mut self) {
        for candidate in self.candidates.iter_mut().flatten() {
            while let Some(line) = candidate.next_line() {
                if let Some(file) = line.strip_prefix("leads ").and_then(|it| it.split(' ').nth(1))
                {
                    self.seen.lock().unwrap().files.push(file.to_owned());
                }
            }
        }
    }

    async fn strike(&mut self, fault: Fault) {
        let leader = self.leader(0.0).await;
        eventually("the deadlines of the term are read", async || {
            self.take_lines();
            let seen = self.seen.lock().unwrap();
            let (.., token) = seen.slices.last()?;
            seen.deadlines.contains_key(token).then_some(())
        })
        .await;
        let at = now();
        match fault {
            Fault::Kill => {
                let candidate = self.candidates[leader].take().expect("it runs");
                candidate.end_with("KILL");
            }
            Fault::Stop => {
                let candidate = self.candidates[leader].take().expect("it runs");
                candidate.signal("TERM");
                tokio::task::spawn_blocking(|| candidate.wait()).await.unwrap();
            }
            Fault::Hang => self.candidates[leader].as_ref().expect("it runs").signal("STOP"),
            Fault::Move => {
                let to = PODS[(leader + 1) % PODS.len()];
                let lock = self.store.lock();
                let args = ["election", "move", NAME, "--to", to, "--lock", &lock];
                let shell = &self.shells[leader];
                eventually("the other one is ready", async || {
                    let mut moved = shell.command(&args);
                    let moved = tokio::task::spawn_blocking(move || moved.output().unwrap()).await;
                    // A third one may have been faster, or the command gave up before it led.
                    let seen = self.seen.lock().unwrap();
                    let (_, addresses, _) = seen.slices.last()?;
                    let other = addresses.first().is_some_and(|it| pod_at(it) != Some(leader));
                    (moved.unwrap().status.success() || other).then_some(())
                })
                .await;
            }
        }
        eventually("another leader", async || (self.leader(at).await != leader).then_some(()))
            .await;
        if fault == Fault::Hang {
            let candidate = self.candidates[leader].take().expect("it is suspended");
            candidate.end_with("KILL");
        }
        if self.candidates[leader].is_none() {
            self.start(leader);
        }
    }

    /// The pods with the label of the leader.
    async fn labelled(&self) -> Vec<String> {
        let namespace = &self.env.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=role%3Dleader");
        let pods = self.env.get(&path).await;
        let pods = pods["items"].as_array().unwrap().iter();
        pods.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Of each slice that had an address: it was gone by the deadline of its term.
    fn check(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        let (mut terms, mut excused) = (0, 0);
        for pair in seen.slices.windows(2) {
            let [(_, addresses, token), (until, ..)] = pair else { continue };
            let Some(deadline) = seen.deadlines.get(token).filter(|_| !addresses.is_empty()) else {
                continue;
            };
            if until > deadline && seen.stood_still_before(*until) {
                excused += 1;
                continue;
            }
            assert!(until <= deadline, "token {token} until {until}, deadline {deadline}");
            terms += 1;
        }
        let tokens = seen.slices.iter().map(|(_, _, token)| *token);
        assert!(tokens.is_sorted(), "a smaller token was written");
        assert_eq!(seen.refused, 0, "a former leader wrote");
        assert!(seen.tokens.is_sorted());
        assert!(terms >= excused, "{excused} of {} terms were not checked", terms + excused);
        terms + excused
    }

    /// The longest time without a write after `from`, until `to`.
    fn gap(&self, from: f64, to: f64) -> f64 {
        let seen = self.seen.lock().unwrap();
        let near = seen.written.iter().filter(|at| (from..to).contains(at));
        let near: Vec<_> = near.copied().collect();
        near.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
    }
}

async fn requests_follow(store: Store) {
    let mut fleet = Fleet::new(TestEnv::new().await, store).await;
    for at in 0..PODS.len() {
        fleet.start(at);
    }
    let mut gaps: BTreeMap<Fault, Vec<f64>> = BTreeMap::new();
    let begin = Instant::now();
    for _ in 0..faults() {
        for fault in [Fault::Kill, Fault::Stop, Fault::Move, Fault::Hang] {
            let from = now();
            fleet.strike(fault).await;
            fleet.leader(now()).await;
            gaps.entry(fault).or_default().push(fleet.gap(from, now()) * 1000.0);
        }
    }
    let leader = fleet.leader(now()).await;
    eventually("the leader's pod alone has the label", async || {
        (fleet.labelled().await == [PODS[leader]]).then_some(())
    })
    .await;
    let terms = fleet.check();
    assert!(terms >= 4 * faults() - 1, "{terms} terms with a deadline");
    for (fault, gaps) in &mut gaps {
        gaps.sort_by(f64::total_cmp);
        let (median, last) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!("{fault:?}: {} times, median {median:.0} ms, longest {last:.0} ms", gaps.len());
    }
    let writes = fleet.seen.lock().unwrap().tokens.len();
    println!("{terms} terms, {writes} writes, {:.0} s", begin.elapsed().as_secs_f64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn requests_follow_the_leader_of_a_lock_on_nats() {
    requests_follow(Store::Nats(Server::start().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn requests_follow_the_leader_of_a_lock_on_kubernetes() {
    requests_follow(Store::Kubernetes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn requests_follow_the_leader_of_a_lock_in_a_database() {
    requests_follow(Store::Postgres(PostgresServer::start(&[]).await)).await;
}

/// The slice keeps the address, and the next leader replaces it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_api_server_that_hangs_delays_no_end_of_a_term() {
    let env = TestEnv::on(Arc::new(KubeServer::start(&[]).await)).await;
    let server = Arc::clone(&env.server);
    let mut fleet = Fleet::new(env, Store::Nats(Server::start().await)).await;
    fleet.start(0);
    assert_eq!(fleet.leader(0.0).await, 0);
    server.pause();
    let candidate = fleet.candidates[0].take().expect("it runs");
    candidate.signal("TERM");
    let code = tokio::task::spawn_blocking(|| candidate.wait()).await.unwrap();
    assert_eq!(code, Some(143), "while the API server hangs");
    server.resume();
    fleet.start(1);
    assert_eq!(fleet.leader(now()).await, 1);
    fleet.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_service_that_cannot_follow_is_refused_before_the_campaign() {
    let env = TestEnv::new().await;
    let core = format!("/api/v1/namespaces/{}", env.namespace);
    let run = |more: &[&str], says: &str| {
        let flags = ["run", NAME, "--service", NAME, "--pod", "p0"];
        env.expect_refusal(&[&flags, more, &["--", "true"]].concat(), says, 1);
    };
    let none = format!("no Service {}/{NAME}: create it, without a selector", env.namespace);
    run(&[], &none);
    let spec = json!({ "selector": { "app": "a" }, "ports": [{ "port": 80 }] });
    let service = json!({ "metadata": { "name": NAME }, "spec": spec });
    env.post(&format!("{core}/services"), service).await;
    run(&[], "has a selector");
    run(&["--leader-label", "role"], "cannot be a label");
}
