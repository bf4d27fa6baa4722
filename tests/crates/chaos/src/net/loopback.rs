//! All processes on the loopback interface, and a proxy on each candidate's way to each server.

use std::io;
use std::net::Ipv4Addr;

use incumbent_test_support::{Flow, Port, Proxy, Way};

use super::{Listeners, Node, listeners_at, url};

/// The proxies, and the ports of the servers.
#[derive(Debug)]
pub struct Loopback {
    ports: Vec<[Port; 3]>,
    /// By candidate, then by server.
    proxies: Vec<Vec<Proxy>>,
}

impl Loopback {
    pub(super) fn new(servers: usize, candidates: usize) -> Self {
        let ports: Vec<_> =
            (0..servers).map(|_| [Port::pick(), Port::pick(), Port::pick()]).collect();
        let proxy =
            |ports: &[Port; 3]| Proxy::start((Ipv4Addr::LOCALHOST, ports[0].number()).into());
        let proxies = (0..candidates).map(|_| ports.iter().map(proxy).collect()).collect();
        Self { ports, proxies }
    }

    pub(super) fn listeners(&self, server: usize) -> Listeners {
        listeners_at(Ipv4Addr::LOCALHOST, self.ports[server].each_ref().map(Port::number))
    }

    pub(super) fn urls(&self, candidate: usize) -> Vec<String> {
        self.proxies[candidate]
            .iter()
            .map(|proxy| match proxy.address() {
                std::net::SocketAddr::V4(address) => url(address),
                std::net::SocketAddr::V6(_) => proxy.url(),
            })
            .collect()
    }

    pub(super) fn cut(&self, from: Node, to: Node) -> io::Result<()> {
        let (candidate, server, way) = match (from, to) {
            (Node::Candidate(candidate), Node::Server(server)) => {
                (candidate, server, Way::ToServer)
            }
            (Node::Server(server), Node::Candidate(candidate)) => {
                (candidate, server, Way::ToClient)
            }
            _ => return Err(io::Error::other(format!("nothing stands between {from} and {to}"))),
        };
        self.proxies[candidate][server].flow(way, Flow::Lose);
        Ok(())
    }

    /// Connections that lost something are closed: a greeting may be what they lost.
    pub(super) fn heal(&self) {
        for proxy in self.proxies.iter().flatten() {
            let lost = proxy.swallowed(Way::ToServer) + proxy.swallowed(Way::ToClient);
            proxy.pass();
            if lost > 0 {
                proxy.cut();
            }
        }
    }
}
