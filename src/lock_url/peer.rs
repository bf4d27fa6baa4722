//! `peer:[ADDRESS:]PORT?peers=…&quorum=…`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use crate::backends::peer::{DnsSource, Peer, PeerStartError, QuorumStartError};
use crate::lock::Lock;

/// The members of a group that a `peer:` URL names, for whoever examines them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PeerGroup {
    /// Where this one is to listen.
    pub bind: SocketAddr,
    /// The others, as far as they are listed.
    pub peers: Vec<SocketAddr>,
    /// A name, and the port of all its addresses.
    pub dns: Option<(String, u16)>,
    /// The name of this one.
    pub id: Option<String>,
    /// How many voters there are.
    pub quorum: u32,
    /// The names of all that vote.
    pub voters: Option<Vec<String>>,
    /// The longest lease.
    pub lease: Option<Duration>,
    /// The file of the keys by which they sign.
    pub key_file: Option<PathBuf>,
}

/// Names the key file of a URL that names none.
const KEY_FILE: &str = "INCUMBENT_PEER_KEY_FILE";

#[derive(Debug, Clone)]
pub(super) struct PeerTarget {
    pub named: PeerGroup,
    /// Whether it has no vote.
    only_looks: bool,
    shown: String,
}

impl PeerTarget {
    pub fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let here = parts.place().trim_start_matches('/');
        let port = here.parse().map(|port: u16| (Ipv4Addr::UNSPECIFIED, port).into());
        let bind = port.or_else(|_| here.parse());
        let bind = bind.map_err(|_| {
            parts.malformed(
                "it names no port to listen at, as peer:12345 and peer:10.0.0.3:12345 do",
            )
        })?;
        let listed = parts.take("peers").unwrap_or_default();
        let peers: Result<Vec<SocketAddr>, _> =
            listed.split(',').filter(|peer| !peer.is_empty()).map(str::parse).collect();
        let peers = peers.map_err(|_| {
            parts.malformed(
                "peers are addresses with ports, as in peers=10.0.0.4:12345,10.0.0.5:12345",
            )
        })?;
        let dns = match parts.take("dns") {
            None => None,
            Some(told) => {
                let named = told
                    .rsplit_once(':')
                    .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
                let rule = || {
                    parts.malformed("dns is a name and a port, as in dns=peers.example.net:12345")
                };
                Some(named.ok_or_else(rule)?)
            }
        };
        let quorum = parts.take("quorum").and_then(|told| told.parse().ok()).ok_or_else(|| {
            parts.malformed(
                "without a quorum two peers may lead at once: say how many there are, as in quorum=3",
            )
        })?;
        let named = PeerGroup {
            bind,
            peers,
            dns,
            id: parts.take("id"),
            quorum,
            voters: parts.take("voters").map(|ids| ids.split(',').map(str::to_owned).collect()),
            lease: parts.take_duration("lease")?,
            key_file: key_file(parts)?,
        };
        Ok(Self { named, only_looks: false, shown: parts.shown().to_owned() })
    }

    pub fn with_lease(&mut self, lease: Duration) {
        self.named.lease.get_or_insert(lease);
    }

    pub fn without_create(&mut self) {
        self.only_looks = true;
    }

    pub fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        let PeerGroup { bind, peers, dns, id, quorum, voters, lease, key_file } = &self.named;
        // Who only looks may do so beside the member that the URL names, on its machine: at any port, as anybody.
        let bind = if self.only_looks { SocketAddr::new(bind.ip(), 0) } else { *bind };
        let mut member = Peer::builder().bind(bind);
        for peer in peers {
            member = member.peer(*peer);
        }
        if let Some((host, port)) = dns {
            member = member.peers(DnsSource::new(host, *port));
        }
        if let Some(id) = id.as_ref().filter(|_| !self.only_looks) {
            member = member.id(id);
        }
        if let Some(file) = key_file {
            member = member.key_file(file);
        }
        let mut member = member.quorum(*quorum);
        if let Some(lease) = lease {
            member = member.lease(*lease);
        }
        if let Some(voters) = voters {
            member = member.voters(voters);
        }
        if self.only_looks {
            member = member.only_looks();
        }
        let member = member.start().map_err(|error| {
            let message = format!("{} cannot be used", self.shown);
            let kind = match &error {
                QuorumStartError::Member(PeerStartError::KeyFile { .. }) => {
                    LockUrlErrorKind::Malformed
                }
                _ => LockUrlErrorKind::Unusable,
            };
            LockUrlError::of_opening(kind, message, error)
        })?;
        Ok(Arc::new(member.lock()))
    }
}

/// The file, and never a key itself: a URL is shown on command lines and in logs.
fn key_file(parts: &mut Parts) -> Result<Option<PathBuf>, LockUrlError> {
    match parts.take("key-file") {
        Some(path) if path.is_empty() => Err(parts.malformed("key-file names no file")),
        Some(path) => Ok(Some(path.into())),
        None => {
            let told = std::env::var_os(KEY_FILE).filter(|path| !path.is_empty());
            Ok(told.map(PathBuf::from))
        }
    }
}
