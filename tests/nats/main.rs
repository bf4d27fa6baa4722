//! Elections on real nats-servers.
#![cfg(feature = "nats")]

#[path = "../behaviour/mod.rs"]
mod behaviour;
mod choria;
mod cluster;
mod entry;
mod hostile;
mod hostile_server;
mod log;
mod lost_replies;
mod outage;
mod raw;
mod rights;
mod scene;
mod suites;
#[cfg(feature = "url")]
mod url;
