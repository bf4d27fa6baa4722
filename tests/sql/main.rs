//! Elections in SQL databases: on real PostgreSQL servers, and in SQLite files.

#[path = "../behaviour/mod.rs"]
mod behaviour;
mod failover;
mod file;
mod gate;
#[path = "../behaviour/listening.rs"]
mod heard;
mod listening;
mod names;
mod postgres;
mod scene;
mod sqlite;
mod suites;
mod synchronous;
mod tls;
mod trust;
