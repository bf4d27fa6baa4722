//! What hosts of a link know of each other: ARP (RFC 826, RFC 5227) and neighbour discovery (RFC
//! 4861).

use std::fmt;
use std::fs;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::libc::in6_pktinfo;
use nix::sys::socket::sockopt::{Ipv6RecvHopLimit, Ipv6RecvPacketInfo};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, bind, recvmsg, setsockopt};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, eth, ipproto, recv, send, sendto,
    socket_with, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

/// How long to wait for the answer of a host that has the address. Answers take a millisecond on a
/// local network; this delays the start of a term.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(30);
/// A probe may be lost.
const PROBES: u32 = 2;
/// The most packets that came before the socket was bound: more than its buffer holds.
const MAX_EARLY: u32 = 10_000;

const ARP_REQUEST: u8 = 1;
const ARP_REPLY: u8 = 2;
const ARP_FRAME: usize = 42;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const IS_ROUTER: u8 = 0x80;
const OVERRIDE: u8 = 0x20;
/// Neighbour discovery requires it: a router that passes a message on takes one away.
const HOPS: u8 = 255;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mac([u8; 6]);

const BROADCAST: Mac = Mac([0xff; 6]);
const NO_MAC: Mac = Mac([0; 6]);

impl TryFrom<&[u8]> for Mac {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An interface.
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Mac,
}

/// The other hosts on the link of an address.
pub struct Neighbours {
    socket: AsyncFd<OwnedFd>,
    mac: Mac,
    protocol: Protocol,
}

enum Protocol {
    Arp {
        address: Ipv4Addr,
    },
    Discovery {
        address: Ipv6Addr,
        interface: u32,
        /// A router that calls itself a host is dropped from the routes of the others.
        is_router: bool,
    },
}

#[allow(deprecated, reason = "its successor is unsafe; an owned descriptor stays registered")]
fn registered(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(socket, Interest::READABLE)
}

impl Neighbours {
    /// Fails without CAP_NET_RAW.
    pub fn open(link: &Link, address: IpAddr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, protocol) = match address {
            IpAddr::V4(address) => {
                let arp = Some(eth::ARP);
                let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, arp)?;
                let of_link = getifaddrs()?
                    .filter_map(|interface| interface.address)
                    .find(|address| {
                        let link_address = address.as_link_addr();
                        link_address.is_some_and(|own| own.ifindex() == link.index as usize)
                    })
                    .ok_or(Errno::NODEV)?;
                bind(socket.as_raw_fd(), &of_link)?;
                // Until then it received what comes on other links, too.
                let mut buffer = [0; 1];
                for _ in 0..MAX_EARLY {
                    if recv(&socket, &mut buffer, RecvFlags::empty()) == Err(Errno::WOULDBLOCK) {
                        break;
                    }
                }
                (socket, Protocol::Arp { address })
            }
            IpAddr::V6(address) => {
                let icmp = Some(ipproto::ICMPV6); // the kernel computes its checksum
                let socket = socket_with(AddressFamily::INET6, SocketType::RAW, flags, icmp)?;
                sockopt::set_ipv6_multicast_hops(&socket, u32::from(HOPS))?;
                sockopt::set_ipv6_unicast_hops(&socket, Some(HOPS))?;
                setsockopt(&socket, Ipv6RecvHopLimit, &true)?;
                setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
                let forwarding = format!("/proc/sys/net/ipv6/conf/{}/forwarding", link.name);
                let forwarding = fs::read_to_string(forwarding).unwrap_or_default();
                let is_router = !["", "0"].contains(&forwarding.trim());
                (socket, Protocol::Discovery { address, interface: link.index, is_router })
            }
        };
        Ok(Self { socket: registered(socket)?, mac: link.mac, protocol })
    }

    /// The other host that answers for the address.
    pub async fn probe(&self) -> io::Result<Option<Mac>> {
        for _ in 0..PROBES {
            match self.ask() {
                // This host has no address of its own yet to ask from.
                Err(error)
                    if [Errno::ADDRNOTAVAIL, Errno::NETUNREACH]
                        .iter()
                        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) =>
                {
                    return Ok(None);
                }
                asked => asked?,
            }
            let answer = timeout_at(Instant::now() + ANSWER_TIMEOUT, self.answer()).await;
            if let Ok(answer) = answer {
                return answer.map(Some);
            }
        }
        Ok(None)
    }

    fn ask(&self) -> io::Result<()> {
        match self.protocol {
            Protocol::Arp { address } => {
                // A probe names no sender, so that it changes no cache.
                self.send_arp(ARP_REQUEST, Ipv4Addr::UNSPECIFIED, NO_MAC, address)
            }
            Protocol::Discovery { address, .. } => {
                let [.., a, b, c] = address.octets();
                let (high, low) = (0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
                let solicited_node = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low);
                self.send_discovery(SOLICITATION, 0, solicited_node)
            }
        }
    }

    /// Waits for the answer of another host. Cancel safe.
    pub async fn answer(&self) -> io::Result<Mac> {
        let mut buffer = [0; 256];
        loop {
            let length = self
                .socket
                .async_io(Interest::READABLE, |socket| self.receive(socket, &mut buffer))
                .await?;
            let received = buffer.get(..length).unwrap_or_default();
            if let Some(mac) = self.sender(received).filter(|mac| *mac != self.mac) {
                return Ok(mac);
            }
        }
    }

    /// The length of a message; 0 if no host of the link has sent it.
    fn receive(&self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        let Protocol::Discovery { interface, .. } = self.protocol else {
            return Ok(recv(socket, buffer, RecvFlags::empty())?.0); // it is bound to the link
        };
        let mut control = nix::cmsg_space!(i32, in6_pktinfo);
        let (mut parts, flags) = ([IoSliceMut::new(buffer)], MsgFlags::empty());
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let (mut is_direct, mut is_of_link) = (false, false);
        for received in message.cmsgs()? {
            match received {
                ControlMessageOwned::Ipv6HopLimit(hops) => is_direct = hops == i32::from(HOPS),
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    is_of_link = info.ipi6_ifindex == interface;
                }
                _ => {}
            }
        }
        Ok(if is_direct && is_of_link { message.bytes } else { 0 })
    }

    /// Who answers for the address, if this does.
    fn sender(&self, received: &[u8]) -> Option<Mac> {
        match self.protocol {
            Protocol::Arp { address } => {
                let is_arp = received.get(12..18)? == [8, 6, 0, 1, 8, 0];
                let sender = received.get(28..32)?;
                (is_arp && sender == address.octets()).then(|| received.get(22..28))?
            }
            Protocol::Discovery { address, .. } => {
                let is_advertisement = received.first() == Some(&ADVERTISEMENT);
                let target = received.get(8..24)?;
                let option = received.get(24..26).unwrap_or_default();
                // One without the option is an answer too.
                match (is_advertisement && target == address.octets(), option) {
                    (true, [2, 1]) => received.get(26..32),
                    (true, _) => Some(&NO_MAC.0[..]),
                    (false, _) => None,
                }
            }
        }
        .and_then(|mac| Mac::try_from(mac).ok())
    }

    /// Tells all hosts that this one has the address.
    pub fn announce(&self) -> io::Result<()> {
        match self.protocol {
            Protocol::Arp { address } => {
                // Some hosts take an announcement from a request only, others from a reply.
                self.send_arp(ARP_REQUEST, address, NO_MAC, address)?;
                self.send_arp(ARP_REPLY, address, BROADCAST, address)
            }
            Protocol::Discovery { is_router, .. } => {
                let flags = if is_router { IS_ROUTER | OVERRIDE } else { OVERRIDE };
                self.send_discovery(ADVERTISEMENT, flags, ALL_NODES)
            }
        }
    }

    fn send_arp(
        &self,
        operation: u8,
        sender: Ipv4Addr,
        target_mac: Mac,
        target: Ipv4Addr,
    ) -> io::Result<()> {
        let mut frame = Vec::with_capacity(ARP_FRAME);
        frame.extend(BROADCAST.0);
        frame.extend(self.mac.0);
        frame.extend([8, 6]); // ARP
        frame.extend([0, 1, 8, 0, 6, 4, 0, operation]); // of Ethernet and IPv4
        frame.extend(self.mac.0);
        frame.extend(sender.octets());
        frame.extend(target_mac.0);
        frame.extend(target.octets());
        send(&self.socket, &frame, SendFlags::empty())?;
        Ok(())
    }

    fn send_discovery(&self, kind: u8, flags: u8, to: Ipv6Addr) -> io::Result<()> {
        let Protocol::Discovery { address, interface, .. } = self.protocol else { return Ok(()) };
        let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
        message.extend(address.octets());
        // The hardware address of the source or of the target, in units of 8 bytes.
        message.extend([if kind == SOLICITATION { 1 } else { 2 }, 1]);
        message.extend(self.mac.0);
        let to = SocketAddrV6::new(to, 0, 0, interface);
        sendto(&self.socket, &message, SendFlags::empty(), &to)?;
        Ok(())
    }
}
