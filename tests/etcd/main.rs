//! Elections on real members of etcd.

#[macro_use]
extern crate incumbent_conformance as conformance;

mod access;
mod env;
mod faults;
mod foreign;
mod hints;
mod restored;
mod suite;
