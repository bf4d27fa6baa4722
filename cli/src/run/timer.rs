//! Waiting on the clock of leases.

use incumbent::clock::{self, BootClock, Instant};

/// Waits until then. Cancel safe.
pub async fn sleep_until(instant: Instant) {
    clock::sleep_until(BootClock, instant).await;
}
