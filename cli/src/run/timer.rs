//! Timers on the clock of leases.

use incumbent::clock::{self, BootClock, Instant};

/// Waits until the instant. Cancel safe.
pub async fn sleep_until(instant: Instant) {
    clock::sleep_until(BootClock, instant).await;
}
