//! Takeovers and load on a Kubernetes Lease, ours beside client-go's, in turn on the same API server: lease 5 s, renew
//! deadline 4 s, retry 1 s.
//!
//! Ours run in this process, each on a runtime and a connection of its own, so a crash is a runtime that is gone;
//! client-go's are processes.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use incumbent::kubernetes::{Cluster, LeaseTiming};
use incumbent::{Election, new_election};
use incumbent_test_support::{KubeServer, go_program};
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_secs(5);
const TRIALS: u32 = 6;
const STANDBYS: usize = 49;
const STEADY: Duration = Duration::from_secs(30);
/// Longer than any of them should take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    ClientGo,
}

#[derive(Clone, Copy)]
enum End {
    Release,
    Crash,
}

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(KubeServer::start(&[]));
    let go = go_program("clientgo");
    let scene = Scene { server: &server, go: go.to_str().expect("a path"), runtime: &runtime };
    for end in [End::Release, End::Crash] {
        let mut took = [Vec::new(), Vec::new()];
        for trial in 0..TRIALS {
            for (kind, took) in [Kind::Ours, Kind::ClientGo].into_iter().zip(&mut took) {
                took.push(scene.takeover(kind, end, trial));
            }
        }
        for (kind, mut took) in [Kind::Ours, Kind::ClientGo].into_iter().zip(took) {
            took.sort_unstable();
            let [min, median, max] = [0, took.len() / 2, took.len() - 1].map(|i| took[i]);
            println!("takeover after {end}, {kind}: {min:.3?} / {median:.3?} / {max:.3?}");
        }
    }
    for kind in [Kind::Ours, Kind::ClientGo] {
        let rate = scene.steady(kind);
        println!(
            "requests on the Lease, 1 leader + {STANDBYS} stand-bys, {kind}: {rate:.2} a second"
        );
    }
}

struct Scene<'a> {
    server: &'a KubeServer,
    go: &'a str,
    runtime: &'a Runtime,
}

impl Scene<'_> {
    fn start(&self, kind: Kind, lease: &str, identity: &str) -> Campaigner {
        match kind {
            Kind::Ours => Campaigner::ours(self.server, lease, identity),
            Kind::ClientGo => Campaigner::client_go(self.go, self.server, lease, identity),
        }
    }

    /// How long after the end of one leader another one leads. Trials strike at different ages of the last renewal.
    fn takeover(&self, kind: Kind, end: End, trial: u32) -> Duration {
        let lease = format!("{kind}-{end}-{trial}").replace(' ', "-");
        let first = self.start(kind, &lease, "first");
        first.won();
        let second = self.start(kind, &lease, "second");
        // Until it has seen the first, and on by its part of a lease.
        thread::sleep(LEASE / 2 + LEASE * trial / TRIALS);
        let began = Instant::now();
        match end {
            End::Release => first.stop(),
            End::Crash => first.crash(),
        }
        let took = second.won().saturating_duration_since(began);
        second.stop();
        took
    }

    /// Requests a second on Leases while nothing happens.
    fn steady(&self, kind: Kind) -> f64 {
        let lease = format!("{kind}-steady");
        let leader = self.start(kind, &lease, "leader");
        leader.won();
        let name = |number| format!("stand-by-{number}");
        let standbys: Vec<_> =
            (0..STANDBYS).map(|number| self.start(kind, &lease, &name(number))).collect();
        thread::sleep(LEASE * 2);
        let (before, began) = (self.requests(), Instant::now());
        thread::sleep(STEADY);
        let rate = (self.requests() - before) / began.elapsed().as_secs_f64();
        standbys.into_iter().for_each(Campaigner::crash);
        leader.stop();
        rate
    }

    /// As the API server counts them; a watch counts when it ends.
    fn requests(&self) -> f64 {
        let text = self.runtime.block_on(async {
            let cluster = Cluster::from_kubeconfig(self.server.kubeconfig(), None).await;
            let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
            cluster.expect("a cluster").client().request_text(request).await.expect("metrics")
        });
        let of_leases = text.lines().filter(|line| {
            line.starts_with("apiserver_request_total{") && line.contains("resource=\"leases\"")
        });
        of_leases.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

struct Campaigner {
    program: Program,
    wins: Receiver<Instant>,
}

enum Program {
    Ours(Runtime, Election),
    ClientGo(Child),
}

impl Campaigner {
    fn ours(server: &KubeServer, lease: &str, identity: &str) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (won, wins) = channel();
        let timing = LeaseTiming::new(LEASE, LEASE * 4 / 5, LEASE / 5).expect("client-go's checks");
        let election = runtime.block_on(async {
            let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await;
            new_election(lease, cluster.expect("a cluster").lease_lock().timing(timing))
                .identity(identity)
                .on_won(move |leadership| {
                    let _ = won.send(Instant::now());
                    async move {
                        leadership.ended().await;
                    }
                })
                .start()
        });
        Self { program: Program::Ours(runtime, election.expect("an election")), wins }
    }

    fn client_go(go: &str, server: &KubeServer, lease: &str, identity: &str) -> Self {
        let mut child = Command::new(go)
            .arg("-kubeconfig")
            .arg(server.kubeconfig())
            .args(["-name", lease, "-identity", identity])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("client-go's campaigner");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (won, wins) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line == "won" && won.send(Instant::now()).is_err() {
                    return;
                }
            }
        });
        Self { program: Program::ClientGo(child), wins }
    }

    fn won(&self) -> Instant {
        self.wins.recv_timeout(PATIENCE).expect("a win in time")
    }

    fn stop(self) {
        match self.program {
            Program::Ours(runtime, election) => {
                runtime.block_on(election.stop());
                runtime.shutdown_background();
            }
            Program::ClientGo(mut child) => {
                let id = child.id().to_string();
                Command::new("kill").arg(id).status().expect("kill");
                child.wait().expect("an end");
            }
        }
    }

    fn crash(self) {
        match self.program {
            Program::Ours(runtime, election) => {
                runtime.shutdown_background();
                drop(election);
            }
            Program::ClientGo(mut child) => {
                child.kill().expect("SIGKILL");
                child.wait().expect("an end");
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::ClientGo => "client-go",
        })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Release => "a release",
            Self::Crash => "a crash",
        })
    }
}
