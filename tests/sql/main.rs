//! Elections in SQL databases: on real PostgreSQL servers, and in SQLite files.

#[macro_use]
extern crate incumbent_conformance as conformance;

mod env;
mod failover;
mod fence;
#[cfg(all(unix, feature = "tower"))]
mod fence_cost;
mod file;
#[cfg(all(unix, feature = "tower"))]
mod late_writes;
mod listening;
mod names;
mod postgres;
mod restored;
mod sqlite;
mod suite;
mod synchronous;
mod tls;
mod trust;
