//! Leader election: at most one leader at any instant, and a successor within milliseconds of a
//! stop.
//!
//! The candidates of an election share a [`Lock`](lock::Lock): an entry with a lifetime, in a NATS
//! JetStream key-value bucket, a Kubernetes object, a database, object storage, etcd, a quorum of
//! peers, or in process ([`memory`]). The candidate that creates the entry waits until no earlier
//! holder can still be leading, leads, and renews the entry. The others stand by. They send no
//! requests where the lock reports changes.
//!
//! **At most one candidate of an election leads at any instant**, whatever crashes, hangs, is
//! partitioned, delayed or, where the [`clock`] counts that, suspended, as long as the candidates'
//! clocks run at nearly the same *rate*. The clocks need not agree on the time. Each term has a
//! *fencing token* that is greater than every earlier one, for what is written to refuse a stale
//! leader.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use incumbent::memory::MemoryLock;
//! use incumbent::new_election;
//!
//! let election = new_election("my_app", MemoryLock::new()).identity("c1.example.net").start()?;
//!
//! let leadership = election.won().await?; // leads from here on
//! leadership.run(async { /* the work of a leader */ }).await?; // dropped if the term ends first
//! println!("fence what you write with {}", leadership.token());
//! drop(leadership); // others may lead
//!
//! election.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//! - [`new_election`] describes a part in an election; [`ElectionBuilder::start`] begins it;
//!   [`Election`] is the handle on it; [`Leadership`] is the guard that a leader holds; [`observe`]
//!   watches without taking part.
#![cfg_attr(
    feature = "nats",
    doc = "- [`nats`]: the lock on NATS JetStream key-value. [`memory`]: the lock in process."
)]
#![cfg_attr(not(feature = "nats"), doc = "- [`memory`]: the lock in process.")]
#![cfg_attr(feature = "etcd", doc = "- [`etcd`]: the lock in etcd.")]
#![cfg_attr(feature = "kubernetes", doc = "- [`kubernetes`]: the locks on Kubernetes objects.")]
#![cfg_attr(
    any(feature = "postgres", feature = "sqlite"),
    doc = "- [`sql`]: the locks in SQL databases."
)]
#![cfg_attr(
    feature = "_objects",
    doc = "- [`object_storage`]: the lock on Google Cloud Storage, S3 and Azure."
)]
#![cfg_attr(
    feature = "peer",
    doc = "- [`peer`]: groups of peers without a server, and a lock on a quorum of them."
)]
//! - [`all_of`]: several locks as one. [`new_set`]: many elections that their members share evenly.
#![cfg_attr(feature = "schedule", doc = "- [`schedule`]: jobs at times of a calendar.")]
#![cfg_attr(feature = "url", doc = "- [`lock_url`]: locks by their URLs.")]
//! - [`discovery`]: the leader for those who send it requests, as a stream.
//! - [`lock`]: the trait that a lock implements. [`protocol`]: the rules, as a pure state machine.
//!   [`clock`]: time that continues through suspension.
//!
//! # What it does not do
//! It elects a leader; it replicates nothing and keeps no membership. It cannot stop work that
//! blocks its thread: the token is for that. `docs/protocol.md` in the repository states where the
//! promise ends.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

#[macro_use]
mod util;

mod backends;
mod builder;
pub mod discovery;
mod driver;
mod election;
#[cfg(any(
    feature = "_objects",
    feature = "nats",
    feature = "postgres",
    feature = "sqlite",
    feature = "tower"
))]
pub mod fence;
#[cfg(feature = "_history")]
#[doc(hidden)]
pub mod history;
pub mod lock;
#[cfg(feature = "url")]
pub mod lock_url;
pub mod protocol;
#[cfg(feature = "schedule")]
pub mod schedule;
mod set;
mod telemetry;
mod time;

#[cfg(feature = "etcd")]
pub use backends::etcd;
#[cfg(feature = "kubernetes")]
pub use backends::kubernetes;
pub use backends::memory;
#[cfg(feature = "nats")]
pub use backends::nats;
#[cfg(feature = "_objects")]
pub use backends::object_storage;
#[cfg(feature = "peer")]
pub use backends::peer;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use backends::sql;
#[cfg(feature = "_sim")]
#[doc(hidden)]
pub use backends::{seen, vimeo_timing};
pub use builder::{ElectionBuilder, StartError, new_election, observe};
pub use driver::health::HealthCheck;
#[cfg(all(feature = "sentinel", unix))]
pub use driver::sentinel;
pub use election::{
    Change, Checkpoint, CheckpointError, CheckpointErrorKind, DrainNotice, Election, HandOverError,
    Leadership, Loss, Observer, Status, StatusWatch, Step, Stopped, Wait,
};
pub use lock::multi::{all_of, best_effort, required};
pub use lock::{
    Advertisement, AdvertisementError, CandidateInfo, MAX_CHECKPOINT_LEN, Readiness, Role,
    Successor, Token,
};
#[cfg(feature = "url")]
pub use lock_url::LockUrl;
pub use protocol::{Backoff, BackoffPolicy, Cause, CoolDown, Leader, State, WaitReason};
pub use set::{
    LedShard, Set, SetBuilder, SetError, ShardChange, ShardStatus, check_shards, new_set, shard_of,
};
pub use time::clock;
pub use util::changes::Changes;

/// The example of the README compiles.
#[cfg(all(doctest, feature = "nats"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the guide compile.
#[cfg(all(doctest, feature = "nats"))]
#[doc = include_str!("../docs/getting-started.md")]
struct GettingStarted;

/// The example of the page on sets compiles.
#[cfg(all(doctest, feature = "nats"))]
#[doc = include_str!("../docs/sets.md")]
struct SetsPage;

/// The example of the page on the checkpoint compiles.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../docs/checkpoint.md")]
struct CheckpointPage;
