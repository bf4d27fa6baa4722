//! Groups of peers: with members of the npm package `democracy`, with faults between them, and with
//! a quorum.

#[macro_use]
extern crate incumbent_conformance as conformance;

mod delayed_messages;
mod env;
mod faults;
mod hostile;
#[path = "../nats/log.rs"]
#[allow(dead_code)]
mod log;
mod lossy_network;
mod multicast;
mod node;
mod quorum;
mod replay;
#[cfg(feature = "kubernetes")]
#[path = "../kubernetes/requests.rs"]
mod requests;
#[cfg(feature = "kubernetes")]
mod service;
mod signed;
mod slow_network;
mod sources;
mod suite;
#[cfg(feature = "url")]
mod url;
mod with_node;
