//! A network namespace for each process, joined by a bridge.
//!
//! Names bear the id of the harness's process, so that runs side by side do not meet, and what a
//! killed run left can be told and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use super::filter;
use super::net::{Listeners, Node, listeners_at};

/// What the names of our namespaces begin with, and those of our interfaces.
const NAMESPACE: &str = "incumbent-attack-";
const INTERFACE: &str = "ichs";

/// The ports of a server, each in its own namespace.
const PORTS: [u16; 3] = [4222, 6222, 8222];

/// The namespaces of a run. Dropping it removes them.
#[derive(Debug)]
pub struct Namespaces {
    run: u32,
    /// The third number of our addresses.
    subnet: u8,
    servers: usize,
    nodes: Vec<Node>,
    cuts: BTreeMap<Node, BTreeSet<Node>>,
    lossy: BTreeMap<Node, u8>,
    slowed: BTreeSet<Node>,
}

impl Namespaces {
    pub(super) fn new(servers: usize, candidates: usize, program: &Path) -> io::Result<Self> {
        let mut net = Self {
            run: std::process::id(),
            subnet: free_subnet()?,
            servers,
            nodes: Vec::new(),
            cuts: BTreeMap::new(),
            lossy: BTreeMap::new(),
            slowed: BTreeSet::new(),
        };
        let bridge = net.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        let gateway = format!("{}/24", net.address_of(1));
        ip(&["addr", "add", &gateway, "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        let nodes = (0..servers).map(Node::Server).chain((0..candidates).map(Node::Candidate));
        for node in nodes {
            net.nodes.push(node); // before it is made, so that half of one is removed, too
            net.add(node)?;
        }
        net.reach(program)?;
        for node in &net.nodes {
            tc(&["qdisc", "add", "dev", &net.outside(*node), "clsact"])?;
        }
        // Whether the kernel has the filters.
        if let Some(node) = net.nodes.first() {
            net.filter(*node, "ingress", &[], 1)?;
            net.filter(*node, "ingress", &[], 0)?;
        }
        Ok(net)
    }

    /// A machine may be set up to let no packets through from one namespace to another.
    fn reach(&self, program: &Path) -> io::Result<()> {
        let (Some(first), Some(last)) = (self.nodes.first(), self.nodes.last()) else {
            return Ok(());
        };
        let namespace = self.namespace(*last);
        let (program, host) =
            (program.display().to_string(), format!("{}:{}", self.address(*first), PORTS[0]));
        ip(&["netns", "exec", &namespace, &program, "reach", &host])
            .map_err(|_| io::Error::other("no packets go from one to another"))
    }

    fn add(&self, node: Node) -> io::Result<()> {
        let (namespace, outside) = (self.namespace(node), self.outside(node));
        ip(&["netns", "add", &namespace])?;
        let pair = ["type", "veth", "peer", "name", "eth0", "netns", &namespace];
        ip(&[&["link", "add", &outside][..], &pair].concat())?;
        ip(&["link", "set", &outside, "master", &self.bridge(), "up"])?;
        let address = format!("{}/24", self.address(node));
        ip(&["-n", &namespace, "addr", "add", &address, "dev", "eth0"])?;
        ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    pub(super) fn namespace(&self, node: Node) -> String {
        format!("{NAMESPACE}{}-{node}", self.run)
    }

    pub(super) fn listeners(&self, server: usize) -> Listeners {
        listeners_at(self.address(Node::Server(server)), PORTS)
    }

    pub(super) fn urls(&self) -> Vec<String> {
        (0..self.servers)
            .map(|server| format!("nats://{}", self.listeners(server).client))
            .collect()
    }

    pub(super) fn cut(&mut self, from: Node, to: Node) -> io::Result<()> {
        self.cuts.entry(from).or_default().insert(to);
        self.filter_out(from)
    }

    pub(super) fn lossy(&mut self, node: Node, percent: u8) -> io::Result<()> {
        self.lossy.insert(node, percent);
        self.filter_out(node)?;
        self.filter(node, "egress", &[], percent)
    }

    pub(super) fn slow(&mut self, node: Node, kbit: u32) -> io::Result<()> {
        self.slowed.insert(node);
        let (outside, namespace) = (self.outside(node), self.namespace(node));
        // What would wait for longer than the latency is lost.
        let rate = format!("{kbit}kbit");
        let how = ["root", "tbf", "rate", &rate, "burst", "2000", "latency", "2s"];
        tc(&[&["qdisc", "replace", "dev", &outside][..], &how].concat())?;
        tc(&[&["-n", &namespace, "qdisc", "replace", "dev", "eth0"][..], &how].concat())
    }

    pub(super) fn heal(&mut self) -> io::Result<()> {
        for from in std::mem::take(&mut self.cuts).into_keys() {
            self.filter_out(from)?;
        }
        for node in std::mem::take(&mut self.lossy).into_keys() {
            self.filter_out(node)?;
            self.filter(node, "egress", &[], 0)?;
        }
        for node in std::mem::take(&mut self.slowed) {
            tc(&["qdisc", "del", "dev", &self.outside(node), "root"])?;
            tc(&["-n", &self.namespace(node), "qdisc", "del", "dev", "eth0", "root"])?;
        }
        Ok(())
    }

    /// Drops what a node sends, where that is to be dropped.
    fn filter_out(&self, from: Node) -> io::Result<()> {
        let cut: Vec<_> =
            self.cuts.get(&from).into_iter().flatten().map(|to| self.address(*to)).collect();
        let percent = self.lossy.get(&from).copied().unwrap_or(0);
        self.filter(from, "ingress", &cut, percent)
    }

    fn filter(&self, node: Node, hook: &str, to: &[Ipv4Addr], percent: u8) -> io::Result<()> {
        let outside = self.outside(node);
        let place = ["dev", &outside, hook, "protocol", "all", "pref", "1"];
        match filter::program(to, percent) {
            Some(program) => {
                let how = ["handle", "1", "bpf", "da", "bytecode", &program];
                tc(&[&["filter", "replace"], &place[..], &how].concat())
            }
            None => tc(&[&["filter", "del"], &place[..]].concat()).or(Ok(())), // there may be none
        }
    }

    fn bridge(&self) -> String {
        format!("{INTERFACE}{}", self.run)
    }

    /// The bridge's end of a node's link.
    fn outside(&self, node: Node) -> String {
        format!("{}{node}", self.bridge())
    }

    pub(super) fn address(&self, node: Node) -> Ipv4Addr {
        let last = match node {
            Node::Server(index) => 11 + index,
            Node::Candidate(index) => 101 + index,
        };
        self.address_of(u8::try_from(last).unwrap_or(u8::MAX))
    }

    /// Of the block that is set aside for measurements (RFC 2544), so it is not in use.
    fn address_of(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.subnet, last)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for node in &self.nodes {
            let _ = ip(&["link", "del", &self.outside(*node)]);
            let _ = ip(&["netns", "del", &self.namespace(*node)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

/// Removes what runs left behind whose process is gone.
pub fn sweep() {
    let names = |arguments: &[&str]| {
        output("ip", arguments).map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    for line in names(&["netns", "list"]).unwrap_or_default().lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let run = name.strip_prefix(NAMESPACE).and_then(|rest| rest.split('-').next());
        if run.is_some_and(is_gone) {
            let _ = ip(&["netns", "del", name]);
        }
    }
    for line in names(&["-o", "link", "show"]).unwrap_or_default().lines() {
        let name = line.split(": ").nth(1).and_then(|name| name.split('@').next());
        let Some(name) = name.filter(|name| name.starts_with(INTERFACE)) else { continue };
        let run: String =
            name.trim_start_matches(INTERFACE).chars().take_while(char::is_ascii_digit).collect();
        if is_gone(&run) {
            let _ = ip(&["link", "del", name]);
        }
    }
}

/// Whether no process has this id, or one that is none of ours.
pub(crate) fn is_gone(run: &str) -> bool {
    if run.parse::<u32>().is_err() {
        return false; // not a name that we gave
    }
    let name = std::fs::read_to_string(Path::new("/proc").join(run).join("cmdline"));
    !name.is_ok_and(|name| name.contains("incumbent-attack"))
}

fn free_subnet() -> io::Result<u8> {
    let used = output("ip", &["-4", "-o", "addr"])?;
    let used = String::from_utf8_lossy(&used.stdout).into_owned();
    let first = std::process::id() % 250;
    (0..250)
        .filter_map(|step| u8::try_from((first + step) % 250 + 1).ok())
        .find(|subnet| !used.contains(&format!("198.18.{subnet}.")))
        .ok_or_else(|| io::Error::other("no free network"))
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    output("ip", arguments).map(drop)
}

fn tc(arguments: &[&str]) -> io::Result<()> {
    output("tc", arguments).map(drop)
}

fn output(program: &str, arguments: &[&str]) -> io::Result<Output> {
    let command = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| io::Error::other(format!("{}: {error}", command())))?;
    if output.status.success() {
        return Ok(output);
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let told = told.lines().next().unwrap_or("it failed");
    Err(io::Error::other(format!("{}: {told}", command())))
}
