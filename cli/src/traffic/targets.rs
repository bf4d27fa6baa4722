//! All that directs requests to a leader, as one.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use incumbent::clock::Instant;

use super::address::AddressTarget;
use super::args::TrafficArgs;
use super::service::ServiceTarget;
use crate::lock_args::LockArgs;

/// The addresses of the leader, and what names its pod.
pub struct Targets {
    addresses: Vec<AddressTarget>,
    service: Option<ServiceTarget>,
}

impl Targets {
    /// Checks that requests can be directed here, and removes what an earlier process left.
    pub async fn open(args: TrafficArgs, lock: &LockArgs, lease: Duration) -> Result<Self, String> {
        let addresses = args.virtual_ip.into_iter().map(AddressTarget::new).collect();
        let service = args.service.open(lock).await.map_err(|error| error.to_string())?;
        let mut targets = Self { addresses, service };
        for address in &mut targets.addresses {
            address.clean().await?;
            address.check(lease).await?;
        }
        if let Some(service) = &mut targets.service {
            service.check().await.map_err(|error| error.to_string())?;
            service.clean().await?;
        }
        Ok(targets)
    }

    /// Directs requests here, until this time.
    pub async fn direct(&mut self, token: u64, until: Instant) -> Result<(), String> {
        try_join_all(self.addresses.iter_mut().map(|address| address.direct(until))).await?;
        match &mut self.service {
            Some(service) => service.direct(token, until).await,
            None => Ok(()),
        }
    }

    /// Continues until this time.
    pub async fn extend(&mut self, until: Instant) -> Result<(), String> {
        try_join_all(self.addresses.iter_mut().map(|address| address.extend(until))).await?;
        match &mut self.service {
            Some(service) => service.extend(until).await,
            None => Ok(()),
        }
    }

    /// Removes the addresses.
    pub async fn remove_addresses(&mut self) -> Result<(), String> {
        let removed = join_all(self.addresses.iter_mut().map(AddressTarget::withdraw)).await;
        removed.into_iter().collect()
    }

    /// Withdraws all but the addresses: no new requests come here, and those that are being served
    /// can end.
    pub async fn withdraw(&mut self) -> Result<(), String> {
        match &mut self.service {
            Some(service) => service.withdraw().await,
            None => Ok(()),
        }
    }
}
