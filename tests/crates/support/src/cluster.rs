//! Three nats-servers in a cluster.

use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::{Client, ConnectOptions, jetstream};
use serde_json::Value;

use crate::binaries::Version;
use crate::poll::{eventually, poll};
use crate::ports::Port;
use crate::server::{CONNECT_TIMEOUT, Server, ServerBuilder, connected};

/// How many servers a cluster has.
pub(crate) const SERVERS: usize = 3;

/// What a cluster is to be like.
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing until `start`"]
pub struct ClusterBuilder {
    server: ServerBuilder,
    user: Option<(String, String)>,
    name: String,
    /// Further links of each server.
    links: [String; SERVERS],
}

impl ClusterBuilder {
    /// Runs this version instead of the default one.
    pub fn version(mut self, version: Version) -> Self {
        self.server = self.server.version(version);
        self
    }

    /// Adds lines to the configuration file of every server.
    pub fn config(mut self, lines: impl Into<String>) -> Self {
        self.server = self.server.config(lines);
        self
    }

    /// The name of the cluster, which is `test` otherwise.
    pub(crate) fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Adds links to the configuration of each server.
    pub(crate) fn links(mut self, links: [String; SERVERS]) -> Self {
        self.links = links;
        self
    }

    /// The user, with the permissions to make a stream, as which to find out whether the cluster is
    /// ready: where [`config`](Self::config) has users.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Starts the servers and waits until they have a leader and can make a stream of three
    /// replicas.
    ///
    /// # Panics
    ///
    /// Where no program of that version is found, or the cluster does not become ready.
    pub async fn start(self) -> Cluster {
        for _ in 0..5 {
            let routes: [Port; SERVERS] = std::array::from_fn(|_| Port::pick());
            let numbers = routes.each_ref().map(Port::number);
            let servers = std::array::from_fn(|index| {
                let member = membership(&self.name, numbers[index], &numbers);
                self.server.clone().prepare(&(member + &self.links[index]))
            });
            let cluster = Cluster { servers, _routes: routes };
            if cluster.launch().await {
                cluster.await_stream(&self.user).await;
                return cluster;
            }
        }
        panic!("five times another process took a port picked for a cluster of nats-servers");
    }
}

/// Three nats-servers with JetStream, clustered. Its members are [`Server`]s, to kill, pause and
/// restart.
#[derive(Debug)]
pub struct Cluster {
    servers: [Server; SERVERS],
    _routes: [Port; SERVERS],
}

impl Cluster {
    /// A builder of a cluster of the default version.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            server: Server::builder(),
            user: None,
            name: "test".to_owned(),
            links: Default::default(),
        }
    }

    /// Starts a cluster of the default version.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Its servers.
    pub fn servers(&self) -> &[Server; SERVERS] {
        &self.servers
    }

    /// One of its servers.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// The URLs of all of them.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// A new connection that knows every server, for a cluster without users. A request has the
    /// client's own limit of 10 s: who is late or lost is better repeated.
    pub async fn connect(&self) -> Client {
        connected(|| options().connect(self.urls())).await
    }

    /// The running server that reports to lead JetStream's metadata.
    pub async fn meta_leader(&self) -> Option<usize> {
        self.that_leads(|jsz, name| jsz["meta_cluster"]["leader"] == name).await
    }

    /// The running server that reports to lead a stream (of any account); a bucket `B` is the
    /// stream `KV_B`.
    pub async fn stream_leader(&self, stream: &str) -> Option<usize> {
        self.that_leads(|jsz, name| {
            streams(jsz).any(|told| told["name"] == stream && told["cluster"]["leader"] == name)
        })
        .await
    }

    /// Waits until a running server leads a stream.
    pub async fn await_stream_leader(&self, stream: &str) -> usize {
        let what = format!("a leader of the stream {stream}");
        eventually(&what, async || self.stream_leader(stream).await).await
    }

    /// Starts every server that was stopped or killed, and waits until all are healthy: for when so
    /// many were down that none of them could become healthy alone.
    pub async fn start_again(&self) {
        for _ in 0..50 {
            if self.launch().await {
                return;
            }
        }
        panic!("another process keeps a port of the cluster:\n{}", self.logs());
    }

    /// Whether one of its servers leads JetStream's metadata, or one of another cluster that
    /// gateways join to it.
    async fn knows_meta_leader(&self) -> bool {
        for server in self.servers.iter().filter(|server| server.is_running()) {
            let Some(jsz) = server.ask("/jsz").await else { continue };
            let leader = jsz["meta_cluster"]["leader"].as_str().unwrap_or_default();
            let is_ours = self.servers.iter().any(|server| server.name() == leader);
            if !leader.is_empty() && (!is_ours || leader == server.name()) {
                return true;
            }
        }
        false
    }

    async fn that_leads(&self, leads: impl Fn(&Value, &str) -> bool) -> Option<usize> {
        for (index, server) in self.servers.iter().enumerate() {
            if server.is_running()
                && let Some(jsz) = server.ask("/jsz?streams=true").await
                && leads(&jsz, server.name())
            {
                return Some(index);
            }
        }
        None
    }

    /// Starts the servers that do not run and waits until all are healthy; false if another process
    /// has a port of theirs.
    async fn launch(&self) -> bool {
        self.servers.iter().filter(|server| !server.is_running()).for_each(Server::spawn);
        let started = poll(async || {
            let mut healthy = self.knows_meta_leader().await;
            for server in &self.servers {
                if server.lost_its_port() {
                    return Some(false);
                }
                healthy = healthy && server.is_healthy().await;
            }
            healthy.then_some(true)
        });
        match started.await {
            Some(started) => started,
            None => panic!("the cluster is not healthy:\n{}", self.logs()),
        }
    }

    /// A healthy cluster may still refuse a stream without enough peers, until they have reported
    /// their resources.
    async fn await_stream(&self, user: &Option<(String, String)>) {
        let connect = || {
            let options = match user {
                Some((name, password)) => {
                    options().user_and_password(name.clone(), password.clone())
                }
                None => options(),
            };
            options.connect(self.urls())
        };
        let context = jetstream::new(connected(connect).await);
        let made = poll(async || {
            let probe = Config {
                name: "READY".to_owned(),
                subjects: vec!["ready.probe".to_owned()],
                num_replicas: SERVERS,
                storage: StorageType::Memory,
                ..Config::default()
            };
            context.get_or_create_stream(probe).await.ok()?;
            context.delete_stream("READY").await.ok()
        });
        assert!(made.await.is_some(), "the cluster makes no stream:\n{}", self.logs());
    }

    fn logs(&self) -> String {
        self.servers.iter().map(Server::log).collect::<Vec<_>>().join("\n")
    }
}

fn options() -> ConnectOptions {
    ConnectOptions::new().connection_timeout(CONNECT_TIMEOUT)
}

/// The part of a server's configuration that makes it a member of a cluster.
pub(crate) fn membership(cluster: &str, port: u16, all: &[u16]) -> String {
    let routes: Vec<_> = all.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
    let routes = routes.join(", ");
    format!(
        "cluster {{\n  name: {cluster:?}\n  listen: \"127.0.0.1:{port}\"\n  routes: [{routes}]\n}}\n"
    )
}

fn streams(jsz: &Value) -> impl Iterator<Item = &Value> {
    let accounts = jsz["account_details"].as_array().into_iter().flatten();
    accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten())
}
