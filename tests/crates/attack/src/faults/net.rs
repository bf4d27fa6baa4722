//! The network between the processes of a run, and what can be done to it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::{fmt, io};

use incumbent_test_support::{Port, Process, Proxy, Way};

use super::namespaces::{self, Namespaces};
use super::table::Need;

/// A process with a place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Server(usize),
    /// A candidate, of ours or like Choria's.
    Candidate(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(index) => write!(f, "s{index}"),
            Self::Candidate(index) => write!(f, "c{index}"),
        }
    }
}

/// Where a server listens.
#[derive(Debug, Clone, Copy)]
pub struct Listeners {
    pub client: SocketAddrV4,
    /// For the other servers.
    pub cluster: SocketAddrV4,
    /// For the harness.
    pub monitor: SocketAddrV4,
}

/// Either kind of network.
#[derive(Debug)]
pub enum Net {
    /// Each process in a network namespace of its own, on a bridge.
    Namespaces(Namespaces),
    /// All processes on the loopback interface, with a proxy between each candidate and each
    /// server.
    Loopback(Loopback),
}

impl Net {
    /// Namespaces where they are allowed and `loopback` does not forbid it, else the loopback
    /// interface; prints which, and why.
    pub fn new(servers: usize, candidates: usize, loopback: bool) -> Self {
        let why = if loopback {
            "asked for".to_owned()
        } else {
            match Namespaces::new(servers, candidates) {
                Ok(namespaces) => {
                    println!("network: a namespace for each process, on a bridge");
                    return Self::Namespaces(namespaces);
                }
                Err(error) => format!("network namespaces cannot be had: {error}"),
            }
        };
        println!("network: the loopback interface and proxies, as {why}");
        Self::Loopback(Loopback::new(servers, candidates))
    }

    /// Where a server is to listen.
    pub fn listeners(&self, server: usize) -> Listeners {
        match self {
            Self::Namespaces(net) => net.listeners(server),
            Self::Loopback(net) => {
                listeners_at(Ipv4Addr::LOCALHOST, net.ports[server].each_ref().map(Port::number))
            }
        }
    }

    /// The servers' URLs, as a candidate is to use them.
    pub fn urls(&self, candidate: usize) -> Vec<String> {
        match self {
            Self::Namespaces(net) => net.urls(),
            Self::Loopback(net) => net.proxies[candidate].iter().map(Proxy::url).collect(),
        }
    }

    /// The address of a node of its own.
    pub fn address(&self, node: Node) -> Option<Ipv4Addr> {
        match self {
            Self::Namespaces(_) => Some(namespaces::address(node)),
            Self::Loopback(_) => None,
        }
    }

    /// Why something cannot be done here.
    pub fn lacks(&self, need: Need) -> Option<String> {
        match (self, need) {
            (Self::Loopback(_), Need::Namespaces) => {
                Some("no network namespaces, so no link of its own for each process".to_owned())
            }
            _ => None,
        }
    }

    /// Starts a process in its place.
    pub fn spawn(
        &self,
        node: Node,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
        log: &Path,
    ) -> io::Result<Process> {
        let namespace = match self {
            Self::Namespaces(net) => Some(net.path(node)),
            Self::Loopback(_) => None,
        };
        let first = if namespace.is_some() { Path::new("nsenter") } else { program };
        Process::spawn(first, log, |command| {
            if let Some(namespace) = namespace {
                command.arg(format!("--net={namespace}")).arg(program);
            }
            command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        })
    }

    /// Loses all that goes from one to the other, silently.
    pub fn cut(&mut self, from: Node, to: Node) -> io::Result<()> {
        match self {
            Self::Namespaces(net) => net.cut(from, to),
            Self::Loopback(net) => net.cut(from, to),
        }
    }

    /// Loses all that goes between the two.
    pub fn part(&mut self, one: Node, other: Node) -> io::Result<()> {
        self.cut(one, other)?;
        self.cut(other, one)
    }

    /// Makes the link of a node as slow as this many kilobits a second, both ways.
    pub fn slow(&mut self, node: Node, kbit: u32) -> io::Result<()> {
        match self {
            Self::Namespaces(net) => net.slow(node, kbit),
            Self::Loopback(_) => Err(io::Error::other("no slow links here")),
        }
    }

    /// Makes the link of a node lose this many packets of a hundred, both ways.
    pub fn lossy(&mut self, node: Node, percent: u8) -> io::Result<()> {
        match self {
            Self::Namespaces(net) => net.lossy(node, percent),
            Self::Loopback(_) => Err(io::Error::other("no lossy links here")),
        }
    }

    /// Undoes all of it.
    pub fn heal(&mut self) -> io::Result<()> {
        match self {
            Self::Namespaces(net) => net.heal(),
            Self::Loopback(net) => {
                net.heal();
                Ok(())
            }
        }
    }
}

pub fn listeners_at(address: Ipv4Addr, [client, cluster, monitor]: [u16; 3]) -> Listeners {
    let at = |port| SocketAddrV4::new(address, port);
    Listeners { client: at(client), cluster: at(cluster), monitor: at(monitor) }
}

/// All processes on the loopback interface: the ports of the servers, and a proxy on each
/// candidate's way to each server.
#[derive(Debug)]
pub struct Loopback {
    ports: Vec<[Port; 3]>,
    /// By candidate, then by server.
    proxies: Vec<Vec<Proxy>>,
}

impl Loopback {
    fn new(servers: usize, candidates: usize) -> Self {
        let ports: Vec<_> =
            (0..servers).map(|_| [Port::pick(), Port::pick(), Port::pick()]).collect();
        let proxy =
            |ports: &[Port; 3]| Proxy::start((Ipv4Addr::LOCALHOST, ports[0].number()).into());
        let proxies = (0..candidates).map(|_| ports.iter().map(proxy).collect()).collect();
        Self { ports, proxies }
    }

    fn cut(&self, from: Node, to: Node) -> io::Result<()> {
        let (candidate, server, way) = match (from, to) {
            (Node::Candidate(candidate), Node::Server(server)) => {
                (candidate, server, Way::ToServer)
            }
            (Node::Server(server), Node::Candidate(candidate)) => {
                (candidate, server, Way::ToClient)
            }
            _ => return Err(io::Error::other(format!("nothing stands between {from} and {to}"))),
        };
        self.proxies[candidate][server].lose(way);
        Ok(())
    }

    /// Connections that lost something are closed: a greeting may be what they lost.
    fn heal(&self) {
        for proxy in self.proxies.iter().flatten() {
            let lost = proxy.swallowed(Way::ToServer) + proxy.swallowed(Way::ToClient);
            proxy.pass();
            if lost > 0 {
                proxy.cut();
            }
        }
    }
}
