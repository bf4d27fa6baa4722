//! Elections by a quorum of peers.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use incumbent::lock_url::NamedPeers;
use incumbent::peer::{Dns, Peer, PeerSource};

use super::context::CheckContext;
use super::report::Report;
use crate::text::one_line;
use crate::time_format;

const ADDRESS: &str = "address";
const PEERS: &str = "peers";
const SIGNED: &str = "signed";
const QUORUM: &str = "quorum";

/// How long to listen: members say hello each second.
const LISTENS: Duration = Duration::from_secs(3);
/// Too light to be elected while anybody else is there.
const LIGHTEST: f64 = f64::MIN_POSITIVE;

/// Examines the address, where the others are, and how many are heard.
pub async fn check(named: &NamedPeers, context: CheckContext<'_>, report: &mut Report) {
    let bound = address(named, report);
    let known = known(named, report).await;
    settings(named, &known, context.lease, report);
    if bound && named.quorum > 1 {
        hear(named, &known, context.timeout, report).await;
    }
}

/// Whether a member can listen there.
fn address(named: &NamedPeers, report: &mut Report) -> bool {
    let bind = named.bind;
    match UdpSocket::bind(bind) {
        Ok(socket) => {
            let bound = socket.local_addr().unwrap_or(bind);
            report.ok(ADDRESS, format!("a member can listen on {bound}"));
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            report.ok(
                ADDRESS,
                format!("somebody listens on {bind}: another member cannot, beside that one"),
            );
        }
        Err(error) => {
            report.error(
                ADDRESS,
                format!(
                    "a member cannot listen on {bind}: {error}; name an address of this machine"
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
            let message = "a member listens on every address of this machine, and datagrams are not signed: who reaches the port can elect and vote; name one address, or a key-file";
            report.warning(SIGNED, message);
        }
        None => {
            let ip = bind.ip();
            report.ok(SIGNED, format!("datagrams are not signed: {ip} must be on a network of members only; see key-file"));
        }
    }
    true
}

/// All addresses that are listed, or that the name has.
async fn known(named: &NamedPeers, report: &mut Report) -> BTreeSet<SocketAddr> {
    let mut known: BTreeSet<SocketAddr> = named.peers.iter().copied().collect();
    if let Some((host, port)) = &named.dns {
        match Dns::new(host, *port).addresses().await {
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
        report
            .error(PEERS, "none is known, so none is found unless it finds us; tell peers or dns");
    }
    known
}

fn settings(
    named: &NamedPeers,
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
        wrong("one voter is the group: nobody takes over from it; take three".to_owned());
    } else if size.is_multiple_of(2) {
        let less = size - 1;
        wrong(format!(
            "of {size} voters {least} must run: {less} stand as many failures; take an odd number"
        ));
    }
    if u32::try_from(known.len()).is_ok_and(|known| known > size) {
        let known = known.len();
        wrong(format!(
            "{known} addresses are known, and never more than {size} voters may run at once; see quorum"
        ));
    }
    if fine {
        report.ok(QUORUM, format!("of {size} voters {least} must run"));
    }
    if let (Some(id), Some(voters)) = (&named.id, &named.voters)
        && !voters.contains(id)
    {
        report.error(QUORUM, format!("{id:?} is none of the voters; see id and voters"));
    }
    if let (Some(told), Some(longest)) = (lease, named.lease)
        && told > longest
    {
        let (told, longest) = (time_format::span(told), time_format::span(longest));
        report.error(
            QUORUM,
            format!("a lease of {told} is longer than the longest, {longest}; see --lease"),
        );
    }
}

/// Says hello without a vote, and counts who answers.
async fn hear(
    named: &NamedPeers,
    known: &BTreeSet<SocketAddr>,
    timeout: Duration,
    report: &mut Report,
) {
    // At any port: members answer to where a hello came from, and one of them may listen at the named one.
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
    let heard = || peer.members().len().saturating_sub(1); // without us
    let everybody = async { while heard() < all && changes.next().await.is_some() {} };
    let _ = tokio::time::timeout(LISTENS.min(timeout), everybody).await;
    let heard = heard();
    peer.stop().await;
    let told = format!("{heard} of {all} are heard");
    if heard >= least {
        report.ok(PEERS, format!("{told}: a majority"));
    } else {
        let fix = "start them, and let UDP through";
        report.warning(PEERS, format!("{told}, and there is no leader without {least}; {fix}"));
    }
}
