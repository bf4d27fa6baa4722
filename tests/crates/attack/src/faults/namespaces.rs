//! A network namespace for each process, joined by a bridge in the harness's own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::OnceLock;

use incumbent_test_support::Namespace;

use super::filter;
use super::net::{Listeners, Node, listeners_at};

const BRIDGE: &str = "bridge";

/// The ports of a server, each in its own namespace.
const PORTS: [u16; 3] = [4222, 6222, 8222];

/// Whether the harness has a namespace of its own, or why not.
static ENTERED: OnceLock<Result<(), String>> = OnceLock::new();

/// Moves the harness to a namespace of its own, where that is allowed: this thread, and those that
/// it starts.
pub fn enter() {
    ENTERED.get_or_init(|| Namespace::create().map(|own| own.enter()));
}

/// The namespaces of a run.
#[derive(Debug)]
pub struct Namespaces {
    servers: usize,
    nodes: BTreeMap<Node, Namespace>,
    cuts: BTreeMap<Node, BTreeSet<Node>>,
    lossy: BTreeMap<Node, u8>,
    slowed: BTreeSet<Node>,
}

impl Namespaces {
    pub(super) fn new(servers: usize, candidates: usize) -> io::Result<Self> {
        match ENTERED.get() {
            Some(entered) => entered.clone().map_err(io::Error::other)?,
            None => return Err(io::Error::other("the harness has none")),
        }
        let mut net = Self {
            servers,
            nodes: BTreeMap::new(),
            cuts: BTreeMap::new(),
            lossy: BTreeMap::new(),
            slowed: BTreeSet::new(),
        };
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", address_of(1)), "dev", BRIDGE])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        let nodes = (0..servers).map(Node::Server).chain((0..candidates).map(Node::Candidate));
        for node in nodes {
            net.add(node)?;
        }
        // Whether the kernel has the filters.
        net.filter(Node::Server(0), "ingress", &[], 1)?;
        net.filter(Node::Server(0), "ingress", &[], 0)?;
        Ok(net)
    }

    fn add(&mut self, node: Node) -> io::Result<()> {
        let namespace = Namespace::create().map_err(io::Error::other)?;
        let namespace = self.nodes.entry(node).or_insert(namespace);
        let (outside, place) = (node.to_string(), namespace.path());
        let pair = ["type", "veth", "peer", "name", "eth0", "netns", &place];
        ip(&[&["link", "add", &outside][..], &pair].concat())?;
        ip(&["link", "set", &outside, "master", BRIDGE, "up"])?;
        let address = format!("{}/24", address(node));
        namespace.run(|| {
            ip(&["addr", "add", &address, "dev", "eth0"])?;
            ip(&["link", "set", "eth0", "up"])
        })?;
        tc(&["qdisc", "add", "dev", &outside, "clsact"])
    }

    /// The file of a node's namespace.
    pub(super) fn path(&self, node: Node) -> String {
        self.nodes[&node].path()
    }

    pub(super) fn listeners(&self, server: usize) -> Listeners {
        listeners_at(address(Node::Server(server)), PORTS)
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
        let outside = node.to_string();
        // What would wait for longer than the latency is lost.
        let rate = format!("{kbit}kbit");
        let how = ["root", "tbf", "rate", &rate, "burst", "2000", "latency", "2s"];
        tc(&[&["qdisc", "replace", "dev", &outside][..], &how].concat())?;
        let inside = [&["qdisc", "replace", "dev", "eth0"][..], &how].concat();
        self.nodes[&node].run(|| tc(&inside))
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
            tc(&["qdisc", "del", "dev", &node.to_string(), "root"])?;
            self.nodes[&node].run(|| tc(&["qdisc", "del", "dev", "eth0", "root"]))?;
        }
        Ok(())
    }

    /// Drops what a node sends, where that is to be dropped.
    fn filter_out(&self, from: Node) -> io::Result<()> {
        let cut: Vec<_> =
            self.cuts.get(&from).into_iter().flatten().map(|to| address(*to)).collect();
        let percent = self.lossy.get(&from).copied().unwrap_or(0);
        self.filter(from, "ingress", &cut, percent)
    }

    fn filter(&self, node: Node, hook: &str, to: &[Ipv4Addr], percent: u8) -> io::Result<()> {
        let outside = node.to_string();
        let place = ["dev", &outside, hook, "protocol", "all", "pref", "1"];
        match filter::program(to, percent) {
            Some(program) => {
                let how = ["handle", "1", "bpf", "da", "bytecode", &program];
                tc(&[&["filter", "replace"], &place[..], &how].concat())
            }
            None => tc(&[&["filter", "del"], &place[..]].concat()).or(Ok(())), // there may be none
        }
    }
}

/// Its end may come a little later, and with it that of its links.
impl Drop for Namespaces {
    fn drop(&mut self) {
        for node in self.nodes.keys() {
            let _ = ip(&["link", "del", &node.to_string()]);
        }
        let _ = ip(&["link", "del", BRIDGE]);
    }
}

pub(super) fn address(node: Node) -> Ipv4Addr {
    let last = match node {
        Node::Server(index) => 11 + index,
        Node::Candidate(index) => 101 + index,
    };
    address_of(u8::try_from(last).unwrap_or(u8::MAX))
}

/// Of the block that is set aside for measurements (RFC 2544).
fn address_of(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, last)
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    run("ip", arguments)
}

fn tc(arguments: &[&str]) -> io::Result<()> {
    run("tc", arguments)
}

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let failed = |why: &str| io::Error::other(format!("{program} {}: {why}", arguments.join(" ")));
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(failed(told.lines().next().unwrap_or("it failed")))
}
