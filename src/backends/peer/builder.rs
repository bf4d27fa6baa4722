//! Configuration and start of a group member.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};
use tracing::{Instrument, info, info_span};

use super::driver::{Driver, ShutdownGuard, VoterHost};
use super::handle::Peer;
use super::protocol::{Group, Settings, check_event};
use super::seal::{Guard, Key, OVERHEAD, Refusals, keys, read_file};
use super::shared::{CHANGES_KEPT, Shared, Status};
use super::sockets::{Multicast, Sockets};
use super::source::PeerSource;
use super::start_error::PeerStartError;
use crate::backends::hint_hub::HintHub;
use crate::time::clock::{BootClock, Clock};
use crate::util::text::escape_line;

/// The default address of democracy's members.
const DEFAULT_BIND: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 12345));
/// The minimum interval between hellos.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum timeout of a silent member.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// The minimum and maximum size of a datagram in bytes.
const PACKET_SIZES: std::ops::RangeInclusive<usize> = 128..=65_507;
/// The minimum size of a signed datagram in bytes.
const MIN_SIGNED_PACKET: usize = 192;
/// The maximum length of an identifier in bytes.
const MAX_ID_LEN: usize = 256;
/// The maximum length in bytes of the log field that lists the peers.
const MAX_PEERS_LEN: usize = 512;
/// The maximum length in bytes of a path in an error.
const MAX_PATH_LEN: usize = 512;

/// Configuration of a group member. Every duration is measured on this member's own clock.
#[must_use = "a member starts with start()"]
pub struct PeerBuilder {
    bind: SocketAddr,
    sources: Vec<Box<dyn PeerSource>>,
    list: Vec<SocketAddr>,
    multicast: Option<Multicast>,
    advertised: Option<SocketAddr>,
    id: Option<String>,
    weight: Option<f64>,
    interval: Duration,
    timeout: Duration,
    channels: Vec<String>,
    max_packet: usize,
    /// Never logged or displayed.
    keys: Vec<Vec<u8>>,
    key_files: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
}

impl PeerBuilder {
    pub(super) fn new() -> Self {
        let defaults = Settings::new("", 0.0);
        Self {
            bind: DEFAULT_BIND,
            sources: Vec::new(),
            list: Vec::new(),
            multicast: None,
            advertised: None,
            id: None,
            weight: None,
            interval: defaults.interval,
            timeout: defaults.timeout,
            channels: Vec::new(),
            max_packet: defaults.max_packet,
            keys: Vec::new(),
            key_files: Vec::new(),
            clock: Arc::new(BootClock),
        }
    }

    /// Sets the address to listen on, which is logged at the start. Default: port 12345 on every
    /// address of this machine. With the default, give all members a [key](Self::key), or set an
    /// address in a network of members only.
    pub fn bind(mut self, address: impl Into<SocketAddr>) -> Self {
        self.bind = address.into();
        self
    }

    /// Adds the address of a peer. The peer learns this member's address from its messages. May be
    /// called several times.
    pub fn peer(mut self, address: impl Into<SocketAddr>) -> Self {
        self.list.push(address.into());
        self
    }

    /// Adds a source of peer addresses: a list, [`DnsSource`](super::DnsSource), or a custom
    /// source. May be called several times.
    pub fn peers(mut self, source: impl PeerSource) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Sends to all members at this multicast address, through the interface with the address
    /// `interface` (unspecified: the system's choice). Members in the multicast group need no list.
    ///
    /// democracy's own members receive multicast messages if their program calls `addMembership` on
    /// their socket.
    pub fn multicast(mut self, group: SocketAddrV4, interface: Ipv4Addr) -> Self {
        self.multicast = Some(Multicast { group, interface });
        self
    }

    /// Sets the address at which peers reach this member, if it differs from the address that a
    /// peer sees, as behind a port that a container publishes. Default: the address listened on; if
    /// that is unspecified, the source address of a packet to the first peer.
    pub fn advertise(mut self, address: impl Into<SocketAddr>) -> Self {
        self.advertised = Some(address.into());
        self
    }

    /// Sets the identifier of this member: at most 256 bytes, unique in the group. Default: random.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the weight. An election elects the heaviest member; the leader keeps leading when a
    /// heavier member joins. Finite, greater than zero, unique in the group. Default: random.
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Sets the interval between hellos, at least 10 ms. Default: 1 s.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets how long a member may be silent before it is removed: at least two intervals, at most
    /// 10 min. Default: 3 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Subscribes to a channel from the start. At most 64 channels of 256 bytes each.
    pub fn channel(mut self, channel: impl Into<String>) -> Self {
        self.channels.push(channel.into());
        self
    }

    /// Adds a secret that all members of the group share, of 16 to 1,024 random bytes. Members with
    /// a key sign every datagram (HMAC-SHA256), and ignore datagrams that none of their keys
    /// signed. democracy's members then cannot take part. Default: none.
    ///
    /// May be called up to eight times: the first key signs, all keys are accepted. To rotate a
    /// key, add the new key to all members as their second, then make it their first, then remove
    /// the old key, one member at a time in each step.
    pub fn key(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.keys.push(secret.into());
        self
    }

    /// Adds the keys of a file, one per line, after the keys added before. The file is read once,
    /// at the start.
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key_files.push(path.into());
        self
    }

    /// Sets the maximum size of a datagram in bytes: 128 to 65,507, at least 192 with a
    /// [key](Self::key). A longer message is sent in chunks. Default: 508, which passes through
    /// every network.
    pub fn max_packet(mut self, bytes: usize) -> Self {
        self.max_packet = bytes;
        self
    }

    /// Replaces [`BootClock`], for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Checks the configuration, binds the sockets, and spawns the member on the current tokio
    /// runtime. Peers may be unreachable.
    ///
    /// # Errors
    /// [`PeerStartError`], which names the problem. Nothing has been started then.
    pub fn start(self) -> Result<Peer, PeerStartError> {
        self.start_with(|_, _| Ok(None))
    }

    pub(super) fn named_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// `seat` creates the voter of a quorum member from its identifier and its clock.
    pub(super) fn start_with(
        self,
        seat: impl FnOnce(&Arc<str>, &dyn Clock) -> Result<Option<VoterHost>, PeerStartError>,
    ) -> Result<Peer, PeerStartError> {
        self.check()?;
        let keys = self.read_keys()?;
        let runtime =
            tokio::runtime::Handle::try_current().map_err(|_| PeerStartError::NoRuntime)?;
        let random = || getrandom::u64().map_err(|_| PeerStartError::NoRandomness);
        let id: Arc<str> = match self.id {
            Some(id) => id.into(),
            None => format!("{:016x}", random()?).into(),
        };
        let seed = random()?;
        let guard = match keys {
            keys if keys.is_empty() => None,
            keys => {
                let mut secret = [0; 32];
                getrandom::fill(&mut secret).map_err(|_| PeerStartError::NoRandomness)?;
                let guard = Guard::new(keys, random()?, secret);
                Some(guard.map_err(|problem| PeerStartError::Key { problem })?)
            }
        };
        let seat = seat(&id, &*self.clock)?;
        let sockets = Sockets::open(self.bind, self.multicast)
            .map_err(|error| PeerStartError::Bind { address: self.bind, error: error.into() })?;
        let bound = sockets
            .main
            .local_addr()
            .map_err(|error| PeerStartError::Bind { address: self.bind, error: error.into() })?;
        let multicast = self.multicast.map(|multicast| SocketAddr::V4(multicast.group));
        let known = Some(bound).filter(|bound| !bound.ip().is_unspecified());
        let interface = self.multicast.map(|m| m.interface).filter(|ip| !ip.is_unspecified());
        let interface = interface.map(|ip| SocketAddr::new(ip.into(), bound.port()));
        let source = self.advertised.or(known).or(interface);
        let seen = || multicast.and_then(|group| Sockets::seen_from(bound, group));
        let group = Group::new(Settings {
            id: Arc::clone(&id),
            // As large as democracy's weights, which are below the time in milliseconds.
            weight: self.weight.unwrap_or_else(|| fastrand::Rng::with_seed(seed).f64() * 1.8e12),
            interval: self.interval,
            timeout: self.timeout,
            channels: self.channels.into_iter().collect(),
            source: source.or_else(seen),
            multicast,
            max_packet: self.max_packet - if guard.is_some() { OVERHEAD } else { 0 },
            seed,
            ..Settings::new("", 0.0)
        });
        let mut sources = self.sources;
        if !self.list.is_empty() {
            sources.push(Box::new(self.list));
        }
        let (inputs, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            id,
            bound,
            clock: self.clock,
            leads_until_ns: AtomicU64::new(0),
            status: watch::Sender::new(Status { members: group.members(), ..Status::default() }),
            changes: broadcast::Sender::new(CHANGES_KEPT),
            inputs,
            refusals: Refusals::default(),
            votes: AtomicBool::new(false),
            hints: HintHub::default(),
        });
        let span = info_span!("peer", id = %shared.id);
        let with = with(&sources, multicast);
        span.in_scope(|| info!(address = %bound, with, signed = guard.is_some(), "listening"));
        let driver = Driver {
            shutdown: ShutdownGuard(Arc::clone(&shared)),
            sockets,
            group,
            sources,
            finds_source: source.is_none(),
            timeout: self.timeout,
            published_version: None,
            seat,
            guard,
            sealed: None,
        };
        runtime.spawn(driver.run(inbox).instrument(span));
        Ok(Peer::new(shared))
    }

    fn check(&self) -> Result<(), PeerStartError> {
        self.id.as_deref().map_or(Ok(()), check_id)?;
        if let Some(weight) = self.weight.filter(|weight| !weight.is_finite() || *weight <= 0.0) {
            return Err(PeerStartError::Weight { weight });
        }
        if self.interval < MIN_INTERVAL {
            return Err(PeerStartError::Interval { interval: self.interval });
        }
        let (timeout, least) = (self.timeout, self.interval.saturating_mul(2));
        if timeout < least || timeout > MAX_TIMEOUT {
            return Err(PeerStartError::Timeout { timeout, least });
        }
        let signs = !self.keys.is_empty() || !self.key_files.is_empty();
        let (bytes, least) =
            (self.max_packet, if signs { MIN_SIGNED_PACKET } else { *PACKET_SIZES.start() });
        if !PACKET_SIZES.contains(&bytes) || bytes < least {
            return Err(PeerStartError::MaxPacket { bytes, least });
        }
        for channel in &self.channels {
            check_event(channel).map_err(|problem| PeerStartError::Channel { problem })?;
        }
        if let Some(group) = self.multicast.map(|m| m.group).filter(|g| !g.ip().is_multicast()) {
            return Err(PeerStartError::Multicast { group });
        }
        if let Some(address) = self.advertised.filter(|a| a.ip().is_unspecified()) {
            return Err(PeerStartError::Advertised { address });
        }
        Ok(())
    }
}

/// Refuses what cannot be the identifier of a member.
pub(super) fn check_id(id: &str) -> Result<(), PeerStartError> {
    let problem = match id {
        "" => "it is empty",
        id if id.len() > MAX_ID_LEN => "it is longer than 256 bytes",
        id if id.contains(char::is_control) => "it has a control character",
        _ => return Ok(()),
    };
    Err(PeerStartError::Id { problem })
}

/// The sources of peers, as a log field.
fn with(sources: &[Box<dyn PeerSource>], multicast: Option<SocketAddr>) -> String {
    let sources = sources.iter().map(|source| format!("{source:?}"));
    let all = sources.chain(multicast.map(|group| group.to_string())).collect::<Vec<_>>();
    match all.is_empty() {
        true => "peers that send first".to_owned(),
        false => escape_line(&all.join(", "), MAX_PEERS_LEN).into_owned(),
    }
}

impl PeerBuilder {
    fn read_keys(&self) -> Result<Vec<Key>, PeerStartError> {
        let mut secrets = self.keys.clone();
        for path in &self.key_files {
            let of_file = read_file(path).map_err(|problem| {
                let path = escape_line(&path.to_string_lossy(), MAX_PATH_LEN).into_owned();
                PeerStartError::KeyFile { path, problem }
            });
            secrets.extend(of_file?);
        }
        keys(&secrets).map_err(|problem| PeerStartError::Key { problem })
    }
}

// Without the keys.
partial_debug!(
    PeerBuilder, self, bind: self.bind, id: self.id, list: self.list, sources: self.sources
);

impl Peer {
    /// Returns the default configuration of a member.
    pub fn builder() -> PeerBuilder {
        PeerBuilder::new()
    }
}
