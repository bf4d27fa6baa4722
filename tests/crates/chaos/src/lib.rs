//! Attacks elections on a real cluster of nats-servers, and checks that at most one candidate leads
//! at any instant.
//!
//! - [`run`]: three servers, five candidates of ours (and in some rounds one that behaves as
//!   Choria's do), each a process in a network namespace of its own; one [`fault`] after the other.
//! - [`journal`]: the one log that all of them write to, on one clock.
//! - [`history`]: what the protocol of each process took in and returned, and the same replayed.
//! - [`checker`]: reads all that, and reports broken promises.
//!
//! `make chaos` runs it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod admin;
pub mod attack;
pub mod candidate;
pub mod checker;
pub mod choria_like;
pub mod clock;
pub mod env;
pub mod fault;
pub mod fenced_store;
pub mod fleet;
pub mod history;
pub mod journal;
pub mod net;
pub mod plan;
pub mod run;
pub mod server;
pub mod table;
