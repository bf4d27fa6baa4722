//! All that directs requests to a leader, as one.

use std::time::Duration;

use clap::Args;
use futures_util::future::{join_all, try_join_all};
use incumbent::clock::Instant;

use super::address::{AddressTarget, VirtualIp};
use super::service::{ServiceArgs, ServiceTarget};
use crate::lock::LockArgs;

/// How soon a withdrawal that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Parses the arguments of the program.
pub type ParseTraffic = fn(Vec<String>) -> Option<(TrafficArgs, LockArgs)>;

/// The flags of what directs requests to the leader.
#[derive(Debug, Clone, Default, Args)]
pub struct TrafficArgs {
    /// An address that this host has while it leads, as in 10.0.0.5/24@eth0. Repeat it for several.
    ///
    /// It is added when a term begins, and removed before the lock is released, and before the
    /// deadline in any case: by a process of its own if this one is killed or hangs, and by the
    /// kernel if all are. Hosts of the network are told at once. It needs a lease of 5s or more,
    /// CAP_NET_ADMIN and CAP_NET_RAW, which COMMAND does not get.
    #[arg(long, value_name = "ADDRESS/PREFIX@INTERFACE", help_heading = "Traffic")]
    virtual_ip: Vec<VirtualIp>,
    #[command(flatten)]
    service: ServiceArgs,
}

impl TrafficArgs {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.virtual_ip.is_empty() && self.service.is_empty()
    }

    /// Whether COMMAND is to lose the capabilities of the network.
    pub fn has_addresses(&self) -> bool {
        !self.virtual_ip.is_empty()
    }
}

/// The addresses of the leader, and what names its pod.
pub struct Targets {
    addresses: Vec<AddressTarget>,
    service: Option<ServiceTarget>,
    /// No new requests are to come here in this term.
    drains: bool,
}

impl Targets {
    /// Removes what an earlier process left, and checks that requests can be directed here.
    /// `cleaned`: no address is left, nor with another process that has not ended.
    pub async fn open(
        args: TrafficArgs,
        lock: &LockArgs,
        lease: Duration,
        cleaned: impl FnOnce(),
    ) -> Result<Self, String> {
        let service = args.service.open(lock).await.map_err(|error| error.to_string())?;
        let addresses = args.virtual_ip.into_iter().map(AddressTarget::new).collect();
        let mut targets = Self { addresses, service, drains: false };
        let removed = join_all(targets.addresses.iter_mut().map(AddressTarget::clean)).await;
        if removed.iter().all(|removed| *removed == Ok(true)) {
            cleaned();
        }
        if let Some(service) = &mut targets.service {
            service.clean().await?;
        }
        removed.into_iter().try_for_each(|removed| removed.map(drop))?;
        if let Some(service) = &targets.service {
            service.check().await.map_err(|error| error.to_string())?;
        }
        for address in &targets.addresses {
            address.check(lease).await?;
        }
        Ok(targets)
    }

    /// Directs requests here, until this time.
    pub async fn direct(&mut self, token: u64, until: Instant) -> Result<(), String> {
        self.drains = false;
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
            Some(_) if self.drains => {
                self.drain().await;
                Ok(())
            }
            Some(service) => service.extend(until).await,
            None => Ok(()),
        }
    }

    /// Lets no new requests come here. The addresses stay, for those that are being served. What
    /// fails is tried again by `extend`.
    pub async fn drain(&mut self) {
        self.drains = true;
        if let Some(service) = self.service.as_mut().filter(|service| service.is_left()) {
            let _ = service.withdraw().await;
        }
    }

    /// Withdraws what could not be withdrawn in time at the end of a term. Cancel safe.
    pub async fn settle(&mut self) {
        while let Some(service) = self.service.as_mut().filter(|service| service.is_left()) {
            tokio::time::sleep(RETRY).await;
            let _ = service.withdraw().await;
        }
    }

    /// The addresses, and the rest.
    pub fn parts(&mut self) -> (&mut [AddressTarget], Option<&mut ServiceTarget>) {
        (&mut self.addresses, self.service.as_mut())
    }
}

/// Removes the addresses.
pub async fn withdraw(addresses: &mut [AddressTarget]) -> Result<(), String> {
    let removed = join_all(addresses.iter_mut().map(AddressTarget::withdraw)).await;
    removed.into_iter().collect()
}
