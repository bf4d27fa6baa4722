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
use self::netlink::Netlink;
pub use self::virtual_ip::VirtualIp;
use crate::background::BackgroundTask;

/// The shortest lease with which an address is kept from one renewal to the next.
pub const SHORTEST_LEASE: Duration = Duration::from_secs(5);

/// When to announce the address, after the begin of a term. A frame may be lost, and a switch may
/// have no path yet.
const ANNOUNCEMENTS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(750),
    Duration::from_secs(2),
];

/// Directs an address to this host.
pub struct AddressTarget {
    ip: VirtualIp,
    /// A term began here, and the address was not removed since.
    is_directed: bool,
    claim: Option<UnixListener>,
    /// Ends with the term.
    announcing: Option<BackgroundTask>,
}

impl AddressTarget {
    pub fn new(ip: VirtualIp) -> Self {
        Self { ip, is_directed: false, claim: None, announcing: None }
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

    /// Removes the address if an earlier run left it. One of another process that is alive stays:
    /// it may lead.
    pub async fn clean(&mut self) -> Result<(), String> {
        let claim = self.claim();
        match claim.as_ref().map_err(io::Error::kind) {
            Err(io::ErrorKind::AddrInUse) if !self.is_directed => Ok(()),
            _ => self.withdraw().await,
        }
    }

    /// What tells other processes of this host that this one has the address. It ends with the
    /// process. The name is one of the network namespace.
    fn claim(&self) -> io::Result<UnixListener> {
        let name = format!("incumbent/virtual-ip/{}", self.ip);
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
    }

    /// Adds the address and announces it. Fails if another host answers for it.
    ///
    /// The address is gone at `until` at the latest, and up to an eighth of the time and two
    /// seconds earlier unless it is extended.
    pub async fn direct(&mut self, _token: u64, until: Instant) -> Result<(), String> {
        self.announcing = None;
        self.is_directed = true;
        self.claim = self.claim.take().or_else(|| self.claim().ok());
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
        if !netlink.put(&self.ip, link.index, found.covers_network, until).await? {
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
        if netlink.put(&self.ip, link.index, found.covers_network, until).await? {
            let neighbours = Neighbours::open(&link, self.ip.address());
            announce(&neighbours.map_err(|error| self.wire(&error))?, until);
        }
        Ok(())
    }

    /// Removes the address.
    pub async fn withdraw(&mut self) -> Result<(), String> {
        self.announcing = None;
        Netlink::open()?.remove(&self.ip).await?;
        (self.is_directed, self.claim) = (false, None);
        Ok(())
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
