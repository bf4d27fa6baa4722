//! Elections on several locks.

#[macro_use]
extern crate incumbent_conformance as conformance;

mod env;
mod faults;
mod leaders;
mod migration;
mod needs;
mod simulated;
mod suite;
