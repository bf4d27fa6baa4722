//! Elections in SQL databases: on real PostgreSQL servers, and in SQLite files.

#[path = "../conformance/mod.rs"]
mod conformance;
mod env;
mod failover;
mod file;
mod listening;
#[path = "../conformance/listening.rs"]
mod listening_suite;
mod names;
mod postgres;
mod restored;
mod sqlite;
mod suite;
mod synchronous;
mod tls;
mod trust;
