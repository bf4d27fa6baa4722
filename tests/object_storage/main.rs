//! Elections on object stores.
#![cfg(feature = "object-store")]

#[macro_use]
extern crate incumbent_conformance as conformance;

mod azure;
mod entries;
mod env;
mod faults;
mod go_entries;
mod kinds;
mod race;
mod suite;
mod vimeo;
