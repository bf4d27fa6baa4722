//! Elections on several locks.

#[macro_use]
extern crate incumbent_conformance as conformance;

mod env;
mod faults;
mod leaders;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "nats")]
#[allow(dead_code, reason = "shared with the tests of NATS alone")]
#[path = "../nats/env.rs"]
mod nats_env;
mod needs;
mod simulated;
mod suite;
