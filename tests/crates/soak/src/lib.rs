//! Elections by the thousand on a cluster of three nats-servers that are restarted one after the
//! other, and what it costs those who campaign; and a set whose members are attacked.

mod fleet;
pub mod sets;
mod soak;
mod terms;
mod worker;

pub use soak::{Plan, Report, soak};
pub use terms::{Term, faults};
pub use worker::{Said, Work, work};
