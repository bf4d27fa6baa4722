//! `incumbent sentinel`, and the sentinel of `incumbent run`: a crashed leader is replaced long
//! before its lease is over, and never while its work continues.
#![cfg(target_os = "linux")]

mod container;
mod crashes;
mod doctor;
#[allow(dead_code, reason = "the tests of `run` use the rest")]
#[path = "../run/env.rs"]
mod env;
mod flags;
mod guard;
mod listening;
mod locks;
mod messages;
mod program;
#[allow(dead_code, reason = "the tests of `run` use the rest")]
#[path = "../run/root.rs"]
mod root;
mod setup;
mod socket;
mod tree;
