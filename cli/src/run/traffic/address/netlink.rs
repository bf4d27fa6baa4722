//! Addresses and interfaces of this host, by rtnetlink.
//!
//! Each call has a connection of its own: what a cancelled call did not send is never sent. Nothing
//! counts as done, and no list as complete, unless the kernel says so.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::clock::{BootClock, Clock, Instant};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkMessage, NetlinkPayload,
};
use rtnetlink::{Handle, new_connection};
use rustix::io::Errno;
use rustix::system::uname;

use super::neighbours::{Link, Mac};
use super::virtual_ip::VirtualIp;
use crate::process::BackgroundTask;

/// What marks an address as ours (`IFA_PROTO`, since Linux 5.18). The kernel has 0 to 3, and
/// routing daemons that use it have the numbers of /etc/iproute2/rt_protos.
const OURS: AddressProtocol = AddressProtocol::Other(108);

/// How late the kernel removes an address, apart from the granularity of its timer: it rounds the
/// time to a whole second if that is up to 0.25s later (`ADDRCONF_TIMER_FUZZ`), and looks once a
/// second at most (`ADDRCONF_TIMER_FUZZ_MAX`).
const KERNEL_DELAY: Duration = Duration::from_millis(1250);

/// How often to list the addresses of the host while they change.
const LISTINGS: u32 = 10;

/// How the kernel says that there is no such address: on this interface, no such interface, or no
/// address of IPv6 at all on it.
const ABSENT: [Errno; 3] = [Errno::ADDRNOTAVAIL, Errno::NODEV, Errno::NXIO];

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
        let (mut connection, handle, _) =
            new_connection().map_err(|error| format!("cannot open a netlink socket: {error}"))?;
        connection.set_forward_ack(true);
        connection.set_forward_done(true);
        Ok(Self { handle, _connection: BackgroundTask(tokio::spawn(connection)) })
    }

    /// Returns the responses to a request, if the kernel has performed it and they are all.
    async fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let cut = || io::Error::other("the kernel did not respond in full");
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        let mut responses = self.handle.clone().request(request).map_err(|_| cut())?;
        let mut all = Vec::new();
        while let Some(response) = responses.next().await {
            if response.header.flags & NLM_F_DUMP_INTR != 0 {
                return Err(Errno::INTR.into());
            }
            match response.payload {
                NetlinkPayload::InnerMessage(message) => all.push(message),
                NetlinkPayload::Done(done) if done.code == 0 => return Ok(all),
                NetlinkPayload::Done(done) => {
                    return Err(io::Error::from_raw_os_error(done.code.saturating_abs()));
                }
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(all),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => break,
            }
        }
        Err(cut()) // the connection ended, or lost messages
    }

    /// The interface, if it can carry an address now.
    pub async fn link(&self, name: &str) -> Result<Link, String> {
        let mut of_name = LinkMessage::default();
        of_name.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let found = self.request(RouteNetlinkMessage::GetLink(of_name), NLM_F_ACK).await;
        let link = match found.map(|links| links.into_iter().next()) {
            Ok(Some(RouteNetlinkMessage::NewLink(link))) => link,
            Err(error) if !is(&error, Errno::NODEV) => {
                return Err(format!("cannot look up the interface {name}: {error}"));
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
        let mut nothing = AddressMessage::default();
        nothing.header.family = AddressFamily::Inet;
        match self.request(RouteNetlinkMessage::DelAddress(nothing), NLM_F_ACK).await {
            Err(error) if is(&error, Errno::PERM) => Err(denied()),
            Err(error) if error.raw_os_error().is_none() => {
                Err(format!("cannot look up the permission to add addresses: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// What this host has of the virtual IP, on any interface.
    pub async fn addresses(&self, ip: &VirtualIp) -> Result<Addresses, String> {
        let mut listed = Err(Errno::INTR.into());
        for _ in 0..LISTINGS {
            let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
            listed = self.request(all, NLM_F_DUMP).await;
            if !listed.as_ref().is_err_and(|error| is(error, Errno::INTR)) {
                break;
            }
        }
        let listed = listed.map_err(|error| format!("cannot list addresses: {error}"))?;
        let mut found = Addresses { ours: Vec::new(), foreign: None, covers_network: false };
        for message in listed {
            let RouteNetlinkMessage::NewAddress(message) = message else { continue };
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
        let mut flags = AddressFlags::Nodad;
        if ip.address().is_ipv6() && covers_network {
            // The kernel would let the route of the network expire with this address.
            flags |= AddressFlags::Noprefixroute;
        }
        let mut times = CacheInfo::default();
        times.ifa_preferred = 0; // no connection from this host begins with an address that moves
        let seconds = || lifetime(until.saturating_since(BootClock.now()));
        let mut left = seconds();
        if left == 0 {
            return Ok(false);
        }
        while left > 0 {
            times.ifa_valid = left;
            let mut message = self.message(ip, index);
            message.attributes.extend([
                AddressAttribute::Flags(flags),
                AddressAttribute::CacheInfo(times),
                AddressAttribute::Protocol(OURS),
            ]);
            let message = RouteNetlinkMessage::NewAddress(message);
            let put = self.request(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE).await;
            put.map_err(|error| failure(&format!("cannot add {ip}"), &error))?;
            // The kernel counts from when it performs the request, which may have been late: then
            // this shortens the lifetime.
            left = seconds();
            if times.ifa_valid <= left {
                return Ok(true);
            }
        }
        self.delete(ip, index).await?;
        Ok(false)
    }

    /// Removes the address from an interface where this process put it.
    pub async fn delete(&self, ip: &VirtualIp, index: u32) -> Result<(), String> {
        self.delete_message(ip, self.message(ip, index)).await
    }

    /// Removes what others that run this program left of the address.
    pub async fn remove_leftovers(&self, ip: &VirtualIp) -> Result<(), String> {
        for message in self.addresses(ip).await?.ours {
            self.delete_message(ip, message).await?;
        }
        Ok(())
    }

    async fn delete_message(&self, ip: &VirtualIp, message: AddressMessage) -> Result<(), String> {
        match self.request(RouteNetlinkMessage::DelAddress(message), NLM_F_ACK).await {
            Ok(_) => Ok(()),
            Err(error) if ABSENT.iter().any(|errno| is(&error, *errno)) => Ok(()),
            Err(error) => Err(failure(&format!("cannot remove {ip}"), &error)),
        }
    }

    fn message(&self, ip: &VirtualIp, index: u32) -> AddressMessage {
        self.handle.address().add(index, ip.address(), ip.prefix()).message_mut().clone()
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

fn failure(what: &str, error: &io::Error) -> String {
    if is(error, Errno::PERM) { denied() } else { format!("{what}: {error}") }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

/// For how many seconds the kernel may be told to keep an address that must be gone after
/// `remaining`; 0 if it may not.
///
/// A timer of the kernel is late by up to 8/63 of its time, as its wheel has levels of 64 slots,
/// each eight times as coarse as the one before.
pub fn lifetime(remaining: Duration) -> u32 {
    let seconds = (remaining.saturating_sub(KERNEL_DELAY) * 7 / 8).as_secs();
    u32::try_from(seconds).unwrap_or(u32::MAX - 1) // the largest is forever
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_ends_proves_nothing() {
        let ip: VirtualIp = "10.0.0.5/24@eth0".parse().expect("valid");
        let until = BootClock.now() + Duration::from_secs(60);
        let cut = || {
            let (connection, handle, _) = new_connection().expect("a socket");
            // The request is queued before this task runs.
            let ends = tokio::spawn(async move { drop(connection) });
            Netlink { handle, _connection: BackgroundTask(ends) }
        };
        for why in [
            cut().addresses(&ip).await.map(|_| ()),
            cut().remove_leftovers(&ip).await,
            cut().delete(&ip, 1).await,
            cut().put(&ip, 1, false, until).await.map(|_| ()),
            cut().link("eth0").await.map(|_| ()),
            cut().check_permission().await,
        ] {
            let why = why.expect_err("no response");
            assert!(why.contains("the kernel did not respond in full"), "{why}");
        }
    }
}
