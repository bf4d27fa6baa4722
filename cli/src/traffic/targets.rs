//! All that directs requests to a leader, as one.

use std::time::Duration;

use incumbent::clock::Instant;

use super::TrafficArgs;

/// The addresses, and what names this pod.
pub struct Targets {}

impl Targets {
    /// Checks that requests can be directed here, and removes what an earlier process left.
    pub async fn open(_args: TrafficArgs, _lease: Duration) -> Result<Self, String> {
        Ok(Self {})
    }

    /// Directs requests here, until this time.
    pub async fn direct(&mut self, _token: u64, _until: Instant) -> Result<(), String> {
        Ok(())
    }

    /// Continues until this time.
    pub async fn extend(&mut self, _until: Instant) -> Result<(), String> {
        Ok(())
    }

    /// Lets no new requests come here; the addresses stay for those that are being served.
    pub async fn drain(&mut self) -> Result<(), String> {
        self.withdraw().await
    }

    /// Removes the addresses.
    pub async fn remove_addresses(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Withdraws all but the addresses.
    pub async fn withdraw(&mut self) -> Result<(), String> {
        Ok(())
    }
}
