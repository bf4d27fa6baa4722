//! Elections on object stores.
#![cfg(feature = "object-store")]

#[macro_use]
extern crate incumbent_conformance as conformance;

mod azure;
mod entries;
mod env;
mod faults;
mod fence;
mod go_entries;
mod kinds;
#[cfg(target_os = "linux")]
mod late_writes;
mod race;
mod suite;
mod vimeo;
