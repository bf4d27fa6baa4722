//! Takeovers and load on etcd, ours beside Go's `concurrency.Election`, in turn on one member that
//! does not sync its disk: a lease, or a session, of 5 s. Then 10,000 elections of one process,
//! with 60 s. `ELECTIONS=20000` measures that many, and nothing else.
//!
//! Ours run in this process, each on a runtime and a connection of its own, so a crash is a runtime
//! that is gone; those of etcd are processes.

mod support;
#[path = "support/load.rs"]
mod usage;

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use incumbent::etcd::Etcd;
use incumbent::{Election, new_election};
use incumbent_test_support::{EtcdCluster, go_program};
use tokio::runtime::Runtime;

use support::{Candidate, End, load, show, takeover};
use usage::{cpu_ticks, number, resident_kib};

const LEASE: Duration = Duration::from_secs(5);
const TRIALS: u32 = 6;
const STANDBYS: usize = 49;
const STEADY: Duration = Duration::from_secs(30);
const KINDS: [&str; 2] = ["ours", "etcd's"];
/// Of each of many elections: the default of a session of etcd.
const LONG: Duration = Duration::from_secs(60);
const MANY: usize = 10_000;
/// How many of ours begin at once.
const AT_ONCE: usize = 100;
/// How long all may take to be led.
const ALL_LED: Duration = Duration::from_secs(240);

/// Messages of clients and to them: a renewal of a session, or of a watch, is no call of its own.
const RECEIVED: &str = "grpc_server_msg_received_total{";
const SENT: &str = "grpc_server_msg_sent_total{";

struct Bench {
    runtime: Runtime,
    server: EtcdCluster,
}

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(EtcdCluster::start(1, &[]));
    let bench = Bench { runtime, server };
    let go = go_program("etcd");
    let start = |kind: &str, name: &str, identity: &str| match kind {
        "ours" => bench.ours(name, identity),
        _ => Candidate::other(&mut bench.theirs(&go, name, LEASE, identity), |_| {}),
    };
    if let Some(many) = number("ELECTIONS") {
        return bench.many(&go, many);
    }
    for end in [End::Release, End::Crash] {
        let mut took = [Vec::new(), Vec::new()];
        for trial in 0..TRIALS {
            for (kind, took) in KINDS.into_iter().zip(&mut took) {
                let age = LEASE / 2 + LEASE * trial / TRIALS;
                took.push(takeover(|identity| start(kind, kind, identity), age, end));
            }
        }
        for (kind, mut took) in KINDS.into_iter().zip(took) {
            show(&format!("takeover after {end:?}, {kind}"), &mut took);
        }
    }
    for kind in KINDS {
        let mut took = Vec::new();
        for _ in 0..TRIALS {
            let leader = start(kind, kind, "first");
            leader.won();
            let standby = start(kind, kind, "second");
            thread::sleep(LEASE / 2);
            let began = Instant::now();
            bench.take_away(kind);
            took.push(standby.won().saturating_duration_since(began));
            standby.end(End::Release);
            leader.end(End::Release);
        }
        show(&format!("takeover after a lost lease, or a deleted key, {kind}"), &mut took);
    }
    for kind in KINDS {
        let sent = RefCell::new(Vec::new());
        let count = || {
            sent.borrow_mut().push(bench.metric(SENT));
            bench.metric(RECEIVED)
        };
        let start = |identity: &str| start(kind, kind, identity);
        let received = load(start, STANDBYS, LEASE * 2, STEADY, count);
        let sent = (sent.borrow()[1] - sent.borrow()[0]) / STEADY.as_secs_f64();
        println!(
            "1 leader and {STANDBYS} standbys, {kind}: {received:.2} messages a second received, \
             {sent:.2} sent"
        );
    }
    bench.many(&go, MANY);
}

impl Bench {
    fn etcd(&self, max_lease: Duration) -> Etcd {
        Etcd::new(self.server.endpoints()).max_lease(max_lease)
    }

    fn ours(&self, name: &str, identity: &str) -> Candidate {
        Candidate::ours(async || {
            let lock = self.etcd(LEASE).lock().expect("a lock");
            new_election(name, lock).identity(identity).lease(LEASE)
        })
    }

    fn theirs(&self, go: &Path, name: &str, ttl: Duration, identity: &str) -> Command {
        let mut command = Command::new(go);
        command.args(["-endpoints", &self.server.endpoints().join(",")]);
        command.args(["-name", name, "-identity", identity]);
        command.args(["-ttl", &ttl.as_secs().to_string()]);
        command
    }

    fn metric(&self, name: &str) -> f64 {
        self.runtime.block_on(self.server.metric(name))
    }

    /// Revokes the lease of the oldest key of etcd's election; deletes the key of ours.
    fn take_away(&self, kind: &str) {
        let ctl = |args: &[&str]| self.runtime.block_on(self.server.ctl(args));
        if kind == "ours" {
            ctl(&["del", "incumbent/ours"]);
            return;
        }
        let words = ["get", kind, "--prefix", "--sort-by=CREATE", "--limit=1", "--keys-only"];
        let key = ctl(&words);
        let lease = key.trim().rsplit('/').next().expect("a key NAME/LEASE").to_owned();
        ctl(&["lease", "revoke", &lease]);
    }

    fn many(&self, go: &Path, count: usize) {
        self.many_of_ours(count);
        self.many_of_theirs(go, count);
    }

    fn many_of_ours(&self, count: usize) {
        let before = resident_kib();
        let began = Instant::now();
        let elections = self.runtime.block_on(async {
            let lock = self.etcd(LONG).lock().expect("a lock");
            let mut elections: Vec<Election> = Vec::with_capacity(count);
            while elections.len() < count {
                for _ in 0..AT_ONCE.min(count - elections.len()) {
                    let name = format!("many-{}", elections.len());
                    elections.push(new_election(name, lock.clone()).start().expect("a start"));
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            elections
        });
        let led = || elections.iter().filter(|one| one.is_leader()).count();
        let cpu = || cpu_ticks() as f64 / 100.0;
        self.observe("ours", count, began, led, || resident_kib() - before, cpu);
        self.runtime.block_on(async {
            for election in elections {
                drop(election);
            }
        });
    }

    fn many_of_theirs(&self, go: &Path, count: usize) {
        let mut command = self.theirs(go, "many", LONG, "first");
        command.args(["-elections", &count.to_string()]).stdout(Stdio::piped());
        command.stderr(Stdio::null()); // it is told that it sends too many requests
        let began = Instant::now();
        let mut child: Child = command.spawn().expect("a process");
        let led = Arc::new(AtomicUsize::new(0));
        let (lines, seen) = (child.stdout.take().expect("piped"), Arc::clone(&led));
        thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                let now = line.strip_prefix("led ").and_then(|count| count.parse().ok());
                seen.store(now.unwrap_or(0), Ordering::Relaxed);
            }
        });
        let id = child.id().to_string();
        let resident = || usage::resident_kib_of(&id);
        let cpu = || usage::cpu_ticks_of(&id) as f64 / 100.0;
        let led = || led.load(Ordering::Relaxed);
        self.observe("etcd's", count, began, led, resident, cpu);
        child.kill().expect("SIGKILL");
        child.wait().expect("an end");
    }

    /// Waits until all are led, and prints what they cost.
    fn observe(
        &self,
        kind: &str,
        count: usize,
        began: Instant,
        led: impl Fn() -> usize,
        resident_kib: impl Fn() -> usize,
        cpu: impl Fn() -> f64,
    ) {
        while led() < count && began.elapsed() < ALL_LED {
            thread::sleep(Duration::from_millis(100));
        }
        println!("{count} elections, {kind}: {} led after {:.1?}", led(), began.elapsed());
        thread::sleep(LONG / 3); // all renewals are spread
        let names = [RECEIVED, SENT, "process_cpu_seconds_total"];
        let (metrics, busy) = (names.map(|name| self.metric(name)), cpu());
        let (begin, mut least) = (Instant::now(), count);
        while begin.elapsed() < STEADY {
            thread::sleep(Duration::from_millis(250));
            least = least.min(led());
        }
        let seconds = begin.elapsed().as_secs_f64();
        let [received, sent, server] =
            [0, 1, 2].map(|i| (self.metric(names[i]) - metrics[i]) / seconds);
        println!(
            "  at least {least} led for {STEADY:?}; {received:.0} messages received and {sent:.0} \
             sent a second; CPU of a core: {:.0} %, and {:.0} % of the member's; resident: {:.1} \
             KiB each, and the member {:.0} MiB",
            100.0 * (cpu() - busy) / seconds,
            100.0 * server,
            resident_kib() as f64 / count as f64,
            self.metric("process_resident_memory_bytes") / f64::from(1 << 20),
        );
    }
}
