//! Elections in SQL databases: on real PostgreSQL servers, and in SQLite files.

#[path = "../behaviour/mod.rs"]
mod behaviour;
mod failover;
mod file;
mod gate;
mod postgres;
mod scene;
mod sqlite;
mod suites;
mod tls;
