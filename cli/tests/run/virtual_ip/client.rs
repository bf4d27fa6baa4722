//! What a client of the address sees: who answers for it, and which leader takes its writes.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use incumbent_test_support::Namespace;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::bind;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, eth, ipproto, recv, send, sendto,
    socket_with, sockopt,
};

/// How often it asks.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// How long a connection may take to the leader: without one nothing refuses it.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// A hardware address.
type Mac = [u8; 6];

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Who answered the last question, by hardware address.
    pub answers: Vec<Mac>,
    /// Who answered the last question for the address of IPv6.
    pub answers_v6: Vec<Mac>,
    /// Questions with two answers.
    pub twice: Vec<String>,
    /// The greatest token.
    pub token: u64,
    pub writes: u64,
    /// Writes that were answered with a smaller token than one before.
    pub disorder: Vec<String>,
    /// When the last echo arrived, and the longest time without one since it was reset.
    pub echo: Option<Instant>,
    pub silence: Duration,
}

/// The threads of the client. They end when it is dropped.
pub struct Client {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Client {
    /// Starts them on this host, which has an interface `eth0`.
    pub fn start(
        host: &Namespace,
        address: Ipv4Addr,
        address_v6: Ipv6Addr,
        port: Option<u16>,
    ) -> Self {
        let (seen, stop) = (Arc::default(), Arc::default());
        let mut client = Self { seen, stop, threads: Vec::new() };
        let arp = host.run(arp_socket);
        let mac = host.run(|| mac_of("eth0"));
        client.repeat(move |seen| {
            let answers = ask(&arp, mac, address);
            let mut seen = lock(seen);
            seen.note(address.into(), &answers);
            seen.answers = answers;
        });
        let (discovery, index) = host.run(discovery_socket);
        client.repeat(move |seen| {
            let answers = solicit(&discovery, index, mac, address_v6);
            let mut seen = lock(seen);
            seen.note(address_v6.into(), &answers);
            seen.answers_v6 = answers;
        });
        let icmp = host.run(icmp_socket);
        let mut sequence = 0_u16;
        client.repeat(move |seen| {
            sequence = sequence.wrapping_add(1);
            ping(seen, &icmp, address, sequence);
        });
        if let Some(port) = port {
            let host = host.path();
            let mut inside = false;
            client.repeat(move |seen| {
                if !std::mem::replace(&mut inside, true) {
                    Namespace::enter_path(&host);
                }
                write(seen, (address, port).into());
            });
        }
        client
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }

    fn repeat(&mut self, mut step: impl FnMut(&Mutex<Seen>) + Send + 'static) {
        let (seen, stop) = (Arc::clone(&self.seen), Arc::clone(&self.stop));
        self.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let next = Instant::now() + INTERVAL;
                step(&seen);
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic has been printed
        }
    }
}

impl Seen {
    fn note(&mut self, address: IpAddr, answers: &[Mac]) {
        if answers.len() > 1 {
            self.twice.push(format!("{address}: {answers:x?}"));
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock()
}

/// Whether the socket has something until then.
fn has_input(socket: &OwnedFd, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let Ok(left) = Timespec::try_from(left) else { return false };
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut fds, Some(&left)).is_ok_and(|ready| ready > 0)
}

fn arp_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(eth::ARP));
    let socket = socket.expect("CAP_NET_RAW");
    let index = if_nametoindex("eth0").expect("eth0");
    let links = getifaddrs().expect("interfaces").filter_map(|interface| interface.address);
    let of_link = |link: &nix::sys::socket::SockaddrStorage| {
        link.as_link_addr().is_some_and(|link| link.ifindex() == index as usize)
    };
    let link = links.into_iter().find(of_link).expect("eth0");
    bind(socket.as_raw_fd(), &link).expect("eth0");
    socket
}

fn mac_of(interface: &str) -> Mac {
    let links = getifaddrs().expect("interfaces");
    let mut of_name = links.filter(|link| link.interface_name == interface);
    of_name
        .find_map(|link| link.address.and_then(|address| address.as_link_addr()?.addr()))
        .expect("a hardware address")
}

/// As arping does: one question, and all who answer it. Its sender has no address, so that no host
/// learns one.
fn ask(socket: &OwnedFd, mac: Mac, address: Ipv4Addr) -> Vec<Mac> {
    let mut frame = Vec::new();
    frame.extend([0xff; 6]);
    frame.extend(mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend([0; 10]);
    frame.extend(address.octets());
    discard(socket);
    let _ = send(socket, &frame, SendFlags::empty()); // its own link may be down
    answers(socket, |reply| {
        // To us: an announcement is to all.
        let is_answer = reply.get(..6)? == mac
            && reply.get(20..22)? == [0, 2]
            && reply.get(28..32)? == address.octets();
        is_answer.then(|| reply.get(22..28)).flatten()
    })
}

fn discovery_socket() -> (OwnedFd, u32) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET6, SocketType::RAW, flags, Some(ipproto::ICMPV6));
    let socket = socket.expect("CAP_NET_RAW");
    sockopt::set_ipv6_multicast_hops(&socket, 255).expect("IPv6");
    (socket, if_nametoindex("eth0").expect("eth0"))
}

/// Asks by neighbour discovery who has an address of IPv6. Returns those that answer.
fn solicit(socket: &OwnedFd, index: u32, mac: Mac, address: Ipv6Addr) -> Vec<Mac> {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(address.octets());
    message.extend([1, 1]);
    message.extend(mac);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    discard(socket);
    let to = SocketAddrV6::new(all_nodes, 0, 0, index);
    let _ = sendto(socket, &message, SendFlags::empty(), &to);
    answers(socket, |reply| {
        let is_solicited = reply.get(4)? & 0x40 != 0; // an announcement is not
        let is_answer =
            reply.first()? == &136 && is_solicited && reply.get(8..24)? == address.octets();
        is_answer.then(|| reply.get(26..32)).flatten()
    })
}

/// Forgets announcements, and answers to an earlier question.
fn discard(socket: &OwnedFd) {
    while recv(socket, &mut [0; 256][..], RecvFlags::empty()).is_ok() {}
}

/// All who answer within half of the interval.
fn answers(socket: &OwnedFd, sender: impl Fn(&[u8]) -> Option<&[u8]>) -> Vec<Mac> {
    let (mut buffer, mut answers) = ([0; 256], Vec::new());
    let until = Instant::now() + INTERVAL / 2;
    while has_input(socket, until) {
        let Ok((_, length)) = recv(socket, &mut buffer[..], RecvFlags::empty()) else { break };
        let reply = buffer.get(..length).unwrap_or_default();
        if let Some(Ok(sender)) = sender(reply).map(Mac::try_from)
            && !answers.contains(&sender)
        {
            answers.push(sender);
        }
    }
    answers
}

fn icmp_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::ICMP));
    socket.expect("CAP_NET_RAW")
}

/// One echo request. An answer to an earlier one counts too.
fn ping(seen: &Mutex<Seen>, socket: &OwnedFd, address: Ipv4Addr, sequence: u16) {
    let [high, low] = sequence.to_be_bytes();
    let sum = !checksum(&[0x0800, u16::from_be_bytes([high, low])]);
    let [sum_high, sum_low] = sum.to_be_bytes();
    let request = [8, 0, sum_high, sum_low, 0, 0, high, low];
    let _ = sendto(socket, &request, SendFlags::empty(), &SocketAddr::from((address, 0)));
    let mut buffer = [0; 256];
    if has_input(socket, Instant::now() + INTERVAL / 2) {
        while let Ok((_, length)) = recv(socket, &mut buffer[..], RecvFlags::empty()) {
            let packet = buffer.get(..length).unwrap_or_default();
            // An echo reply after a header of 20 bytes, from the address.
            if packet.get(20) == Some(&0) && packet.get(12..16) == Some(&address.octets()) {
                let now = Instant::now();
                let mut seen = lock(seen);
                let before = seen.echo.replace(now).unwrap_or(now);
                seen.silence = seen.silence.max(now - before);
            }
        }
    }
}

fn checksum(words: &[u16]) -> u16 {
    words.iter().fold(0, |sum, word| {
        let (sum, carried) = sum.overflowing_add(*word);
        sum + u16::from(carried)
    })
}

/// One write: the leader that takes it responds with its token, in a line.
fn write(seen: &Mutex<Seen>, to: SocketAddr) {
    let Ok(mut stream) = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT) else { return };
    let _ = stream.set_read_timeout(Some(CONNECT_TIMEOUT));
    let mut line = String::new();
    if stream.read_to_string(&mut line).is_err() {
        return;
    }
    let Ok(token) = line.trim().parse::<u64>() else { return };
    let mut seen = lock(seen);
    seen.writes += 1;
    if token < seen.token {
        let before = seen.token;
        seen.disorder.push(format!("{token} after {before}"));
    }
    seen.token = seen.token.max(token);
}

/// What a leader runs: responds to each connection with the token of its term.
pub fn serve(port: u16) {
    let token = std::env::var("INCUMBENT_TOKEN").expect("a term");
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("a port");
    for mut stream in listener.incoming().flatten() {
        let _ = writeln!(stream, "{token}"); // or the client is gone
    }
}
