//! Elections on a real Kubernetes API server.
#![cfg(feature = "kubernetes")]

#[macro_use]
extern crate incumbent_conformance as conformance;

mod admission;
mod answers;
#[cfg(feature = "nats")]
mod both;
#[cfg(feature = "nats")]
mod both_fleet;
mod busy_server;
mod clientgo;
mod clientgo_cut;
mod clientgo_model;
mod env;
mod faults;
mod fleet;
mod fresh;
mod in_pod;
mod life;
mod life_env;
mod life_faults;
mod life_release;
mod metrics;
#[path = "../metrics/seen.rs"]
#[allow(dead_code, reason = "shared with the tests of metrics alone")]
mod metrics_seen;
#[cfg(feature = "nats")]
#[allow(dead_code, reason = "shared with the tests of NATS alone")]
#[path = "../nats/env.rs"]
mod nats_env;
mod peer;
mod record;
mod relay;
mod requests;
mod rights;
mod roll_call;
mod service;
mod service_env;
mod status;
mod suite;
mod work_log;
