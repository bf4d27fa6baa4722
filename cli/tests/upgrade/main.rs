//! Upgrades and downgrades: members of the last release and of this one in one election, on every
//! lock.
//!
//! `scripts/build-last-release.sh` builds the program of the last release;
//! `INCUMBENT_LAST_RELEASE` names another one.
#![cfg(target_os = "linux")]

mod admin;
#[allow(dead_code, reason = "the tests of `run` use the rest")]
#[path = "../run/env.rs"]
mod env;
mod fleet;
mod group;
mod life;
mod locks;
mod place;
mod release;
mod worker;
