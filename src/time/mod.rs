//! Clocks, the timing of a lease, and timers.

pub mod clock;
#[cfg(any(
    feature = "_objects",
    feature = "kubernetes",
    feature = "nats",
    feature = "peer",
    feature = "postgres",
    feature = "sqlite"
))]
pub(crate) mod timer;
pub(crate) mod timing;
