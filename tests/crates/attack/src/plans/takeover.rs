//! How soon a leader is replaced whose host is gone, at each lease, and what a short lease costs
//! while nothing is wrong.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use super::env::{Setup, TestEnv};
use super::rivals::{self, Rival};
use crate::judge::Report;
use crate::record::journal::now;

/// How many candidates there are: the voters of a quorum, too.
const CANDIDATES: usize = 3;
/// How long a new fleet may take until it has a leader, beside some leases.
const FIRST: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The locks of our candidates, one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nats,nats-3,quorum,etcd")]
    locks: Vec<LockKind>,
    /// The leases, in milliseconds, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "250,500,1000,5000")]
    leases: Vec<u64>,
    /// The candidates of other programs. They are only cut off.
    #[arg(long, value_enum, value_delimiter = ',')]
    rivals: Vec<Rival>,
    /// Faults of each kind, at each lease.
    #[arg(long, default_value_t = 30)]
    times: usize,
    /// Instead of faults: for this many seconds at each load, count the terms that are lost, of an
    /// election for each lease, all at once.
    #[arg(long, conflicts_with = "rivals")]
    calm: Option<u64>,
    /// What the machine does meanwhile.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,cpu,disk")]
    loads: Vec<Load>,
}

/// Where our candidates elect their leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LockKind {
    /// One nats-server.
    Nats,
    /// A cluster of three.
    #[value(name = "nats-3")]
    Nats3,
    /// The candidates are the voters of a quorum, and use no server.
    Quorum,
    /// A member of etcd, which keeps no lease below a second: the least other is measured.
    Etcd,
}

/// What keeps the machine busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Load {
    None,
    /// A busy process for each core.
    Cpu,
    /// The server stores 64 KiB messages as fast as it can.
    Disk,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Nothing passes the link of the leader's namespace, in either direction.
    Cut,
    /// The processes of the leader's namespace are stopped, with their connections open.
    Freeze,
}

/// Measures with candidates that are `program`.
pub async fn run(options: &Options, program: &Path) -> io::Result<ExitCode> {
    println!("it takes about {} minutes", options.expected().as_secs().div_ceil(60));
    println!("build: {BUILD}; {}", machine());
    let mut failures = Vec::new();
    let mut all = Report::default();
    for &lock in &options.locks {
        match measure(options, lock, program, &mut failures).await {
            Ok(mut report) => all.violations.append(&mut report.violations),
            Err(error) => failures.push(format!("{lock:?}: {error}")),
        }
    }
    for &rival in &options.rivals {
        let measured = against(options, rival, program).await;
        failures.extend(measured.err().map(|error| format!("{rival:?}: {error}")));
    }
    println!("\nall of it; {}", machine());
    Ok(super::verdict(&all, &failures))
}

/// What the figures are of.
const BUILD: &str = if cfg!(debug_assertions) { "development" } else { "release" };

impl Options {
    /// The leases that a lock keeps.
    fn leases(&self, lock: LockKind) -> Vec<u64> {
        let (least, most) = if lock == LockKind::Etcd { (1_000, 1) } else { (0, usize::MAX) };
        self.leases.iter().copied().filter(|lease| *lease >= least).take(most).collect()
    }

    /// How long all of it takes, roughly.
    fn expected(&self) -> Duration {
        let of_lock = |lock: &LockKind| match self.calm {
            Some(seconds) => Duration::from_secs((seconds + 5) * self.loads.len() as u64),
            None => {
                let fault = |lease| Duration::from_millis(1_200 + lease * 5 / 2);
                let leases = self.leases(*lock).into_iter();
                leases.map(|lease| fault(lease) * 2 * self.times as u32).sum()
            }
        };
        let rivals = rivals::EXPECTED * (self.times * self.rivals.len()) as u32;
        self.locks.iter().map(of_lock).sum::<Duration>() + rivals
    }

    async fn env(
        &self,
        (servers, candidates): (usize, usize),
        program: &Path,
        directory: &Path,
    ) -> io::Result<TestEnv> {
        let longest = self.leases.iter().copied().max().unwrap_or_default();
        let setup =
            Setup { servers, candidates, ttl: longest.max(1_000), loopback: false, disks: false };
        TestEnv::start(&setup, program, directory, fastrand::u64(..)).await
    }
}

async fn against(options: &Options, rival: Rival, program: &Path) -> io::Result<()> {
    println!("\n{rival:?}; {}", machine());
    let directory = tempfile::tempdir()?;
    let mut env = options.env((1, CANDIDATES), program, directory.path()).await?;
    rivals::replace(&mut env, rival, options.times).await
}

/// Measures candidates of ours, and prints a row for each lease.
async fn measure(
    options: &Options,
    lock: LockKind,
    program: &Path,
    failures: &mut Vec<String>,
) -> io::Result<Report> {
    println!("\n{lock:?}; {}", machine());
    let leases = options.leases(lock);
    let fleets = if options.calm.is_some() { leases.len() } else { 1 };
    let servers = if lock == LockKind::Nats3 { 3 } else { 1 };
    let directory = tempfile::tempdir()?;
    let mut env = options.env((servers, CANDIDATES * fleets), program, directory.path()).await?;
    let _member = match lock {
        LockKind::Etcd => {
            let (member, address) = rivals::start_etcd(&env, false)?;
            env.orders.etcd = Some(address);
            Some(member)
        }
        _ => None,
    };
    env.orders.is_quorum = lock == LockKind::Quorum;
    match options.calm {
        Some(seconds) => calm(&mut env, &leases, seconds, &options.loads).await?,
        None => {
            println!(
                "\n| lease | leader | times | median | p90 | max |\n|---|---|---|---|---|---|"
            );
            for lease in leases {
                let measured = replace(&mut env, lease, options.times).await;
                failures
                    .extend(measured.err().map(|error| format!("{lock:?}, {lease} ms: {error}")));
            }
        }
    }
    env.dismiss().await?;
    env.replay();
    let report = env.judge.report(true);
    let broken = report.violations.len();
    println!("\n{} terms, {broken} broken promises; {}", report.terms, machine());
    Ok(report)
}

/// The load of the machine, which says how far the figures can be trusted.
fn machine() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("cores: {cores}, load averages: {load}")
}

async fn leader(env: &mut TestEnv) -> io::Result<usize> {
    let limit = FIRST + env.lease() * 4;
    let leader = env.await_leader(limit, |_| true).await?;
    leader.ok_or_else(|| io::Error::other(format!("no leader within {limit:?}")))
}

/// Strikes the leader again and again, and prints how long it took until another one worked.
async fn replace(env: &mut TestEnv, lease: u64, times: usize) -> io::Result<()> {
    env.new_fleets(&[lease], CANDIDATES).await?;
    for fault in [Fault::Cut, Fault::Freeze] {
        let mut spans = Vec::new();
        for _ in 0..times {
            spans.push(replaced(env, fault).await?);
        }
        let [median, most, max] = ranks(spans);
        println!("| {lease} ms | {fault:?} | {times} | {median} | {most} | {max} |");
    }
    Ok(())
}

/// The median, the greatest but for a tenth, and the maximum, in milliseconds.
pub(super) fn ranks(mut spans: Vec<Duration>) -> [u128; 3] {
    spans.sort_unstable();
    [0.5, 0.9, 1.0].map(|part: f64| {
        let index = (spans.len().saturating_sub(1) as f64 * part).round() as usize;
        spans.get(index).map_or(0, Duration::as_millis)
    })
}

/// From the fault to the first work of the successor.
async fn replaced(env: &mut TestEnv, fault: Fault) -> io::Result<Duration> {
    leader(env).await?;
    let phase = env.lease().mul_f64(env.rng.f64());
    env.pass(phase).await?;
    let leader = match env.leader() {
        Some(leader) => leader,
        None => leader(env).await?, // it has changed
    };
    let name = env.fleet[leader].name();
    let struck = now();
    match fault {
        Fault::Cut => env.net.lossy(env.fleet[leader].node(), 100)?,
        Fault::Freeze => env.fleet[leader].pause(),
    }
    let (end, limit) = (Instant::now(), FIRST + env.lease() * 4);
    let replaced = loop {
        env.pass(Duration::from_millis(20)).await?;
        if let Some(t) = env.judge.first_sign_since(struck, &name) {
            break t - struck;
        }
        if end.elapsed() > limit {
            return Err(io::Error::other(format!("{fault:?}: no successor within {limit:?}")));
        }
    };
    // Whether the former leader works on.
    env.pass(env.lease()).await?;
    match fault {
        Fault::Cut => env.net.heal()?,
        Fault::Freeze => env.fleet[leader].resume(),
    }
    Ok(Duration::from_nanos(replaced))
}

/// Prints how many terms were lost though nothing was wrong, and what all elections cost.
async fn calm(env: &mut TestEnv, leases: &[u64], seconds: u64, loads: &[Load]) -> io::Result<()> {
    println!("\n| load | seconds | lease: terms lost | messages/s of all |\n|---|---|---|---|");
    for &load in loads {
        let elections = env.new_fleets(leases, CANDIDATES).await?;
        env.await_leaders(elections.len(), FIRST).await?;
        let busy = Busy::begin(env, load);
        let lost = |env: &TestEnv| -> Vec<_> {
            elections.iter().map(|election| env.judge.lost(election)).collect()
        };
        let (lost_before, messages_before) = (lost(env), messages(env).await);
        env.pass(Duration::from_secs(seconds)).await?;
        let terms = lost(env).into_iter().zip(lost_before).map(|(now, before)| now - before);
        let terms = leases.iter().zip(terms).map(|(lease, terms)| format!("{lease} ms: {terms}"));
        let terms = terms.collect::<Vec<_>>().join(", ");
        // What stores the load is not the elections'.
        let messages = match (messages(env).await, messages_before, load) {
            (_, _, Load::Disk) => "-".to_owned(),
            (Some(now), Some(before), _) => format!("{:.0}", (now - before) / seconds as f64),
            _ => "?".to_owned(),
        };
        drop(busy);
        println!("| {load:?} | {seconds} | {terms} | {messages} |");
    }
    Ok(())
}

/// What all servers have received and sent so far.
async fn messages(env: &TestEnv) -> Option<f64> {
    let mut sum = 0.0;
    for server in &env.servers {
        let page = server.monitor("/varz").await?;
        sum += page["in_msgs"].as_f64()? + page["out_msgs"].as_f64()?;
    }
    Some(sum)
}

/// A load. It ends when it is dropped.
struct Busy {
    processes: Vec<Child>,
    stores: Option<tokio::task::JoinHandle<()>>,
}

impl Busy {
    fn begin(env: &TestEnv, load: Load) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let count = if load == Load::Cpu { cores } else { 0 };
        let spin = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().ok()
        };
        let stores = (load == Load::Disk).then(|| {
            let admin = env.admin.clone();
            tokio::spawn(async move { admin.store_garbage().await })
        });
        Self { processes: (0..count).filter_map(spin).collect(), stores }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Some(stores) = &self.stores {
            stores.abort();
        }
    }
}
