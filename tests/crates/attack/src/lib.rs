//! Attacks elections and sets on real servers, and checks that at most one candidate leads at any
//! instant.
//!
//! - `load`: the servers, and the processes that campaign on them.
//! - `faults`: what is done to them, and to the network between them.
//! - [`record`]: the one journal that all of them write to, on one clock; what the protocol of each
//!   took in and returned; a store that tokens fence.
//! - [`judge`]: reads all that, and reports broken promises.
//! - `plans`: combine them. `make chaos` runs one, `make soak` the others.

#![forbid(unsafe_code)]

pub mod cli;
mod faults;
pub mod judge;
mod load;
mod plans;
pub mod record;
