//! Leader election that keeps exactly one leader in office.
pub mod clock;
pub mod lock;
#[cfg(feature = "nats")]
pub mod nats;
