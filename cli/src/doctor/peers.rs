//! Checks of a group of peers.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use incumbent::lock_url::PeerGroup;
use incumbent::peer::{DnsSource, Peer, PeerSource};

use super::context::CheckContext;
use super::report::Report;
use crate::error::one_line;
use crate::output::time_format;

const ADDRESS: &str = "address";
const PEERS: &str = "peers";
const SIGNED: &str = "signed";
const QUORUM: &str = "quorum";

/// How long to listen: members send a hello each second.
const LISTENED_FOR: Duration = Duration::from_secs(3);
/// Too light to be elected beside any other member.
const LIGHTEST: f64 = f64::MIN_POSITIVE;

/// Checks the address, the other members' addresses, and how many respond.
pub async fn check(named: &PeerGroup, context: CheckContext<'_>, report: &mut Report) {
    let bound = address(named, report);
    let known = known(named, report).await;
    settings(named, &known, context.lease, report);
    if bound && named.quorum > 1 {
        count_members(named, &known, context.timeout, report).await;
    }
}

/// Whether a member can listen there.
fn address(named: &PeerGroup, report: &mut Report) -> bool {
    let bind = named.bind;
    match UdpSocket::bind(bind) {
        Ok(socket) => {
            let bound = socket.local_addr().unwrap_or(bind);
            report.ok(ADDRESS, format!("a member can listen on {bound}"));
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            report
                .ok(ADDRESS, format!("already in use: {bind}; another member cannot listen there"));
        }
        Err(error) => {
            report.error(
                ADDRESS,
                format!(
                    "a member cannot listen on {bind}: {error}; use an address of this machine"
                ),
            );
            return false;
        }
    }
    match &named.key_file {
        Some(file) => {
            report.ok(SIGNED, format!("datagrams are signed by the keys of {}", file.display()));
        }
        None if bind.ip().is_unspecified() => {
            let message = "a member listens on every address of this machine, and datagrams are not signed: every process that reaches the port can vote; set one address, or a key-file";
            report.warning(SIGNED, message);
        }
        None => {
            let ip = bind.ip();
            report.ok(SIGNED, format!("datagrams are not signed: {ip} must be on a network of members only; see key-file"));
        }
    }
    true
}

/// All listed addresses, and those of the DNS name.
async fn known(named: &PeerGroup, report: &mut Report) -> BTreeSet<SocketAddr> {
    let mut known: BTreeSet<SocketAddr> = named.peers.iter().copied().collect();
    if let Some((host, port)) = &named.dns {
        match DnsSource::new(host, *port).addresses().await {
            Ok(found) if found.is_empty() => {
                report.error(PEERS, format!("{host} has no IPv4 address"));
            }
            Ok(found) => {
                report.ok(PEERS, format!("{host} has {} addresses", found.len()));
                known.extend(found);
            }
            Err(error) => report.error(PEERS, one_line(&error)),
        }
    }
    if known.is_empty() && named.quorum > 1 {
        report.error(
            PEERS,
            "no address is known, so other members must find this one; set peers or dns",
        );
    }
    known
}

fn settings(
    named: &PeerGroup,
    known: &BTreeSet<SocketAddr>,
    lease: Option<Duration>,
    report: &mut Report,
) {
    let size = named.quorum;
    let least = size / 2 + 1;
    let mut fine = true;
    let mut wrong = |message: String| {
        report.warning(QUORUM, message);
        fine = false;
    };
    if size == 1 {
        wrong("a single voter has no successor; use three".to_owned());
    } else if size.is_multiple_of(2) {
        let less = size - 1;
        wrong(format!(
            "of {size} voters {least} must run: {less} tolerate as many failures; use an odd number"
        ));
    }
    if u32::try_from(known.len()).is_ok_and(|known| known > size) {
        let known = known.len();
        wrong(format!(
            "{known} addresses are known, but at most {size} voters may run at once; see quorum"
        ));
    }
    if fine {
        report.ok(QUORUM, format!("of {size} voters {least} must run"));
    }
    if let (Some(id), Some(voters)) = (&named.id, &named.voters)
        && !voters.contains(id)
    {
        report.error(QUORUM, format!("{id:?} is not one of the voters; see id and voters"));
    }
    if let (Some(lease), Some(max)) = (lease, named.lease)
        && lease > max
    {
        let (lease, max) = (time_format::span(lease), time_format::span(max));
        report.error(QUORUM, format!("a lease of {lease} exceeds the maximum, {max}; see --lease"));
    }
}

/// Sends a hello without a vote, and counts the responses.
async fn count_members(
    named: &PeerGroup,
    known: &BTreeSet<SocketAddr>,
    timeout: Duration,
    report: &mut Report,
) {
    // From any port: members respond to the sender, and a member may listen on the configured port.
    let from: SocketAddr = match named.bind {
        SocketAddr::V4(v4) if v4.ip().is_loopback() => (*v4.ip(), 0).into(),
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let listed: Vec<SocketAddr> = known.iter().copied().collect();
    let mut peer = Peer::builder().bind(from).peers(listed).weight(LIGHTEST);
    if let Some(file) = &named.key_file {
        peer = peer.key_file(file);
    }
    let peer = match peer.start() {
        Ok(peer) => peer,
        Err(error) => return report.error(PEERS, one_line(&error)),
    };
    let least = usize::try_from(named.quorum / 2 + 1).unwrap_or(usize::MAX);
    let all = usize::try_from(named.quorum).unwrap_or(usize::MAX);
    let mut changes = peer.changes();
    let count = || peer.members().len().saturating_sub(1); // without this process
    let all_respond = async { while count() < all && changes.next().await.is_some() {} };
    let _ = tokio::time::timeout(LISTENED_FOR.min(timeout), all_respond).await;
    let responding = count();
    peer.stop().await;
    let seen = format!("{responding} of {all} respond");
    if responding >= least {
        report.ok(PEERS, format!("{seen}: a majority"));
    } else {
        let fix = "start them, and allow UDP";
        report.warning(PEERS, format!("{seen}, and there is no leader without {least}; {fix}"));
    }
}
