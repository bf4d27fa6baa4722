//! An IP address that moves with the leadership.
//!
//! The kernel itself removes the address, if no process of ours can: each address has a lifetime
//! that ends before the term does. So it is gone in time also where all processes are suspended or
//! dead. An address that this program added is marked, so that a later run finds what was left, and
//! nobody else's address is ever removed.

mod neighbours;
mod netlink;
#[cfg(test)]
mod tests;
mod virtual_ip;

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use tokio::time::sleep;

use self::neighbours::Neighbours;
use self::netlink::{Addresses, Netlink};
pub use self::virtual_ip::VirtualIp;
use crate::process::BackgroundTask;

/// The shortest lease with which an address is kept from one renewal to the next. Beside Choria's
/// candidates, whose terms last three quarters of the lease, it takes 7s.
pub const SHORTEST_LEASE: Duration = Duration::from_secs(5);

/// When to announce the address, after the start of a term. A frame may be lost, and a switch may
/// have no path yet.
const ANNOUNCEMENTS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(750),
    Duration::from_secs(2),
];

/// How long to try to claim an address: another process may be about to end, or look for what was
/// left.
const CLAIM: Duration = Duration::from_millis(100);
const CLAIM_RETRY: Duration = Duration::from_millis(10);

/// Directs an address to this host.
pub struct AddressTarget {
    ip: VirtualIp,
    /// The indexes of interfaces where it was put and not removed since: another one may have got
    /// the name.
    put_on: Vec<u32>,
    /// From before the address is put until it is known to be removed.
    claim: Option<UnixListener>,
    /// Ends with the term.
    announcing: Option<BackgroundTask>,
}

impl AddressTarget {
    pub fn new(ip: VirtualIp) -> Self {
        Self { ip, put_on: Vec::new(), claim: None, announcing: None }
    }

    /// Refuses what cannot work: a missing interface, a missing permission, an address that is
    /// configured on this host.
    ///
    /// It does not ask other hosts, as a leader answers rightly: [`Self::direct`] does.
    pub async fn check(&self, lease: Duration) -> Result<(), String> {
        if lease < SHORTEST_LEASE {
            return Err(format!(
                "a virtual IP needs a lease of {}s or more: the kernel counts the lifetime of an \
                 address in seconds",
                SHORTEST_LEASE.as_secs()
            ));
        }
        let netlink = Netlink::open()?;
        let link = netlink.link(self.ip.interface()).await?;
        netlink.check_permission().await?;
        Neighbours::open(&link, self.ip.address()).map_err(|error| self.wire(&error))?;
        netlink.addresses(&self.ip).await?.refuse_foreign(&self.ip)
    }

    /// Removes the address if an earlier run left it.
    ///
    /// `Ok(true)` proves that this host has no address of ours: the kernel said so, and no other
    /// process of this host could add one meanwhile. `Ok(false)` proves nothing: another process
    /// that has not ended has claimed the address. It may lead, and removes the address itself, or
    /// it was killed and cannot end yet.
    pub async fn clean(&mut self) -> Result<bool, String> {
        if !self.claim().await? {
            return Ok(false);
        }
        self.withdraw().await?;
        Ok(true)
    }

    /// Claims the address on this host, for as long as this process lives or until it is removed.
    /// Returns false if another process has it.
    ///
    /// The name is one of the network namespace. Any user there may bind it, and so deny the
    /// address to this host.
    async fn claim(&mut self) -> Result<bool, String> {
        let name = format!("incumbent/virtual-ip/{}", self.ip.address());
        let until = BootClock.now() + CLAIM;
        while self.claim.is_none() {
            let name = SocketAddr::from_abstract_name(&name);
            match name.and_then(|name| UnixListener::bind_addr(&name)) {
                Ok(claim) => self.claim = Some(claim),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    return Err(format!("cannot claim {}: {error}", self.ip.address()));
                }
                Err(_) if until <= BootClock.now() => return Ok(false),
                Err(_) => sleep(CLAIM_RETRY).await,
            }
        }
        Ok(true)
    }

    /// Adds the address and announces it. Fails if another host answers for it, or another process
    /// of this host has claimed it.
    ///
    /// The address is gone at `until` at the latest, and up to an eighth of the time and 2.2 s
    /// earlier unless it is extended.
    pub async fn direct(&mut self, until: Instant) -> Result<(), String> {
        self.announcing = None;
        if !self.claim().await? {
            return Err(format!(
                "another candidate of this host has {}: it must end or withdraw first",
                self.ip.address()
            ));
        }
        let netlink = Netlink::open()?;
        let link = netlink.link(self.ip.interface()).await?;
        let found = netlink.addresses(&self.ip).await?;
        found.refuse_foreign(&self.ip)?;
        let neighbours =
            Neighbours::open(&link, self.ip.address()).map_err(|error| self.wire(&error))?;
        // A former leader of this election has it no more.
        if let Some(other) = neighbours.probe().await.map_err(|error| self.wire(&error))? {
            return Err(format!(
                "{} is in use by another host on {}, with {other}: remove it there",
                self.ip.address(),
                self.ip.interface()
            ));
        }
        if !self.put(&netlink, link.index, &found, until).await? {
            return Err(format!("too little is left of the term to add {}", self.ip));
        }
        let announce = async move {
            let mut before = Duration::ZERO;
            for at in ANNOUNCEMENTS {
                sleep(at - before).await;
                before = at;
                announce(&neighbours, until);
            }
        };
        self.announcing = Some(BackgroundTask(tokio::spawn(announce)));
        Ok(())
    }

    /// Extends the lifetime of the address, and announces it to hosts that missed that before.
    ///
    /// Fails if the interface is down or gone. It may be repeated with the same `until`: the kernel
    /// then removes the address later, but always before `until`.
    pub async fn extend(&mut self, until: Instant) -> Result<(), String> {
        let netlink = Netlink::open()?;
        let link = netlink.link(self.ip.interface()).await?;
        let found = netlink.addresses(&self.ip).await?;
        found.refuse_foreign(&self.ip)?;
        if self.put(&netlink, link.index, &found, until).await? {
            let neighbours = Neighbours::open(&link, self.ip.address());
            announce(&neighbours.map_err(|error| self.wire(&error))?, until);
        }
        Ok(())
    }

    /// Removes the address, if this process may have it: `Ok` proves that the kernel has none of
    /// ours then. Without the claim it is of another process, which may lead.
    pub async fn withdraw(&mut self) -> Result<(), String> {
        self.announcing = None;
        let netlink = Netlink::open()?;
        for index in &self.put_on {
            netlink.delete(&self.ip, *index).await?; // whatever a list of addresses has
        }
        if self.claim.is_some() {
            netlink.remove_leftovers(&self.ip).await?;
        }
        self.put_on.clear();
        self.claim = None;
        Ok(())
    }

    async fn put(
        &mut self,
        netlink: &Netlink,
        index: u32,
        found: &Addresses,
        until: Instant,
    ) -> Result<bool, String> {
        if !self.put_on.contains(&index) {
            self.put_on.push(index); // before the request, which may be cut off
        }
        netlink.put(&self.ip, index, found.covers_network, until).await
    }

    fn wire(&self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "a virtual IP needs CAP_NET_RAW: with systemd, AmbientCapabilities=CAP_NET_ADMIN \
                 CAP_NET_RAW"
                    .to_owned()
            }
            _ => format!("cannot announce {}: {error}", self.ip),
        }
    }
}

/// Announces the address, unless this process was suspended beyond the term. A failure is one of
/// the link, whose next announcement may succeed.
fn announce(neighbours: &Neighbours, until: Instant) {
    if BootClock.now() < until {
        let _ = neighbours.announce();
    }
}
