//! Elections on a real Kubernetes API server.
#![cfg(feature = "kubernetes")]

#[path = "../behaviour/mod.rs"]
mod behaviour;
mod clientgo;
mod faults;
mod fleet;
mod gate;
mod life;
mod life_faults;
mod life_scene;
mod office;
mod peer;
mod record;
mod rights;
mod scene;
mod suites;
