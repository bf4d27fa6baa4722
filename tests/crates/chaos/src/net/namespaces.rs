//! A network namespace for each process, joined by a bridge.
//!
//! Names bear the id of the harness's process, so that runs side by side do not meet, and what a
//! killed run left can be told and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use super::{Listeners, Need, Node, filter, listeners_at, url};

/// What the names of our namespaces begin with, and those of our interfaces.
const NAMESPACE: &str = "incumbent-chaos-";
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
    filters: bool,
    netem: bool,
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
            filters: false,
            netem: false,
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
        net.probe()?;
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

    /// Finds out what this kernel can do to a link.
    fn probe(&mut self) -> io::Result<()> {
        let Some(node) = self.nodes.first().copied() else { return Ok(()) };
        let outside = self.outside(node);
        self.netem = tc(&["qdisc", "add", "dev", &outside, "root", "netem", "loss", "1%"]).is_ok();
        if self.netem {
            tc(&["qdisc", "del", "dev", &outside, "root"])?;
        }
        let filtered = self
            .nodes
            .iter()
            .all(|node| tc(&["qdisc", "add", "dev", &self.outside(*node), "clsact"]).is_ok());
        self.filters = filtered && self.filter(node, "ingress", &[], 1).is_ok();
        if self.filters {
            self.filter(node, "ingress", &[], 0)?;
        }
        Ok(())
    }

    pub(super) fn describe(&self) -> String {
        let cut = if self.filters { "tc bpf filters" } else { "blackhole routes" };
        let slow = if self.netem { "netem" } else { "tc tbf (this kernel has no netem)" };
        let loss = match (self.netem, self.filters) {
            (true, _) => "netem",
            (false, true) => "tc bpf filters that drop at random (this kernel has no netem)",
            (false, false) => "none",
        };
        format!(
            "network: a namespace for each process, on a bridge; cut by {cut}, slow by {slow}, lossy by {loss}"
        )
    }

    pub(super) fn lacks(&self, need: Need) -> Option<String> {
        match need {
            Need::LossyLink if !self.netem && !self.filters => {
                Some("this kernel has neither netem nor bpf filters".to_owned())
            }
            _ => None,
        }
    }

    pub(super) fn namespace(&self, node: Node) -> String {
        format!("{NAMESPACE}{}-{node}", self.run)
    }

    pub(super) fn listeners(&self, server: usize) -> Listeners {
        listeners_at(self.address(Node::Server(server)), PORTS)
    }

    pub(super) fn urls(&self) -> Vec<String> {
        (0..self.servers).map(|server| url(self.listeners(server).client)).collect()
    }

    pub(super) fn cut(&mut self, from: Node, to: Node) -> io::Result<()> {
        self.cuts.entry(from).or_default().insert(to);
        if self.filters {
            return self.filter_out(from);
        }
        let route = format!("{}/32", self.address(to));
        ip(&["-n", &self.namespace(from), "route", "add", "blackhole", &route])
    }

    pub(super) fn lossy(&mut self, node: Node, percent: u8) -> io::Result<()> {
        self.lossy.insert(node, percent);
        if self.netem {
            let loss = format!("{percent}%");
            return self.both_ends(node, &["netem", "loss", &loss]);
        }
        self.filter_out(node)?;
        self.filter(node, "egress", &[], percent)
    }

    pub(super) fn slow(&mut self, node: Node, kbit: u32) -> io::Result<()> {
        self.slowed.insert(node);
        if self.netem {
            // As long as a kilobyte takes, more or less.
            let delay = 8000 / kbit.max(1);
            let (delay, jitter) = (format!("{delay}ms"), format!("{}ms", delay / 2));
            return self.both_ends(node, &["netem", "delay", &delay, &jitter]);
        }
        // What would wait for longer than the latency is lost.
        let rate = format!("{kbit}kbit");
        self.both_ends(node, &["tbf", "rate", &rate, "burst", "2000", "latency", "2s"])
    }

    pub(super) fn heal(&mut self) -> io::Result<()> {
        let cuts = std::mem::take(&mut self.cuts);
        let lossy = std::mem::take(&mut self.lossy);
        for (from, to) in &cuts {
            if self.filters {
                self.filter_out(*from)?;
                continue;
            }
            for to in to {
                let route = format!("{}/32", self.address(*to));
                ip(&["-n", &self.namespace(*from), "route", "del", "blackhole", &route])?;
            }
        }
        let mut shaped = std::mem::take(&mut self.slowed);
        for node in lossy.into_keys() {
            if self.netem {
                shaped.insert(node);
            } else {
                self.filter_out(node)?;
                self.filter(node, "egress", &[], 0)?;
            }
        }
        for node in shaped {
            tc(&["qdisc", "del", "dev", &self.outside(node), "root"])?;
            tc(&["-n", &self.namespace(node), "qdisc", "del", "dev", "eth0", "root"])?;
        }
        Ok(())
    }

    fn both_ends(&self, node: Node, how: &[&str]) -> io::Result<()> {
        let (outside, namespace) = (self.outside(node), self.namespace(node));
        tc(&[&["qdisc", "replace", "dev", &outside, "root"][..], how].concat())?;
        tc(&[&["-n", &namespace, "qdisc", "replace", "dev", "eth0", "root"][..], how].concat())
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

    fn address(&self, node: Node) -> Ipv4Addr {
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
    !name.is_ok_and(|name| name.contains("incumbent-chaos"))
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
