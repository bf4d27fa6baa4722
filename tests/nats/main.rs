//! Elections on real nats-servers.
#![cfg(feature = "nats")]

#[path = "../behaviour/mod.rs"]
mod behaviour;
mod choria;
mod cluster;
mod entry;
mod lost_replies;
mod outage;
mod rights;
mod scene;
mod suites;
