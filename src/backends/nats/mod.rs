//! Elections in a JetStream key-value bucket of NATS.
//!
//! An election is a key. The value is the leader's identity, as plain text, so any client shows who leads, and Choria's
//! campaigners share the bucket. All else rides in headers of the message.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use incumbent::nats::{self, Bucket, BucketConfig};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = nats::connect("nats://127.0.0.1:4222", Default::default()).await?;
//! let config = BucketConfig::new("JOBS").ttl(Duration::from_secs(10));
//! let bucket = Bucket::create_or_open(connection, config).await?;
//! for finding in bucket.health().await? {
//!     eprintln!("{}: {finding}", finding.severity());
//! }
//! let lock = bucket.lock(); // for any number of elections
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//! nats-server 2.10 or later with JetStream. From 2.11 on, an entry can have a life of its own, so one bucket serves
//! elections of different leases, and the server says when it has expired one.
//!
//! # Rights
//! A campaigner on bucket `B` publishes to these subjects and subscribes to its inbox:
//!
//! | publish | for | without it |
//! |---|---|---|
//! | `$KV.B.KEY` | every write | it cannot lead |
//! | `$JS.API.STREAM.INFO.KV_B` | opening the bucket | it cannot open it |
//! | `$JS.API.STREAM.MSG.GET.KV_B` | reading | it cannot settle a write whose answer was lost |
//! | `incumbent.B.KEY` | saying that it stopped | the next leader waits longer after an eviction |
//! | `$JS.API.STREAM.CREATE.KV_B` | making the bucket | somebody else must |
//!
//! | subscribe | for | without it |
//! |---|---|---|
//! | `incumbent.B.>`, or `incumbent.B.KEY` for a process with one election | hearing of changes | it polls |
//! | `$KV.B.>`, or `$KV.B.KEY` | the same, less well, where the bucket does not republish | it polls |
//!
//! Whoever may publish to `incumbent.B.KEY` can say that a leader stopped, so grant that to campaigners only.
//!
//! # What an operator may do
//! Deleting a key (`nats kv del`, `nats kv purge`) leaves a tombstone, which candidates wait out while the deposed leader
//! learns of it. Purging the key's *stream* (`nats stream purge --subject`) leaves nothing: a campaigner that has never
//! heard of the leader takes the key for one that was never used, and may lead beside it until its next renewal. Delete
//! keys, never messages.
//!
//! # Tokens
//! A token is a sequence of the stream. A bucket made here starts them at the wall clock in microseconds, so that they
//! go on growing when the bucket is deleted and made again (by this library).

mod api;
mod bucket;
mod codec;
mod config;
mod connection;
mod create;
mod error;
#[cfg(test)]
mod fuzz;
mod health;
mod listener;
mod lock;
mod message;
mod reply_inbox;
mod state;
mod stream;
mod time;

pub use bucket::Bucket;
pub use config::{BucketConfig, DEFAULT_BUCKET, DEFAULT_TTL, MAX_TTL, MIN_TTL, Storage};
pub use connection::{Connection, PermissionWatch, connect};
pub use error::{BucketError, BucketErrorKind};
pub use health::{Finding, Severity};
pub use lock::NatsLock;
