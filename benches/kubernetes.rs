//! Takeovers and load on a Kubernetes Lease, ours beside client-go's, in turn on the same API
//! server: lease 5 s, renew deadline 4 s, retry 1 s; and the first leader of a new Lease, which
//! ours find declared new.
//!
//! Ours run in this process, each on a runtime and a connection of its own, so a crash is a runtime
//! that is gone; client-go's are processes.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use incumbent::kubernetes::{Cluster, LeaseTiming};
use incumbent::new_election;
use incumbent_test_support::{KubeServer, go_program};
use tokio::runtime::Runtime;

use support::{Candidate, End, load, show, takeover};

const LEASE: Duration = Duration::from_secs(5);
const TRIALS: u32 = 6;
const FIRSTS: u32 = 20;
const STANDBYS: usize = 49;
const STEADY: Duration = Duration::from_secs(30);
const KINDS: [&str; 2] = ["ours", "client-go"];

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(KubeServer::start(&[]));
    let go = go_program("clientgo");
    let start = |kind: &str, lease: &str, identity: &str| {
        if kind == "ours" {
            ours(&server, lease, identity)
        } else {
            client_go(&go, &server, lease, identity)
        }
    };
    let mut took = [Vec::new(), Vec::new()];
    for trial in 0..FIRSTS {
        for (kind, took) in KINDS.into_iter().zip(&mut took) {
            let lease = format!("{kind}-new-{trial}");
            if kind == "ours" {
                runtime.block_on(create(&server, &lease));
            }
            let began = Instant::now();
            let first = start(kind, &lease, "first");
            took.push(first.won().saturating_duration_since(began));
            first.end(End::Release);
        }
    }
    for (kind, mut took) in KINDS.into_iter().zip(took) {
        show(&format!("first leader of a new Lease, {kind}"), &mut took);
    }
    for end in [End::Release, End::Crash] {
        let mut took = [Vec::new(), Vec::new()];
        for trial in 0..TRIALS {
            for (kind, took) in KINDS.into_iter().zip(&mut took) {
                let lease = format!("{kind}-{end:?}-{trial}").to_lowercase();
                // Until the second has seen the first, and on by its part of a lease.
                let age = LEASE / 2 + LEASE * trial / TRIALS;
                took.push(takeover(|identity| start(kind, &lease, identity), age, end));
            }
        }
        for (kind, mut took) in KINDS.into_iter().zip(took) {
            show(&format!("takeover after {end:?}, {kind}"), &mut took);
        }
    }
    for kind in KINDS {
        let lease = format!("{kind}-steady");
        let requests = || runtime.block_on(requests(&server));
        let start = |identity: &str| start(kind, &lease, identity);
        let rate = load(start, STANDBYS, LEASE * 2, STEADY, requests);
        println!(
            "requests on the Lease, 1 leader and {STANDBYS} standbys, {kind}: {rate:.2} a second"
        );
    }
}

fn ours(server: &KubeServer, lease: &str, identity: &str) -> Candidate {
    let timing = LeaseTiming::new(LEASE, LEASE * 4 / 5, LEASE / 5).expect("client-go's checks");
    Candidate::ours(async || {
        let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await;
        new_election(lease, cluster.expect("a cluster").lease_lock().timing(timing))
            .identity(identity)
    })
}

fn client_go(go: &Path, server: &KubeServer, lease: &str, identity: &str) -> Candidate {
    let mut command = Command::new(go);
    command.arg("-kubeconfig").arg(server.kubeconfig());
    Candidate::other(command.args(["-name", lease, "-identity", identity]), |_| {})
}

async fn create(server: &KubeServer, lease: &str) {
    let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await.expect("a cluster");
    cluster.lease_lock().create(lease, LEASE).await.expect("a Lease");
}

/// Those on Leases so far, as the API server counts them; a watch counts when it ends.
async fn requests(server: &KubeServer) -> f64 {
    let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await.expect("a cluster");
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = cluster.client().request_text(request).await.expect("metrics");
    let of_leases = text.lines().filter(|line| {
        line.starts_with("apiserver_request_total{") && line.contains("resource=\"leases\"")
    });
    of_leases.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
