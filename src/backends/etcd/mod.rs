//! Elections in etcd: one key per election.
//!
//! A write is a transaction that names the revision of the key that its writer has seen: it changes
//! nothing if the key has another one. An election counts by that revision. The value is JSON, and
//! holds the least one that the election may count on with: it never decreases for a process that
//! has seen a greater one, as etcd's own does when a snapshot is restored.
//! ```no_run
//! use incumbent::etcd::Etcd;
//! use incumbent::new_election;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let etcd = Etcd::new(["etcd-1:2379", "etcd-2:2379", "etcd-3:2379"]).prefix("elections");
//! let election = new_election("my_app", etcd.lock()?).start()?;
//! let leadership = election.won().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Why not a lease of etcd
//! A candidate of etcd's own elections leads while its lease lives, and nothing tells it in time
//! that the lease is gone: the keep-alive hangs with the network, and so does its work's view of
//! the world, while the server expires the lease and the next candidate wins. A leader here ends on
//! its own clock. The keys belong to no lease: candidates judge by their own clocks for how long an
//! entry has not changed, and write over it. See `docs/etcd.md` in the repository.

mod checkpoints;
mod client;
mod cluster;
mod codec;
mod config;
mod errors;
mod foreign;
mod lock;
mod messages;
mod probe;
mod tls;
mod watch;

pub use config::Etcd;
pub use foreign::ForeignCandidate;
pub use lock::EtcdLock;
pub use probe::{EtcdProbe, MemberFacts};
