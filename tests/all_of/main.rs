//! Elections on several locks.

#[path = "../behaviour/mod.rs"]
mod behaviour;
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
