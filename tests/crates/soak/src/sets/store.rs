//! The servers on which a set runs.

use incumbent_test_support::{Cluster, FaultProxy, PostgresServer, Server};

/// Which servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// A nats-server.
    Nats,
    /// A cluster of three nats-servers.
    NatsCluster,
    /// A PostgreSQL server.
    Postgres,
}

/// The running servers.
pub enum Store {
    Nats(Box<Server>),
    NatsCluster(Box<Cluster>),
    Postgres(PostgresServer),
}

impl Store {
    pub async fn start(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Nats => Self::Nats(Box::new(Server::start().await)),
            StoreKind::NatsCluster => Self::NatsCluster(Box::new(Cluster::start().await)),
            StoreKind::Postgres => {
                Self::Postgres(PostgresServer::start(&["max_connections=400"]).await)
            }
        }
    }

    /// What stands between one member and each server.
    pub async fn proxies(&self) -> Vec<FaultProxy> {
        let ports = match self {
            Self::Nats(server) => vec![server.address().port()],
            Self::NatsCluster(cluster) => {
                cluster.servers().iter().map(|server| server.address().port()).collect()
            }
            Self::Postgres(server) => vec![server.port()],
        };
        let mut proxies = Vec::new();
        for port in ports {
            proxies.push(FaultProxy::start(port).await);
        }
        proxies
    }

    /// The URLs of a member behind its proxies.
    pub fn urls(&self, proxies: &[FaultProxy]) -> String {
        let url = |proxy: &FaultProxy| match self {
            Self::Nats(_) | Self::NatsCluster(_) => format!("nats://127.0.0.1:{}", proxy.port()),
            Self::Postgres(_) => {
                let port = proxy.port();
                format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable")
            }
        };
        proxies.iter().map(url).collect::<Vec<_>>().join(",")
    }
}
