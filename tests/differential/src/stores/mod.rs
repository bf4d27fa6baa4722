//! The real locks.

mod nats;

pub use nats::Nats;
