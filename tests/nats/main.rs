//! Elections on real nats-servers.
#![cfg(feature = "nats")]

#[macro_use]
extern crate incumbent_conformance as conformance;

mod checkpoint;
mod choria;
#[cfg(feature = "url")]
mod credentials;
mod entry;
mod env;
mod fence;
mod hostile;
mod hostile_server;
#[cfg(target_os = "linux")]
mod late_writes;
mod lock;
mod log;
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
