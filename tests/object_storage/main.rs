//! Elections on object stores.
#![cfg(feature = "object-store")]

mod azure;
#[path = "../conformance/mod.rs"]
mod conformance;
mod entries;
mod env;
mod faults;
mod gate;
mod go_entries;
mod kinds;
mod race;
mod raw;
mod server;
mod suites;
mod vimeo;
