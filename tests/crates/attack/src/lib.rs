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
pub mod judge;
mod plans;

mod faults {
    mod filter;
    pub mod namespaces;
    pub mod net;
    pub mod strike;
    pub mod table;
}

mod load {
    pub mod admin;
    pub mod candidate;
    pub mod choria_like;
    pub mod fleet;
    pub mod many;
    pub mod members;
    pub mod server;
}

pub mod record {
    //! What the processes of a run write down.

    pub mod fenced_store;
    pub mod history;
    pub mod journal;
}
