//! The protocol machine under test, without a server, a runtime or a clock: single scenarios, in
//! virtual time. Random ones are in `tests/crates/sim`.

mod harness;
mod journal;

mod checkpoint;
mod cool_down;
mod crash_release;
mod fuzz;
mod handover;
mod histories;
mod incidents;
mod no_expiry;
mod refused;
mod regressions;
#[cfg(feature = "_history")]
mod replay;
mod sampling;
mod short_lease;
mod standby;
mod stated;
mod stepping_down;
mod tampering;
