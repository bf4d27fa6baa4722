//! Elections on several locks.

#[path = "../behaviour/mod.rs"]
mod behaviour;
mod faults;
mod migration;
mod needs;
mod scene;
mod suites;
