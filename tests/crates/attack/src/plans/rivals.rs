//! Candidates of other programs, cut off as ours are in `takeover`: keepalived, and etcd's own
//! election.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent_test_support::{Process, etcd_programs, go_program};
use tokio::time::{Instant, sleep};

use super::env::TestEnv;
use super::takeover::ranks;
use crate::faults::net::{Net, Node};

/// How many candidates there are, as of ours.
const CANDIDATES: usize = 3;
/// How long one has to lead alone before it is struck.
const CALM: Duration = Duration::from_secs(2);
/// At which part of this span after that it is struck: the longest interval of a renewal.
const PHASE: Duration = Duration::from_secs(1);
/// How often the logs are read: the error of a figure.
const GLANCE: Duration = Duration::from_millis(1);
/// For how long a candidate that is cut off is watched after its successor leads.
const WATCH: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(60);
/// How long a fault takes, roughly.
pub const EXPECTED: Duration = Duration::from_secs(9);

/// What campaigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Rival {
    /// Go's `concurrency.Election` with a session of 2 s, the minimum of a member by default.
    Etcd,
    /// Go's `concurrency.Election` with a session of 1 s.
    EtcdFast,
    /// An address of keepalived, with adverts each second.
    Keepalived,
    /// An address of keepalived, with adverts each 100 ms.
    KeepalivedFast,
}

impl Rival {
    /// What its log says when it leads, and when it does not any more.
    fn signs(self) -> [&'static str; 2] {
        match self {
            Self::Keepalived | Self::KeepalivedFast => {
                ["Entering MASTER STATE", "Entering BACKUP STATE"]
            }
            Self::Etcd | Self::EtcdFast => ["won\n", "lost\n"],
        }
    }

    fn start(self, env: &TestEnv, index: usize, log: &Path) -> io::Result<Process> {
        let node = Node::Candidate(index);
        match self {
            Self::Keepalived | Self::KeepalivedFast => {
                let fast = self == Self::KeepalivedFast;
                let file = |name: &str| log.with_extension(name).display().to_string();
                fs::write(file("conf"), keepalived(address(&env.net, node)?, fast))?;
                let [config, pid, vrrp] = ["conf", "pid", "vrrp"].map(file);
                let words = ["-n", "-l", "-P", "-f", &config, "-p", &pid, "-r", &vrrp];
                env.net.spawn(node, Path::new("keepalived"), &owned(&words), &[], log)
            }
            Self::Etcd | Self::EtcdFast => {
                let member = env.orders.etcd.clone().unwrap_or_default();
                let identity = format!("r{index}");
                let words = ["-endpoints", &member, "-name", "takeover", "-identity", &identity];
                env.net.spawn(node, &go_program("etcd"), &owned(&words), &[], log)
            }
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn address(net: &Net, node: Node) -> io::Result<Ipv4Addr> {
    net.address(node).ok_or_else(|| io::Error::other("no network namespaces"))
}

/// An address that the hosts of this network share.
fn keepalived(own: Ipv4Addr, fast: bool) -> String {
    let [a, b, c, _] = own.octets();
    let (version, interval) = if fast { (3, "0.1") } else { (2, "1") };
    format!(
        "vrrp_instance address {{
             version {version}
             state BACKUP
             interface eth0
             virtual_router_id 5
             priority 100
             advert_int {interval}
             nopreempt
             virtual_ipaddress {{
                 {a}.{b}.{c}.250/24 dev eth0
             }}
         }}"
    )
}

/// Starts a member of etcd in the place of the first server, and returns its address for clients.
/// A fast one elects its leader within 500 ms, and so grants sessions of 1 s instead of 2 s.
pub fn start_etcd(env: &TestEnv, fast: bool) -> io::Result<(Process, String)> {
    let own = address(&env.net, Node::Server(0))?;
    let (client, peer) = (format!("http://{own}:2379"), format!("http://{own}:2380"));
    let data = env.orders.directory.join("etcd").display().to_string();
    let cluster = format!("default={peer}");
    let words = [
        ["--data-dir", &data],
        ["--listen-client-urls", &client],
        ["--advertise-client-urls", &client],
        ["--listen-peer-urls", &peer],
        ["--initial-advertise-peer-urls", &peer],
        ["--initial-cluster", &cluster],
        ["--log-level", "warn"],
        ["--heartbeat-interval", if fast { "50" } else { "100" }],
        ["--election-timeout", if fast { "500" } else { "1000" }],
    ];
    let log = env.orders.directory.join("etcd.log");
    let program = etcd_programs().join("etcd");
    let words = owned(&words.concat());
    let member = env.net.spawn(Node::Server(0), &program, &words, &[], &log)?;
    Ok((member, format!("{own}:2379")))
}

/// Cuts the leader's link again and again, and prints how long it took until another one led, and
/// for how long the former one did as well.
pub async fn replace(env: &mut TestEnv, rival: Rival, times: usize) -> io::Result<()> {
    let _member = match rival {
        Rival::Etcd | Rival::EtcdFast => {
            let (member, address) = start_etcd(env, rival == Rival::EtcdFast)?;
            env.orders.etcd = Some(address);
            Some(member)
        }
        Rival::Keepalived | Rival::KeepalivedFast => None,
    };
    let logs: Vec<_> = (0..CANDIDATES)
        .map(|index| env.orders.directory.join(format!("rival{index}.log")))
        .collect();
    let processes = logs.iter().enumerate();
    let processes = processes.map(|(index, log)| rival.start(env, index, log));
    let processes = processes.collect::<io::Result<Vec<_>>>()?;
    let (mut spans, mut both) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let leader = await_leader(rival, &logs).await?;
        sleep(PHASE.mul_f64(env.rng.f64())).await;
        let struck = Instant::now();
        env.net.lossy(Node::Candidate(leader), 100)?;
        let (mut ended, mut replaced) = (None, None);
        loop {
            sleep(GLANCE).await;
            let (now, leaders) = (Instant::now(), leaders(rival, &logs));
            if !leaders.contains(&leader) {
                ended.get_or_insert(now);
            }
            if leaders.iter().any(|one| *one != leader) {
                replaced.get_or_insert(now);
            }
            match (replaced, ended) {
                (Some(_), Some(_)) => break,
                (Some(at), None) if now - at > WATCH => break,
                (None, _) if now - struck > LIMIT => {
                    return Err(io::Error::other(format!("no successor within {LIMIT:?}")));
                }
                _ => {}
            }
        }
        let replaced = replaced.unwrap_or(struck);
        let end = ended.unwrap_or(replaced + WATCH);
        spans.push(replaced - struck);
        both.push(end.saturating_duration_since(replaced));
        env.net.heal()?;
    }
    drop(processes);
    println!("\n| | times | median | p90 | max |\n|---|---|---|---|---|");
    for (what, spans) in [("until another led", spans), ("two led", both)] {
        let [median, most, max] = ranks(spans);
        println!("| {what} | {times} | {median} | {most} | {max} |");
    }
    Ok(())
}

/// Which candidates say that they lead.
fn leaders(rival: Rival, logs: &[PathBuf]) -> Vec<usize> {
    let [won, lost] = rival.signs();
    let leads = |log: &PathBuf| {
        let log = fs::read_to_string(log).unwrap_or_default();
        log.rfind(won) > log.rfind(lost)
    };
    logs.iter().enumerate().filter(|(_, log)| leads(log)).map(|(index, _)| index).collect()
}

/// Waits until one candidate has led alone for a while.
async fn await_leader(rival: Rival, logs: &[PathBuf]) -> io::Result<usize> {
    let (began, mut since, mut last) = (Instant::now(), Instant::now(), Vec::new());
    while began.elapsed() < LIMIT {
        let leaders = leaders(rival, logs);
        if leaders != last {
            (since, last) = (Instant::now(), leaders);
        }
        if let ([leader], true) = (&last[..], since.elapsed() > CALM) {
            return Ok(*leader);
        }
        sleep(GLANCE * 10).await;
    }
    let log = logs.first().map(|log| fs::read_to_string(log).unwrap_or_default());
    Err(io::Error::other(format!("none led alone within {LIMIT:?}: {}", log.unwrap_or_default())))
}
