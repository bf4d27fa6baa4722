//! `--lock kubernetes`: elections and leaders for life in a Kubernetes namespace.

mod console;
mod create;
mod doctor;
mod elections;
mod env;
mod evictions;
mod life;
mod members;
mod proxy;
mod refusals;
#[path = "../../../../tests/kubernetes/requests.rs"]
mod requests;
mod rights;
mod sentinel;
mod service;

pub use env::{SERVE, TestEnv};
