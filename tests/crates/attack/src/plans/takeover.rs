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
use crate::load::fleet::Kind;
use crate::record::journal::now;

/// How many candidates there are: the voters of a quorum, too.
const CANDIDATES: usize = 3;
/// How long a new fleet may take until it has a leader, beside some leases.
const FIRST: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The leases, in milliseconds, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "250,500,1000,5000")]
    leases: Vec<u64>,
    /// Faults of each kind, at each lease.
    #[arg(long, default_value_t = 30)]
    times: usize,
    /// The nats-servers: 1 or 3, in a cluster.
    #[arg(long, default_value_t = 1)]
    servers: usize,
    /// The candidates are the voters of a quorum, and use no server.
    #[arg(long)]
    quorum: bool,
    /// The lock is a member of etcd.
    #[arg(long, conflicts_with = "quorum")]
    etcd: bool,
    /// Instead of ours, the candidates are those of another program, and only cut off.
    #[arg(long, value_enum)]
    rival: Option<Rival>,
    /// That program, or the member of etcd, detects faults faster than it does by default.
    #[arg(long)]
    fast: bool,
    /// Instead of faults: for so many seconds at each lease and load, count the terms that are
    /// lost.
    #[arg(long)]
    calm: Option<u64>,
    /// What the machine does meanwhile.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,cpu,disk")]
    loads: Vec<Load>,
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
    let directory = tempfile::tempdir()?;
    let longest = options.leases.iter().copied().max().unwrap_or_default();
    let setup = Setup {
        servers: options.servers,
        candidates: CANDIDATES,
        ttl: longest.max(1_000),
        loopback: false,
        disks: false,
    };
    let seed = fastrand::u64(..);
    let mut env = TestEnv::start(&setup, program, directory.path(), seed).await?;
    let _member = if options.etcd || options.rival == Some(Rival::Etcd) {
        let (member, address) = rivals::start_etcd(&env, options.fast)?;
        env.orders.etcd = Some(address);
        Some(member)
    } else {
        None
    };
    if let Some(rival) = options.rival {
        println!("{rival:?}, fast: {}; {}", options.fast, machine());
        rivals::replace(&mut env, rival, options.fast, options.times).await?;
        println!("\n{}", machine());
        return Ok(ExitCode::SUCCESS);
    }
    if options.quorum {
        let members = (0..CANDIDATES).map(|index| env.net.address(env.fleet[index].node()));
        env.orders.quorum = members.collect::<Option<_>>().ok_or_else(|| {
            io::Error::other("no network namespaces, so no address for each voter")
        })?;
    }
    let lock = match (options.quorum, options.servers) {
        (true, _) => "a quorum of three".to_owned(),
        (false, _) if options.etcd => format!("etcd, fast: {}", options.fast),
        (false, servers) => format!("NATS, servers: {servers}"),
    };
    println!("{lock}; {}", machine());
    match options.calm {
        None => {
            println!("\n| lease | leader | times | median | p90 | max |\n|---|---|---|---|---|---|")
        }
        Some(_) => println!(
            "\n| lease | load | seconds | terms lost | messages/s |\n|---|---|---|---|---|"
        ),
    }
    let mut failures = Vec::new();
    for &lease in &options.leases {
        let measured = match options.calm {
            None => replace(&mut env, lease, options.times).await,
            Some(seconds) => wait(&mut env, lease, seconds, options).await,
        };
        failures.extend(measured.err().map(|error| format!("{lease} ms: {error}")));
    }
    env.dismiss().await?;
    env.replay();
    let report = env.judge.report(true);
    println!("\n{} terms; {}", report.terms, machine());
    Ok(super::verdict(&report, &failures))
}

/// The load of the machine, which says how far the figures can be trusted.
fn machine() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("cores: {cores}, load averages: {load}")
}

/// Has a fleet with this lease, which has a leader.
async fn new_fleet(env: &mut TestEnv, lease: u64) -> io::Result<usize> {
    env.orders.lease = lease;
    env.new_fleet(Kind::Proven).await?;
    leader(env).await
}

async fn leader(env: &mut TestEnv) -> io::Result<usize> {
    let limit = FIRST + env.lease() * 4;
    let leader = env.await_leader(limit, |_| true).await?;
    leader.ok_or_else(|| io::Error::other(format!("no leader within {limit:?}")))
}

/// Strikes the leader again and again, and prints how long it took until another one worked.
async fn replace(env: &mut TestEnv, lease: u64, times: usize) -> io::Result<()> {
    new_fleet(env, lease).await?;
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
    let leader = leader(env).await?;
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

/// Prints how many terms were lost though nothing was wrong, and what the election cost.
async fn wait(env: &mut TestEnv, lease: u64, seconds: u64, options: &Options) -> io::Result<()> {
    for &load in &options.loads {
        new_fleet(env, lease).await?;
        let busy = Busy::begin(env, load);
        let lost = |report: &Report| report.losses.values().sum::<u64>();
        let (lost_before, messages_before) = (lost(&env.judge.report(false)), messages(env).await);
        env.pass(Duration::from_secs(seconds)).await?;
        let terms = lost(&env.judge.report(false)) - lost_before;
        // What stores the load is not the election's.
        let messages = match (messages(env).await, messages_before, load) {
            (_, _, Load::Disk) => "-".to_owned(),
            (Some(now), Some(before), _) => format!("{:.0}", (now - before) / seconds as f64),
            _ => "?".to_owned(),
        };
        drop(busy);
        println!("| {lease} ms | {load:?} | {seconds} | {terms} | {messages} |");
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
