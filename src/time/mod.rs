//! Clocks, the timing of a lease, and timers.

pub mod clock;
pub(crate) mod timer;
pub(crate) mod timing;
