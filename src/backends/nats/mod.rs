//! Elections in a JetStream key-value bucket of NATS.
//!
//! An election is a key. The value is the leader's identity, as plain text, so any client displays
//! the leader, and Choria's candidates can share the bucket. All else is in headers of the message.
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
//! # Requirements
//! nats-server 2.10 or later with JetStream. From 2.11 on, an entry can have its own TTL, so one
//! bucket can hold elections with different leases, and the server announces expired entries.
//!
//! # Permissions
//! A candidate on bucket `B` publishes to these subjects and subscribes to its inbox:
//!
//! | publish | for | without it |
//! |---|---|---|
//! | `$KV.B.KEY` | every write | it cannot lead |
//! | `$JS.API.STREAM.INFO.KV_B` | opening the bucket | it cannot open it |
//! | `$JS.API.STREAM.MSG.GET.KV_B` | reading | it cannot verify a write whose response was lost |
//! | `incumbent.B.KEY` | step-down notices | the next leader waits longer after an eviction |
//! | `incumbent-roll-call.B.KEY`, `incumbent-control.B.KEY`, `incumbent-answer.B.KEY.*` | roll calls, handovers and their answers | it hands over to nobody, and no roll call finds it |
//! | `$JS.API.STREAM.CREATE.KV_B` | creating the bucket | the bucket must exist |
//!
//! | subscribe | for | without it |
//! |---|---|---|
//! | `incumbent.B.>`, or `incumbent.B.KEY` for a process with one election | receiving changes | it polls |
//! | `incumbent-roll-call.B.>`, `incumbent-control.B.>`, `incumbent-answer.B.>` | roll calls, handovers and their answers | as above |
//! | `$KV.B.>`, or `$KV.B.KEY` | changes, less reliably, if the bucket does not republish | it polls |
//!
//! A process that may publish to `incumbent.B.KEY` can announce that a leader stopped, so grant
//! this permission to candidates only.
//!
//! # Operator actions
//! Deleting a key (`nats kv del`, `nats kv purge`) leaves a tombstone: candidates wait until the
//! former leader has noticed it. Purging the key's *stream* (`nats stream purge --subject`) leaves
//! nothing, nor does a purge with a TTL of its own once that is over: a candidate that has never
//! observed the leader takes the key for an unused one, and may lead at the same time as the leader
//! until the leader's next renewal. Delete keys, never messages.
//!
//! # Tokens
//! A token is a sequence of the stream. A bucket that this library creates starts its sequences at
//! the wall clock in microseconds, so that tokens keep growing when this library deletes and
//! creates the bucket again.

mod admin;
mod api;
mod bucket;
mod checkpoints;
mod codec;
mod config;
mod connection;
mod create;
mod error;
mod events;
#[cfg(test)]
mod fuzz;
mod health;
mod jetstream;
mod listener;
mod lock;
mod options;
mod reply_inbox;
mod roll_call;
mod settings;
mod state;
mod stream;
mod subscription_plan;
mod time;
mod user_credentials;

pub use crate::lock::{Finding, Severity};
/// The client library that [`connect`] and [`Connection`] take their types from.
#[doc(no_inline)]
pub use async_nats;
pub use bucket::Bucket;
pub(crate) use codec::{EXPECTED, OPERATION, TTL};
#[cfg(feature = "url")]
pub(crate) use config::MAX_QUEUE_GROUPS;
pub use config::{BucketConfig, DEFAULT_BUCKET, DEFAULT_TTL, MAX_TTL, MIN_TTL, Storage};
pub use connection::{Connection, connect};
pub use error::{AdminFailure, BucketError, BucketErrorKind};
pub use events::PermissionWatch;
pub(crate) use jetstream::{JetStream, Published, StreamFailure};
pub use lock::NatsLock;
pub(crate) use lock::check_key;
pub use options::{TlsFiles, connect_options, with_servers};
pub use settings::{ConnectionSettings, Credentials};
pub(crate) use stream::StreamConfig;
