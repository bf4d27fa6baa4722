//! Locks of `peer:[ADDRESS:]PORT?peers=…&quorum=…`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use super::target::{OpenOptions, StoreTarget};
use crate::backends::peer::{DnsSource, Peer, PeerStartError, QuorumStartError};
use crate::lock::Lock;

/// The members of a group that a `peer:` URL names, for inspection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PeerGroup {
    /// The address on which this member listens.
    pub bind: SocketAddr,
    /// The listed addresses of other members.
    pub peers: Vec<SocketAddr>,
    /// A DNS name, and the port of all its addresses.
    pub dns: Option<(String, u16)>,
    /// The identifier of this member.
    pub id: Option<String>,
    /// The number of voters.
    pub quorum: u32,
    /// The identifiers of all voters.
    pub voters: Option<Vec<String>>,
    /// The maximum lease.
    pub lease: Option<Duration>,
    /// The file with the keys that sign datagrams.
    pub key_file: Option<PathBuf>,
}

/// The environment variable with the key file of a URL without `key-file`.
const KEY_FILE: &str = "INCUMBENT_PEER_KEY_FILE";

#[derive(Debug, Clone)]
pub(super) struct PeerTarget {
    group: PeerGroup,
    shown: String,
}

impl StoreTarget for PeerTarget {
    type Named = PeerGroup;

    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
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
            Some(text) => {
                let named = text
                    .rsplit_once(':')
                    .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
                let rule = || {
                    parts.malformed("dns is a name and a port, as in dns=peers.example.net:12345")
                };
                Some(named.ok_or_else(rule)?)
            }
        };
        let quorum = parts.take("quorum").and_then(|text| text.parse().ok()).ok_or_else(|| {
            parts.malformed(
                "without a quorum two peers may lead at once: set the number of voters, as in quorum=3",
            )
        })?;
        let group = PeerGroup {
            bind,
            peers,
            dns,
            id: parts.take("id"),
            quorum,
            voters: parts
                .take("voters")
                .map(|ids| ids.split(',').map(|id| id.trim().to_owned()).collect()),
            lease: parts.take_duration("lease")?,
            key_file: key_file(parts)?,
        };
        Ok(Self { group, shown: parts.shown().to_owned() })
    }

    fn credential_variables(&self) -> &'static [&'static str] {
        &[KEY_FILE]
    }

    fn named(&self, options: OpenOptions) -> Result<PeerGroup, LockUrlError> {
        Ok(PeerGroup { lease: self.group.lease.or(options.lease), ..self.group.clone() })
    }

    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        let PeerGroup { bind, peers, dns, id, quorum, voters, lease, key_file } =
            self.named(options)?;
        let read_only = !options.create;
        // A read-only member may run on the same machine as the member that the URL names, so it
        // uses any port and a random identifier.
        let bind = if read_only { SocketAddr::new(bind.ip(), 0) } else { bind };
        let mut member = Peer::builder().bind(bind);
        for peer in peers {
            member = member.peer(peer);
        }
        if let Some((host, port)) = dns {
            member = member.peers(DnsSource::new(host, port));
        }
        if let Some(id) = id.filter(|_| !read_only) {
            member = member.id(id);
        }
        if let Some(file) = key_file {
            member = member.key_file(file);
        }
        let mut member = member.quorum(quorum);
        if let Some(lease) = lease {
            member = member.lease(lease);
        }
        if let Some(voters) = voters {
            member = member.voters(voters);
        }
        if read_only {
            member = member.read_only();
        }
        let member = member.start().map_err(|error| {
            let message = format!("{} cannot be used", self.shown);
            let kind = match &error {
                QuorumStartError::Member(PeerStartError::KeyFile { .. }) => {
                    LockUrlErrorKind::Malformed
                }
                _ => LockUrlErrorKind::Unusable,
            };
            LockUrlError::with_source(kind, message, error)
        })?;
        Ok(Arc::new(member.lock()))
    }
}

/// Returns the key file. A URL never contains a key itself, because URLs appear on command lines
/// and in logs.
fn key_file(parts: &mut Parts) -> Result<Option<PathBuf>, LockUrlError> {
    match parts.take("key-file") {
        Some(path) if path.is_empty() => Err(parts.malformed("key-file names no file")),
        Some(path) => Ok(Some(path.into())),
        None => {
            let path = std::env::var_os(KEY_FILE).filter(|path| !path.is_empty());
            Ok(path.map(PathBuf::from))
        }
    }
}
