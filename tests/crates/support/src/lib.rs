//! Real nats-servers for tests, and the faults to meet them with.
//!
//! - [`Server`]: one nats-server in a directory of its own, to stop, kill, pause, restart and reload.
//! - [`Cluster`]: three of them, with JetStream, ready to hold a stream of three replicas.
//! - [`KubeServer`]: a Kubernetes API server with etcd and the garbage collector.
//! - [`PostgresServer`]: a PostgreSQL server, to kill, pause and restart, with replicas to promote.
//! - [`SmallDisk`]: one to fill.
//! - [`Authority`]: certificates for servers and their clients.
//! - [`Pooler`]: PgBouncer in front of it.
//! - [`Process`], [`Port`], [`monitor`]: what these are made of, for servers that are to be started in another way.
//! - [`Proxy`]: stands between a client and a server, and swallows, holds or cuts what a test tells it to; it can
//!   lose the reply of one chosen request.
//!
//! No server outlives the process of its test. Nothing here waits longer than it must: what has no event is polled
//! every few milliseconds, with a bound, and a bound that is reached panics with the server's log.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod authority;
mod binaries;
mod checkout;
mod cluster;
mod disk;
mod http;
mod kube;
mod poll;
mod pooler;
mod ports;
mod postgres;
mod process;
mod proxy;
mod server;
mod told;

pub use authority::Authority;
pub use binaries::{Version, find};
pub use checkout::checkout;
pub use cluster::{Cluster, ClusterBuilder};
pub use disk::SmallDisk;
pub use http::monitor;
pub use kube::{KubeServer, go_program};
pub use poll::eventually;
pub use pooler::Pooler;
pub use ports::Port;
pub use postgres::PostgresServer;
pub use process::Process;
pub use proxy::{Flow, Proxy, Request, Trap, Way};
pub use server::{Server, ServerBuilder};
pub use told::not_run;
