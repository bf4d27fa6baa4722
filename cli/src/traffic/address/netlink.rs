//! Addresses and interfaces of this host, by rtnetlink.
//!
//! Each call has a connection of its own: what a cancelled call did not send is never sent.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use incumbent::clock::{BootClock, Clock, Instant};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType};
use rtnetlink::{Error, Handle, new_connection};
use rustix::io::Errno;
use rustix::system::uname;

use super::neighbours::{Link, Mac};
use super::virtual_ip::VirtualIp;
use crate::background::BackgroundTask;

/// What marks an address as ours (`IFA_PROTO`, since Linux 5.18). The kernel has 0 to 3, and
/// routing daemons that use it have the numbers of /etc/iproute2/rt_protos.
const OURS: AddressProtocol = AddressProtocol::Other(108);

/// How late the kernel removes an address, apart from the granularity of its timer: it rounds the
/// time to a whole second if that is up to 0.25s later (`ADDRCONF_TIMER_FUZZ`), and looks once a
/// second at most (`ADDRCONF_TIMER_FUZZ_MAX`).
const KERNEL_DELAY: Duration = Duration::from_millis(1250);

/// A connection to the kernel.
pub struct Netlink {
    handle: Handle,
    _connection: BackgroundTask,
}

/// What this host has of a virtual IP.
pub struct Addresses {
    ours: Vec<AddressMessage>,
    /// The index of an interface where somebody else configured the address.
    foreign: Option<u32>,
    /// Another address on some interface has the same network, and so the route to it.
    pub covers_network: bool,
}

impl Netlink {
    pub fn open() -> Result<Self, String> {
        let (connection, handle, _) =
            new_connection().map_err(|error| format!("cannot open a netlink socket: {error}"))?;
        Ok(Self { handle, _connection: BackgroundTask(tokio::spawn(connection)) })
    }

    /// The interface, if it can carry an address now.
    pub async fn link(&self, name: &str) -> Result<Link, String> {
        let mut links = Box::pin(self.handle.link().get().match_name(name).execute());
        let link = match links.next().await {
            Some(Ok(link)) => link,
            Some(Err(error)) if !is(&error, Errno::NODEV) => {
                return Err(format!("cannot look up the interface {name}: {}", reason(&error)));
            }
            _ => return Err(format!("there is no interface {name} on this host")),
        };
        let mac = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Address(mac) => Mac::try_from(mac.as_slice()).ok(),
            _ => None,
        });
        let (LinkLayerType::Ether, Some(mac)) = (link.header.link_layer_type, mac) else {
            return Err(format!("the interface {name} is not one of an Ethernet"));
        };
        if !link.header.flags.contains(LinkFlags::Up) {
            return Err(format!("the interface {name} is down"));
        }
        if !link.header.flags.contains(LinkFlags::LowerUp) {
            return Err(format!("the interface {name} has no carrier"));
        }
        Ok(Link { index: link.header.index, name: name.to_owned(), mac })
    }

    /// Fails without CAP_NET_ADMIN in this network namespace, which the kernel checks first. No
    /// interface has the index 0.
    pub async fn check_permission(&self) -> Result<(), String> {
        let nothing = rtnetlink::AddressMessageBuilder::<Ipv4Addr>::new().build();
        match self.handle.address().del(nothing).execute().await {
            Err(error) if is(&error, Errno::PERM) => Err(denied()),
            _ => Ok(()),
        }
    }

    /// What this host has of the virtual IP, on any interface.
    pub async fn addresses(&self, ip: &VirtualIp) -> Result<Addresses, String> {
        let mut found = Addresses { ours: Vec::new(), foreign: None, covers_network: false };
        let mut listed = Box::pin(self.handle.address().get().execute());
        let next = |error: Error| format!("cannot list addresses: {}", reason(&error));
        while let Some(message) = listed.try_next().await.map_err(next)? {
            let Some(address) = address(&message) else { continue };
            if address != ip.address() {
                found.covers_network |= ip.shares_network(address, message.header.prefix_len);
            } else if is_ours(&message) {
                found.ours.push(message);
            } else {
                found.foreign = Some(message.header.index);
            }
        }
        Ok(found)
    }

    /// Adds the address, or extends its lifetime, until `until` at the latest. Returns false if too
    /// little time is left.
    pub async fn put(
        &self,
        ip: &VirtualIp,
        index: u32,
        covers_network: bool,
        until: Instant,
    ) -> Result<bool, String> {
        let mut request = self.handle.address().add(index, ip.address(), ip.prefix()).replace();
        let mut flags = AddressFlags::Nodad;
        if ip.address().is_ipv6() && covers_network {
            // The kernel would let the route of the network expire with this address.
            flags |= AddressFlags::Noprefixroute;
        }
        let mut times = CacheInfo::default();
        // The last step before the request: nothing here counts time while this process is
        // suspended.
        let seconds = lifetime(until.saturating_since(BootClock.now()));
        if seconds == 0 {
            return Ok(false);
        }
        times.ifa_valid = seconds;
        times.ifa_preferred = 0; // no connection from this host begins with an address that moves
        request.message_mut().attributes.extend([
            AddressAttribute::Flags(flags),
            AddressAttribute::CacheInfo(times),
            AddressAttribute::Protocol(OURS),
        ]);
        match request.execute().await {
            Ok(()) => {}
            Err(error) if is(&error, Errno::PERM) => return Err(denied()),
            Err(error) => return Err(format!("cannot add {ip}: {}", reason(&error))),
        }
        if BootClock.now() < until {
            return Ok(true);
        }
        self.remove(ip).await?; // this process was suspended meanwhile, or the kernel was slow
        Ok(false)
    }

    /// Removes the address, if it is ours.
    pub async fn remove(&self, ip: &VirtualIp) -> Result<(), String> {
        for message in self.addresses(ip).await?.ours {
            match self.handle.address().del(message).execute().await {
                Err(error) if is(&error, Errno::PERM) => return Err(denied()),
                Err(error) if !is(&error, Errno::ADDRNOTAVAIL) && !is(&error, Errno::NODEV) => {
                    return Err(format!("cannot remove {ip}: {}", reason(&error)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Addresses {
    #[cfg(test)]
    pub fn is_absent(&self) -> bool {
        self.ours.is_empty() && self.foreign.is_none()
    }

    pub fn refuse_foreign(&self, ip: &VirtualIp) -> Result<(), String> {
        match self.foreign {
            Some(index) => Err(format!(
                "{} is configured on this host already (interface {index}), not by incumbent: \
                 remove it",
                ip.address()
            )),
            None => Ok(()),
        }
    }
}

fn address(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    // IPv6 has a local one only for a peer.
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}

/// Whether this program added it.
fn is_ours(message: &AddressMessage) -> bool {
    let mark = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Protocol(mark) => Some(*mark),
        _ => None,
    });
    // Before Linux 5.18: an end, and not preferred, as nobody else configures addresses.
    let flags = message.header.flags;
    let looks_like_ours = flags.contains(AddressHeaderFlags::Deprecated)
        && !flags.contains(AddressHeaderFlags::Permanent);
    mark == Some(OURS) || (mark.is_none() && looks_like_ours && !knows_marks())
}

/// Whether the kernel shows marks of addresses.
fn knows_marks() -> bool {
    let name = uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return true };
    (major, minor) >= (5, 18)
}

fn denied() -> String {
    "a virtual IP needs CAP_NET_ADMIN: with systemd, AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW"
        .to_owned()
}

fn is(error: &Error, errno: Errno) -> bool {
    matches!(error, Error::NetlinkError(error) if error.raw_code() == -errno.raw_os_error())
}

fn reason(error: &Error) -> String {
    match error {
        Error::NetlinkError(error) => error.to_io().to_string(),
        error => error.to_string(),
    }
}

/// For how many seconds the kernel may be told to keep an address that must be gone after
/// `remaining`; 0 if it may not.
///
/// A timer of the kernel is late by up to 8/63 of its time, as its wheel has levels of 64 slots,
/// each eight times as coarse as the one before.
pub fn lifetime(remaining: Duration) -> u32 {
    let seconds = (remaining.saturating_sub(KERNEL_DELAY) * 7 / 8).as_secs();
    u32::try_from(seconds).unwrap_or(u32::MAX - 1) // the largest is for ever
}
