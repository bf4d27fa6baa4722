//! Two clusters that gateways join.

use serde_json::Value;

use crate::cluster::{Cluster, SERVERS, membership};
use crate::link::Link;
use crate::poll::eventually;
use crate::ports::Port;
use crate::server::Server;

const EAST: &str = "east";
const WEST: &str = "west";

/// Three servers in the cluster `east`, one or three in the cluster `west`, and the link between
/// both. All of them have JetStream: with one in the west, the east has the quorum alone.
#[derive(Debug)]
pub struct Gateways {
    east: Cluster,
    west: Vec<Server>,
    link: Link,
    _ports: Vec<Port>,
}

impl Gateways {
    /// Starts both, with this number of servers in the west, and waits until they are connected.
    ///
    /// # Panics
    ///
    /// Where they do not start, or do not connect.
    pub async fn start(west: usize) -> Self {
        let mut ports: Vec<_> = (0..SERVERS + west).map(|_| Port::pick()).collect();
        let listens: Vec<_> = ports.iter().map(Port::number).collect();
        let link = Link::to(listens.iter().copied()).await;
        let behind = link.ports();
        let links: Vec<_> = (0..SERVERS + west)
            .map(|index| {
                let (name, other) = match index < SERVERS {
                    true => (EAST, (WEST, behind[SERVERS])),
                    false => (WEST, (EAST, behind[0])),
                };
                gateway(name, listens[index], behind[index], other)
            })
            .collect();
        let (of_east, of_west) = links.split_at(SERVERS);
        let of_east = std::array::from_fn(|index| of_east[index].clone());
        let routes: Vec<_> = (0..west).map(|_| Port::pick()).collect();
        let numbers: Vec<_> = routes.iter().map(Port::number).collect();
        let members = of_west.iter().zip(&numbers).map(|(gateway, route)| {
            Server::builder().prepare(&(membership(WEST, *route, &numbers) + gateway))
        });
        let servers: Vec<_> = members.collect();
        // JetStream of both clusters elects one leader.
        servers.iter().for_each(Server::spawn);
        let east = Cluster::builder().name(EAST).links(of_east).start().await;
        for server in &servers {
            eventually("a server of the west is healthy", async || {
                assert!(!server.lost_its_port(), "another process took a port of a nats-server");
                server.is_healthy().await.then_some(())
            })
            .await;
        }
        ports.extend(routes);
        let all = Self { east, west: servers, link, _ports: ports };
        all.connected().await;
        all
    }

    /// The cluster that has the bucket.
    pub fn east(&self) -> &Cluster {
        &self.east
    }

    /// The servers of the other cluster.
    pub fn west(&self) -> &[Server] {
        &self.west
    }

    /// The connections between them.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Waits until every server has a connection to the other cluster, and one from it.
    pub async fn connected(&self) {
        eventually("the gateways are connected", async || {
            for server in self.east.servers() {
                is_connected(&server.ask("/gatewayz").await?, WEST)?;
            }
            for server in &self.west {
                is_connected(&server.ask("/gatewayz").await?, EAST)?;
            }
            Some(())
        })
        .await;
    }
}

fn is_connected(gatewayz: &Value, to: &str) -> Option<()> {
    gatewayz["outbound_gateways"].get(to).map(drop)
}

/// The part of a server's configuration that connects its cluster to the other one.
///
/// It names one server there, and learns of the others.
fn gateway(name: &str, listens: u16, advertises: u16, other: (&str, u16)) -> String {
    let (other, at) = other;
    format!(
        "gateway {{\n  name: {name:?}\n  listen: \"127.0.0.1:{listens}\"\n  \
         advertise: \"127.0.0.1:{advertises}\"\n  \
         gateways: [{{ name: {other:?}, url: \"nats://127.0.0.1:{at}\" }}]\n}}\n"
    )
}
