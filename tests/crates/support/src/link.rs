//! A link between servers.

use crate::fault_proxy::FaultProxy;

/// The connections between two servers or clusters, through proxies that cut or hold all of them.
#[derive(Debug)]
pub struct Link(Vec<FaultProxy>);

impl Link {
    /// A link to servers that listen, or will, on these ports for others.
    pub(crate) async fn to(ports: impl IntoIterator<Item = u16>) -> Self {
        let mut proxies = Vec::new();
        for port in ports {
            proxies.push(FaultProxy::start(port).await);
        }
        Self(proxies)
    }

    /// Where others reach these servers, in their order.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.0.iter().map(FaultProxy::port).collect()
    }

    /// Closes its connections, and refuses new ones: both sides notice.
    pub fn cut(&self) {
        self.0.iter().for_each(FaultProxy::cut);
    }

    /// Lets the servers connect again.
    pub fn restore(&self) {
        self.0.iter().for_each(FaultProxy::restore);
    }

    /// Passes nothing for now, with all connections open: a network that has gone silent.
    pub fn hold(&self) {
        self.0.iter().for_each(FaultProxy::hold);
    }

    /// Delivers what was held, and what follows.
    pub fn release(&self) {
        self.0.iter().for_each(FaultProxy::release);
    }
}
