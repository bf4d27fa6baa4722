//! The network between the processes of a run, and what can be done to it.

mod filter;
mod loopback;
mod namespaces;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use incumbent_test_support::Process;

pub use loopback::Loopback;
pub(crate) use namespaces::is_gone;
pub use namespaces::{Namespaces, sweep};

/// A process with a place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A nats-server.
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

/// What a fault may need that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// Servers can be cut off from each other.
    CutServers,
    /// A link can be slow.
    SlowLink,
    /// A link can lose packets.
    LossyLink,
    /// A server's files are on a disk of their own that can be filled.
    SmallDisk,
    /// A server's wall clock can be stepped.
    Clock,
    /// The command line of this project is there, which has the sentinel.
    Sentinel,
}

/// Where a server listens.
#[derive(Debug, Clone, Copy)]
pub struct Listeners {
    /// For clients.
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
    /// interface, and why. `program` is this one.
    pub fn new(
        servers: usize,
        candidates: usize,
        loopback: bool,
        program: &Path,
    ) -> (Self, String) {
        let fall_back = |why: String| {
            let told = format!("network: the loopback interface and proxies, as {why}");
            (Self::Loopback(Loopback::new(servers, candidates)), told)
        };
        if loopback {
            return fall_back("asked for".to_owned());
        }
        match Namespaces::new(servers, candidates, program) {
            Ok(namespaces) => {
                let told = namespaces.describe();
                (Self::Namespaces(namespaces), told)
            }
            Err(error) => fall_back(format!("network namespaces cannot be had: {error}")),
        }
    }

    /// Where a server is to listen.
    pub fn listeners(&self, server: usize) -> Listeners {
        match self {
            Self::Namespaces(net) => net.listeners(server),
            Self::Loopback(net) => net.listeners(server),
        }
    }

    /// The servers' URLs, as a candidate is to use them.
    pub fn urls(&self, candidate: usize) -> Vec<String> {
        match self {
            Self::Namespaces(net) => net.urls(),
            Self::Loopback(net) => net.urls(candidate),
        }
    }

    /// Why something cannot be done here.
    pub fn lacks(&self, need: Need) -> Option<String> {
        match self {
            Self::Namespaces(net) => net.lacks(need),
            Self::Loopback(_) => match need {
                Need::CutServers => {
                    Some("no network namespaces to cut servers apart in".to_owned())
                }
                Need::SlowLink | Need::LossyLink => {
                    Some("no link of its own to degrade without network namespaces".to_owned())
                }
                Need::SmallDisk | Need::Clock | Need::Sentinel => None,
            },
        }
    }

    /// Starts a process in its place.
    ///
    /// # Errors
    ///
    /// Those of starting it.
    pub fn spawn(
        &self,
        node: Node,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
        log: &Path,
    ) -> io::Result<Process> {
        let namespace = match self {
            Self::Namespaces(net) => Some(net.namespace(node)),
            Self::Loopback(_) => None,
        };
        let first = if namespace.is_some() { Path::new("ip") } else { program };
        Process::spawn(first, log, |command| {
            if let Some(namespace) = namespace {
                command.args(["netns", "exec", &namespace]).arg(program);
            }
            command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        })
    }

    /// Loses all that goes from one to the other, silently.
    ///
    /// # Errors
    ///
    /// Where that cannot be done.
    pub fn cut(&mut self, from: Node, to: Node) -> io::Result<()> {
        match self {
            Self::Namespaces(net) => net.cut(from, to),
            Self::Loopback(net) => net.cut(from, to),
        }
    }

    /// The same both ways.
    ///
    /// # Errors
    ///
    /// Those of [`cut`](Self::cut).
    pub fn part(&mut self, one: Node, other: Node) -> io::Result<()> {
        self.cut(one, other)?;
        self.cut(other, one)
    }

    /// Makes the link of a node as slow as so many kilobits a second, both ways.
    ///
    /// # Errors
    ///
    /// Where that cannot be done.
    pub fn slow(&mut self, node: Node, kbit: u32) -> io::Result<()> {
        match self {
            Self::Namespaces(net) => net.slow(node, kbit),
            Self::Loopback(_) => Err(io::Error::other("no slow links here")),
        }
    }

    /// Makes the link of a node lose so many packets of a hundred, both ways.
    ///
    /// # Errors
    ///
    /// Where that cannot be done.
    pub fn lossy(&mut self, node: Node, percent: u8) -> io::Result<()> {
        match self {
            Self::Namespaces(net) => net.lossy(node, percent),
            Self::Loopback(_) => Err(io::Error::other("no lossy links here")),
        }
    }

    /// Undoes all of it.
    ///
    /// # Errors
    ///
    /// Where that cannot be done.
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

fn url(address: SocketAddrV4) -> String {
    format!("nats://{address}")
}

fn listeners_at(address: Ipv4Addr, [client, cluster, monitor]: [u16; 3]) -> Listeners {
    let at = |port| SocketAddrV4::new(address, port);
    Listeners { client: at(client), cluster: at(cluster), monitor: at(monitor) }
}
