//! When work is stopped, as the processes of a candidate tell each other.

use std::time::Duration;

use incumbent::clock::{BootClock, Instant};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// When work is stopped without a later request: by a request to end, and by force. All processes
/// of a machine read the same clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopTimes {
    #[serde(serialize_with = "to_nanos", deserialize_with = "from_nanos")]
    pub ask_at: Instant,
    #[serde(serialize_with = "to_nanos", deserialize_with = "from_nanos")]
    pub kill_at: Instant,
}

pub fn to_nanos<S: Serializer>(instant: &Instant, to: S) -> Result<S::Ok, S::Error> {
    u64::try_from(instant.since_origin().as_nanos()).unwrap_or(u64::MAX).serialize(to)
}

pub fn from_nanos<'d, D: Deserializer<'d>>(from: D) -> Result<Instant, D::Error> {
    u64::deserialize(from).map(|nanos| Instant::from_origin(Duration::from_nanos(nanos)))
}

/// Waits until the instant; forever without one. Cancel safe.
pub async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => incumbent::clock::sleep_until(BootClock, until).await,
        None => std::future::pending().await,
    }
}
