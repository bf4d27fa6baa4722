//! Three hosts, a server of the lock and a client, each in a network namespace: a network for the
//! address, and one for the lock.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use incumbent_test_support::{Namespace, Process, Version, find};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub const HOSTS: usize = 3;
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 5);
pub const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);
pub const LEASE: &str = "5s";
pub const PORT: u16 = 7000;
const SERVER: &str = "10.8.0.1:4222";
/// The test of this file that a leader runs.
const SERVE: &str = "virtual_ip::what_a_leader_serves";
/// Set for it.
pub const IS_LEADER: &str = "INCUMBENT_TEST_SERVES";

/// All of it.
pub struct Network {
    pub hosts: Vec<Host>,
    pub client: Namespace,
    switch: Namespace,
    _server: Option<Process>,
    directory: TempDir,
}

/// A host with `eth0` in the network of the address, and `eth1` in that of the lock.
pub struct Host {
    pub number: usize,
    pub namespace: Namespace,
    pub mac: [u8; 6],
    /// What campaigns there.
    pub candidate: Option<Process>,
}

impl Network {
    /// Why not, if there are no namespaces.
    pub fn create() -> Result<Self, String> {
        let switch = Namespace::create()?;
        for bridge in ["addresses", "locks"] {
            switch.ip(&format!("link add {bridge} type bridge"));
            switch.ip(&format!("link set {bridge} up"));
        }
        let join = |bridge: &str, host: &Namespace, interface: &str, port: &str, address: &str| {
            switch.cable(port, host, interface);
            switch.ip(&format!("link set {port} master {bridge}"));
            host.ip(&format!("address add {address}/24 dev {interface}"));
        };
        let client = Namespace::create()?;
        join("addresses", &client, "eth0", "client", "10.9.0.100");
        let mut hosts = Vec::new();
        for number in 0..HOSTS {
            let namespace = Namespace::create()?;
            let last = number + 11;
            join("addresses", &namespace, "eth0", &format!("a{number}"), &format!("10.9.0.{last}"));
            join("locks", &namespace, "eth1", &format!("l{number}"), &format!("10.8.0.{last}"));
            let mac = [2, 0, 0, 0, 0, u8::try_from(number).expect("few")];
            namespace.ip(&format!("link set eth0 address 02:00:00:00:00:0{number}"));
            hosts.push(Host { number, namespace, mac, candidate: None });
        }
        let directory = tempfile::tempdir().expect("a directory");
        let mut network = Self { hosts, client, switch, _server: None, directory };
        network.switch.ip("address add 10.8.0.1/24 dev locks");
        let store = network.file("jetstream");
        network._server = Some(network.start(
            &network.switch,
            &find(Version::default()),
            &["--addr", "10.8.0.1", "--port", "4222", "--jetstream", "--store_dir", &store],
        ));
        Ok(network)
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Starts a program there.
    pub fn start(&self, on: &Namespace, program: &Path, args: &[&str]) -> Process {
        let log = PathBuf::from(self.file("log"));
        Process::spawn("nsenter".as_ref(), &log, |command| {
            command.arg(format!("--net={}", on.path())).arg("--").arg(program).args(args);
            command.env(IS_LEADER, "1").env("RUST_BACKTRACE", "0");
        })
        .expect("nsenter of util-linux")
    }

    /// Starts a candidate for the address.
    pub fn campaign(&mut self, number: usize) {
        let ourselves = std::env::current_exe().expect("a program").display().to_string();
        let (virtual_ip, of_v6) = (format!("{ADDRESS}/24@eth0"), format!("{ADDRESS_V6}/64@eth0"));
        let identity = format!("host{number}");
        let words = [
            "run",
            "my_app",
            "--server",
            SERVER,
            "--lease",
            LEASE,
            "--virtual-ip",
            &virtual_ip,
            "--virtual-ip",
            &of_v6,
            "--identity",
            &identity,
            "--on-exit",
            "restart",
            "--",
            &ourselves,
            "--exact",
            SERVE,
            "--nocapture",
        ];
        let program = Path::new(env!("CARGO_BIN_EXE_incumbent"));
        let candidate = self.start(&self.hosts[number].namespace, program, &words);
        self.hosts[number].candidate = Some(candidate);
    }

    /// Starts keepalived for the address.
    pub fn keepalived(&mut self, number: usize) {
        let file = |name: &str| self.file(&format!("{name}{number}"));
        let config = format!(
            "vrrp_instance address {{
                 state BACKUP
                 interface eth0
                 virtual_router_id 5
                 priority 100
                 advert_int 1
                 nopreempt
                 virtual_ipaddress {{
                     {ADDRESS}/24 dev eth0
                 }}
             }}"
        );
        fs::write(file("config"), config).expect("a file");
        let (config, pid, vrrp) = (file("config"), file("pid"), file("vrrp"));
        let words = ["-n", "-l", "-P", "-f", &config, "-p", &pid, "-r", &vrrp];
        let daemon = self.start(&self.hosts[number].namespace, "keepalived".as_ref(), &words);
        self.hosts[number].candidate = Some(daemon);
    }

    /// `incumbent election move`, which is not waited for.
    pub fn move_leader(&self) -> Process {
        let program = Path::new(env!("CARGO_BIN_EXE_incumbent"));
        let words = ["election", "move", "my_app", "--server", SERVER];
        self.start(&self.switch, program, &words)
    }

    /// Cuts or mends the cable of a host to a network: `a` of the address, `l` of the lock.
    pub fn set_cable(&self, network: char, number: usize, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        self.switch.ip(&format!("link set {network}{number} {state}"));
    }

    /// All that was logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }
}

impl Host {
    /// Signals the candidate, and nothing that it started.
    pub fn signal(&self, signal: Signal) {
        if let Some(candidate) = &self.candidate {
            candidate.signal(signal);
        }
    }

    /// Signals the candidate and all that it started.
    pub fn signal_all(&self, signal: Signal) {
        self.tree().into_iter().for_each(|id| send(signal, id));
    }

    /// Suspends `run-traffic`, and nothing else.
    pub fn suspend_traffic(&self) {
        let is_traffic = |id: &u32| {
            fs::read(format!("/proc/{id}/cmdline"))
                .is_ok_and(|words| words.split(|byte| *byte == 0).any(|w| w == b"run-traffic"))
        };
        let traffic: Vec<_> = self.tree().into_iter().filter(is_traffic).collect();
        assert_eq!(traffic.len(), 1, "run-traffic: {traffic:?}");
        traffic.into_iter().for_each(|id| send(Signal::STOP, id));
    }

    /// The candidate and all that it started.
    fn tree(&self) -> Vec<u32> {
        let Some(candidate) = &self.candidate else { return Vec::new() };
        let mut tree = vec![candidate.id()];
        let parents = parents();
        // A child is listed after what is above it.
        let mut next = 0;
        while let Some(parent) = tree.get(next).copied() {
            tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| child));
            next += 1;
        }
        tree
    }
}

fn send(signal: Signal, id: u32) {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    let _ = kill_process(id.expect("a process"), signal); // it may have ended
}

/// All processes, each with its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let of_process = |entry: fs::DirEntry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        Some((id, rest.split(' ').nth(1)?.parse().ok()?))
    };
    entries.filter_map(of_process).collect()
}
