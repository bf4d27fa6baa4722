//! Real nats-servers for tests, and the faults to meet them with.
//!
//! - [`Server`]: one nats-server in a directory of its own, to stop, kill, pause, restart and
//!   reload.
//! - [`Cluster`]: three of them, with JetStream, ready to hold a stream of three replicas.
//! - [`LeafNode`], [`Gateways`]: a server behind a leaf node connection, and two clusters joined by
//!   gateways, with a [`Link`] to cut.
//! - [`KubeServer`]: a Kubernetes API server with etcd and the garbage collector.
//! - [`EtcdCluster`]: members of etcd, to kill, pause and restart, and their snapshots.
//! - [`PostgresServer`]: a PostgreSQL server, to kill, pause and restart, with replicas to promote.
//! - [`SmallDisk`], [`FreezableDisk`]: one to fill, and one that does not respond for a while.
//! - `Namespace`: a host's network of its own.
//! - [`Authority`]: certificates for servers and their clients.
//! - [`Pooler`]: PgBouncer in front of it.
//! - [`object_stores`]: stores for Google Cloud Storage, S3 and Azure Blob Storage.
//! - [`Browser`]: a headless Chromium.
//! - `Worker`: a process of the test itself, to suspend.
//! - [`Process`], [`Port`], [`monitor`]: for servers that are started in another way.
//! - [`Proxy`]: carries messages of the NATS protocol, and loses, holds or cuts those that a test
//!   chooses.
//! - [`FaultProxy`]: carries any TCP connections, and silences, holds, redirects or cuts them.
//! - [`HttpFaultProxy`]: carries HTTP requests to an object store, and responds in its place,
//!   delays or loses them.
//!
//! No server outlives the process of its test. What signals no event is polled every few
//! milliseconds, with a limit; reaching the limit panics with the server's log.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod authority;
mod binaries;
mod browser;
mod checkout;
mod cluster;
mod directory;
mod disk;
mod etcd;
mod fault_proxy;
mod gateways;
mod http;
mod http_fault_proxy;
mod http_message;
mod kube;
mod leaf_node;
mod link;
#[cfg(target_os = "linux")]
mod namespace;
mod notices;
pub mod object_stores;
mod poll;
mod pooler;
mod ports;
mod postgres;
mod process;
mod proxy;
mod pseudo_terminal;
mod server;
#[cfg(target_os = "linux")]
mod worker;

pub use authority::Authority;
pub use binaries::{Version, find};
pub use browser::Browser;
pub use checkout::{checkout, roles_in_deploy};
pub use cluster::{Cluster, ClusterBuilder};
pub use disk::{FreezableDisk, SmallDisk};
pub use etcd::{EtcdCluster, programs as etcd_programs};
pub use fault_proxy::FaultProxy;
pub use gateways::Gateways;
pub use http::monitor;
pub use http_fault_proxy::{HttpFault, HttpFaultProxy, s3_error};
pub use http_message::{HttpMessage, http_request};
pub use kube::{KubeServer, go_program};
pub use leaf_node::LeafNode;
pub use link::Link;
#[cfg(target_os = "linux")]
pub use namespace::Namespace;
pub use notices::not_run;
pub use poll::{LIMIT, eventually, poll, repeated};
pub use pooler::Pooler;
pub use ports::Port;
pub use postgres::PostgresServer;
pub use process::{Process, REQUESTS, succeeds};
pub use proxy::{Proxy, Request, Trap, Way};
pub use pseudo_terminal::PseudoTerminal;
pub use server::{
    CONNECT_TIMEOUT, NATS_PERMISSIONS, Server, ServerBuilder, client_options, connected,
    jetstream_on, nats_options,
};
#[cfg(target_os = "linux")]
pub use worker::{Worker, late_write_rounds, worker_orders, worker_says, worker_stops};
