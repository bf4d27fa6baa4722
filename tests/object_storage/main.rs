//! Elections on object stores.
#![cfg(feature = "object-store")]

mod azure;
#[path = "../conformance/mod.rs"]
mod conformance;
mod entries;
mod env;
mod faults;
mod go_entries;
mod kinds;
mod race;
mod suite;
mod vimeo;
