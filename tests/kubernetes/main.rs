//! Elections on a real Kubernetes API server.
#![cfg(feature = "kubernetes")]

#[path = "../behaviour/mod.rs"]
mod behaviour;
mod clientgo;
mod faults;
mod fleet;
mod gate;
mod office;
mod peer;
mod record;
mod rights;
mod scene;
mod suites;
