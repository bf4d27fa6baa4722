//! Elections on real nats-servers.
#![cfg(feature = "nats")]

mod choria;
mod cluster;
#[path = "../conformance/mod.rs"]
mod conformance;
mod counted_hints;
mod duplicates;
mod entry;
mod env;
mod hostile;
mod hostile_server;
mod lock;
mod log;
mod lost_replies;
mod outage;
mod queue_groups;
mod raw;
mod rights;
mod roll_call;
mod suite;
#[cfg(feature = "url")]
mod tls;
mod topologies;
#[cfg(feature = "url")]
mod url;
