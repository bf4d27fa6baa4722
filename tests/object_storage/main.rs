//! Elections on object stores.
#![cfg(feature = "object-store")]

mod azure;
#[path = "../conformance/mod.rs"]
mod conformance;
mod entries;
mod faults;
mod gate;
mod go_entries;
mod kinds;
mod race;
mod raw;
mod scene;
mod server;
mod suites;
mod vimeo;
