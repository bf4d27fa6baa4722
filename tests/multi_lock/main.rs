//! Elections on several locks.

#[path = "../conformance/mod.rs"]
mod conformance;
mod faults;
mod migration;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "nats")]
#[allow(dead_code, reason = "shared with the tests of NATS alone")]
#[path = "../nats/scene.rs"]
mod nats_scene;
mod needs;
mod scene;
mod simulated;
mod suites;
