//! A server and a leaf node of it.

use crate::link::Link;
use crate::poll::eventually;
use crate::ports::Port;
use crate::server::{Server, ServerBuilder};

/// A hub with JetStream in the domain `hub`, a leaf node that connects to it, and the link between
/// them.
#[derive(Debug)]
pub struct LeafNode {
    hub: Server,
    leaf: Server,
    link: Link,
    _port: Port,
}

impl LeafNode {
    /// Starts both, the leaf node as `leaf` describes it, and waits until they are connected.
    ///
    /// # Panics
    ///
    /// Where they do not start, or do not connect.
    pub async fn start(leaf: ServerBuilder) -> Self {
        Self::start_as("", Server::builder(), leaf).await
    }

    /// Starts both, with a hub that has users; the leaf node connects as `user`, which is
    /// `NAME:PASSWORD@`.
    ///
    /// # Panics
    ///
    /// Those of [`start`](Self::start).
    pub async fn start_as(user: &str, hub: ServerBuilder, leaf: ServerBuilder) -> Self {
        for _ in 0..5 {
            let port = Port::pick();
            let link = Link::to([port.number()]).await;
            let behind = link.ports()[0];
            let listens = format!(
                "leafnodes {{\n  listen: \"127.0.0.1:{}\"\n  advertise: \"127.0.0.1:{behind}\"\n}}\n",
                port.number()
            );
            let hub = hub.clone().domain("hub").prepare(&listens);
            let connects = format!(
                "leafnodes {{\n  reconnect: \"1s\"\n  remotes: [{{ url: \"nats-leaf://{user}127.0.0.1:{behind}\" }}]\n}}\n"
            );
            let leaf = leaf.clone().prepare(&connects);
            if hub.launch().await && leaf.launch().await {
                let both = Self { hub, leaf, link, _port: port };
                both.connected().await;
                return both;
            }
        }
        panic!("five times another process took a port picked for nats-server");
    }

    /// The server that has the bucket.
    pub fn hub(&self) -> &Server {
        &self.hub
    }

    /// The leaf node.
    pub fn leaf(&self) -> &Server {
        &self.leaf
    }

    /// The connection between them.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Waits until they are connected.
    pub async fn connected(&self) {
        eventually("the leaf node is connected", async || {
            let leaves = self.hub.ask("/leafz").await?["leafnodes"].as_u64()?;
            (leaves > 0).then_some(())
        })
        .await;
    }
}
