//! Elections on object stores.
#![cfg(feature = "object-store")]

#[macro_use]
extern crate incumbent_conformance as conformance;

#[macro_use]
mod env;

mod azure;
mod entries;
mod faults;
mod fence;
mod go_entries;
mod kinds;
#[cfg(target_os = "linux")]
mod late_writes;
mod race;
mod suite;
mod vimeo;
