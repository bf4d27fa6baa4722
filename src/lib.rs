//! Leader election that keeps exactly one leader in office.
//!
//! Campaigners of an election share a [`Lock`](lock::Lock): an entry with a lifetime, in a NATS JetStream key-value
//! bucket (`nats`), or in process ([`memory`]). The one that creates the entry leads, after waiting out whoever
//! may still be leading, and renews it; the others stand by, silently where the lock tells them of changes.
//!
//! **At most one campaigner of an election leads at any instant**, whatever crashes, hangs, is partitioned, delayed or,
//! where the [`clock`] counts that, suspended, as long as the campaigners' clocks run at nearly the same *rate*; they need not agree on the time. Each
//! term has a *fencing token* that is greater than every earlier one, for what is written to refuse a stale leader.
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
//! - [`new_election`] describes a part in an election; [`ElectionBuilder::start`] begins it; [`Election`] is the handle on
//!   it; [`Leadership`] is what one holds while leading; [`observe`] watches without standing.
#![cfg_attr(
    feature = "nats",
    doc = "- [`nats`]: the lock on NATS JetStream key-value. [`memory`]: the lock in process."
)]
#![cfg_attr(not(feature = "nats"), doc = "- [`memory`]: the lock in process.")]
#![cfg_attr(
    any(feature = "postgres", feature = "sqlite"),
    doc = "- [`sql`]: the locks in SQL databases."
)]
#![cfg_attr(
    feature = "_objects",
    doc = "- [`objects`]: the lock on Google Cloud Storage, S3 and Azure."
)]
#![cfg_attr(
    feature = "peer",
    doc = "- [`peer`]: groups of peers without a server, and a lock on a quorum of them."
)]
//! - [`all_of`](mod@all_of): several locks as one.
#![cfg_attr(feature = "url", doc = "- [`lock_url`]: locks by their URLs.")]
//! - [`lock`]: the trait that a lock implements. [`protocol`]: the rules, as a pure state machine. [`clock`]: time that goes
//!   on through suspension.
//!
//! # What it does not do
//! It elects a leader; it replicates nothing and keeps no membership. It cannot stop work that blocks its thread: the
//! token is for that. Where the promise ends is told in `docs/protocol.md` of the repository.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod advertisement;
pub mod all_of;
mod asking;
mod builder;
#[cfg(any(feature = "kubernetes", feature = "_objects", feature = "postgres"))]
mod by_name;
mod changes;
pub mod clock;
mod driver;
mod election;
#[cfg(any(feature = "kubernetes", feature = "postgres", feature = "sqlite"))]
mod hint_hub;
mod hint_queue;
#[cfg(feature = "_history")]
#[doc(hidden)]
pub mod history;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod leadership;
pub mod lock;
#[cfg(feature = "url")]
pub mod lock_url;
mod machine;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "_objects")]
pub mod objects;
#[cfg(any(feature = "kubernetes", feature = "postgres"))]
mod pauses;
#[cfg(feature = "peer")]
pub mod peer;
pub mod protocol;
#[cfg(any(feature = "kubernetes", feature = "_objects"))]
mod says;
mod shared;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod sql;
mod step;
mod telemetry;
mod term;
mod term_end;
mod text;
#[cfg(any(
    feature = "_objects",
    feature = "kubernetes",
    feature = "nats",
    feature = "peer",
    feature = "postgres",
    feature = "sqlite"
))]
mod timer;
#[cfg(feature = "_json")]
#[allow(dead_code, reason = "each lock writes some of it")]
mod written;

pub use advertisement::{Advertisement, AdvertisementError};
pub use all_of::{all_of, best_effort, required};
pub use builder::{ElectionBuilder, StartError, new_election, observe};
pub use changes::Changes;
pub use election::{Change, Election, Observer, Stopped};
pub use leadership::{Leadership, Loss};
pub use lock::Token;
#[cfg(feature = "url")]
pub use lock_url::LockUrl;
pub use protocol::{Backoff, BackoffPolicy, Cause, CoolDown, Leader, State};
pub use step::Step;

/// What the README shows compiles.
#[cfg(all(doctest, feature = "nats"))]
#[doc = include_str!("../README.md")]
struct Readme;
