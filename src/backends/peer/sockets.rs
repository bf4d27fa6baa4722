//! Sockets of a member.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket as StdSocket};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

/// The maximum size of a UDP datagram in bytes.
pub(super) const MAX_DATAGRAM_LEN: usize = 65_536;

/// The multicast address of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Multicast {
    pub group: SocketAddrV4,
    /// The address of the interface; unspecified: the system's choice.
    pub interface: Ipv4Addr,
}

#[derive(Debug)]
pub(super) struct Sockets {
    pub main: UdpSocket,
    pub multicast: Option<UdpSocket>,
}

impl Sockets {
    /// Opens the sockets. Requires a tokio runtime.
    pub fn open(bind: SocketAddr, multicast: Option<Multicast>) -> io::Result<Self> {
        let shared = multicast.is_some_and(|multicast| multicast.group.port() == bind.port());
        let main = socket(bind, shared)?;
        if let Some(multicast) = multicast {
            main.set_multicast_if_v4(&multicast.interface)?;
        }
        let main = into_tokio(main)?;
        let multicast = multicast.map(|multicast| {
            // On Linux a socket that is bound to the group's address receives nothing else.
            let ip = if cfg!(unix) { *multicast.group.ip() } else { Ipv4Addr::UNSPECIFIED };
            let socket = socket(SocketAddrV4::new(ip, multicast.group.port()).into(), true)?;
            socket.join_multicast_v4(multicast.group.ip(), &multicast.interface)?;
            into_tokio(socket)
        });
        Ok(Self { main, multicast: multicast.transpose()? })
    }

    /// Returns the address at which `peer` reaches a member that is bound to `bound`. Sends
    /// nothing.
    pub fn seen_from(bound: SocketAddr, peer: SocketAddr) -> Option<SocketAddr> {
        if !bound.ip().is_unspecified() {
            return Some(bound);
        }
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let probe = StdSocket::bind((any, 0)).ok()?;
        probe.connect(peer).ok()?;
        let ip = probe.local_addr().ok()?.ip();
        (!ip.is_unspecified()).then(|| SocketAddr::new(ip, bound.port()))
    }
}

fn socket(bind: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(bind), Type::DGRAM, Some(Protocol::UDP))?;
    if shared {
        socket.set_reuse_address(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&bind.into())?;
    Ok(socket)
}

fn into_tokio(socket: Socket) -> io::Result<UdpSocket> {
    UdpSocket::from_std(socket.into())
}

/// Receives a datagram on either socket; the last value is whether it was sent to the multicast
/// address. Cancel safe.
pub(super) async fn receive(
    sockets: &Sockets,
    buffer: &mut [u8],
) -> io::Result<(usize, SocketAddr, bool)> {
    let Some(multicast) = &sockets.multicast else {
        let (length, from) = sockets.main.recv_from(buffer).await?;
        return Ok((length, from, false));
    };
    loop {
        let (socket, to_all) = tokio::select! {
            ready = sockets.main.readable() => { ready?; (&sockets.main, false) }
            ready = multicast.readable() => { ready?; (multicast, true) }
        };
        match socket.try_recv_from(buffer) {
            Ok((length, from)) => return Ok((length, from, to_all)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
