//! Leader election that keeps exactly one leader in office.
//!
//! Campaigners of an election share a [`Lock`](lock::Lock): an entry with a lifetime, in a NATS JetStream key-value
//! bucket ([`nats`]), or in process ([`memory`]). The one that creates the entry leads, after waiting out whoever
//! may still be leading, and renews it; the others stand by, silently where the lock tells them of changes.
//!
//! **At most one campaigner of an election leads at any instant**, whatever crashes, hangs, is partitioned, suspended
//! or delayed, as long as the campaigners' clocks run at nearly the same *rate*; they need not agree on the time. Each
//! term has a *fencing token* that is greater than every earlier one, for what is written to refuse a stale leader.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod clock;
mod driver;
mod election;
mod leadership;
pub mod lock;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
pub mod protocol;
mod telemetry;
mod term_end;

pub use election::{
    Change, Changes, Election, ElectionBuilder, Observer, StartError, Stopped, new_election,
    observe,
};
pub use leadership::{Leadership, Loss};
pub use lock::Token;
pub use protocol::{Backoff, BackoffPolicy, Cause, CoolDown, Leader, State};
