//! Describing a member of a group, and starting it.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};
use tracing::{Instrument, info, info_span};

use super::driver::{Driver, Finish};
use super::handle::Peer;
use super::protocol::{Group, Settings, check_event};
use super::quorum::VoterHost;
use super::seal::{Guard, Key, OVERHEAD, Refusals, keys, read_file};
use super::shared::{CHANGES_KEPT, Shared, Status};
use super::sockets::{Multicast, Sockets};
use super::source::PeerSource;
use super::start_error::PeerStartError;
use crate::time::clock::{BootClock, Clock};
use crate::util::text::escape_line;

/// Where democracy's members listen who say nothing else.
const DEFAULT_BIND: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 12345));
/// The shortest interval between hellos.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// The longest silence that may be allowed.
const GREATEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The least and the most bytes of a datagram.
const PACKETS: std::ops::RangeInclusive<usize> = 128..=65_507;
/// The least of a datagram that is signed.
const LEAST_SIGNED: usize = 192;
/// The most bytes of an identifier.
const LONGEST_ID: usize = 256;
/// The most bytes of a log line about who is spoken to.
const LONGEST_WITH: usize = 512;
/// The most bytes of a path that an error shows.
const LONGEST_PATH: usize = 512;

/// How to take part in a group. Every duration counts on this member's own clock.
#[must_use = "a member begins with start()"]
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
    /// Never shown.
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

    /// The address to listen on, which is logged at the start. Default: port 12345 of every address of this machine: give all
    /// members a [key](Self::key), or name the address of a network of members only.
    pub fn bind(mut self, address: impl Into<SocketAddr>) -> Self {
        self.bind = address.into();
        self
    }

    /// A peer's address. Once one peer is found, it is found by the peer too. May be called several times.
    pub fn peer(mut self, address: impl Into<SocketAddr>) -> Self {
        self.list.push(address.into());
        self
    }

    /// A source of peers' addresses: a list, [`DnsSource`](super::DnsSource), or one's own. May be called several times.
    pub fn peers(mut self, source: impl PeerSource) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Reaches all members at once at this multicast address, by the interface that has the address `interface`
    /// (unspecified: the system's choice). Members reached so need no list.
    ///
    /// democracy's own members hear it if their program calls `addMembership` on their socket.
    pub fn multicast(mut self, group: SocketAddrV4, interface: Ipv4Addr) -> Self {
        self.multicast = Some(Multicast { group, interface });
        self
    }

    /// Where others reach this member, where that is not what a peer sees, as behind a port that a container publishes.
    /// Default: the address listened on; if that is every one of this machine, the one that a packet to the first peer
    /// would come from.
    pub fn advertise(mut self, address: impl Into<SocketAddr>) -> Self {
        self.advertised = Some(address.into());
        self
    }

    /// What tells this member from others: at most 256 bytes, different from every other's. Default: drawn at random.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The heaviest member is elected where there is a choice; who leads goes on when a heavier one comes. Finite, greater
    /// than zero, different from every other's. Default: drawn at random.
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = Some(weight);
        self
    }

    /// How often to say hello, at least every 10 ms. Default: each second.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// For how long a member may be silent before it is counted out: at least two intervals, at most 10 min. Default: 3 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Subscribes to a channel from the start. At most 64, 256 bytes each.
    pub fn channel(mut self, channel: impl Into<String>) -> Self {
        self.channels.push(channel.into());
        self
    }

    /// A secret that all members of the group share, of 16 to 1,024 random bytes. Members with a key sign every datagram (HMAC-SHA256),
    /// and ignore those that are not signed by one of their keys. democracy's members cannot take part then. Default: none.
    ///
    /// May be called up to eight times: the first key signs, all are accepted. To exchange a key, give all members the new one as
    /// their second, then as their first, and then take the old one away, one member after the other each time.
    pub fn key(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.keys.push(secret.into());
        self
    }

    /// The keys of a file, after those that were given before: one a line. It is read once, at the start.
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key_files.push(path.into());
        self
    }

    /// The longest datagram to send, in bytes: 128 to 65,507, at least 192 with a [key](Self::key). What is longer is sent in pieces.
    /// Default: 508, which passes everywhere.
    pub fn max_packet(mut self, bytes: usize) -> Self {
        self.max_packet = bytes;
        self
    }

    /// Another clock than [`BootClock`]: for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Checks everything, binds the sockets, and spawns the member on the current tokio runtime. Peers may be out of reach.
    ///
    /// # Errors
    /// [`PeerStartError`], which says what is wrong. Nothing has been started then.
    pub fn start(self) -> Result<Peer, PeerStartError> {
        self.start_with(|_, _| Ok(None))
    }

    /// `seat`: what makes a member one of a quorum, from its identifier and its clock.
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
            // As large as democracy's, which are below the time in milliseconds.
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
        });
        let span = info_span!("peer", id = %shared.id);
        let with = with(&sources, multicast);
        span.in_scope(|| info!(address = %bound, with, signed = guard.is_some(), "listening"));
        let driver = Driver {
            finish: Finish(Arc::clone(&shared)),
            sockets,
            group,
            sources,
            finds_source: source.is_none(),
            timeout: self.timeout,
            told: None,
            seat,
            guard,
            sealed: None,
        };
        runtime.spawn(driver.run(inbox).instrument(span));
        Ok(Peer::new(shared))
    }

    fn check(&self) -> Result<(), PeerStartError> {
        if let Some(id) = &self.id {
            let problem = match id {
                id if id.is_empty() => Some("it is empty"),
                id if id.len() > LONGEST_ID => Some("it is longer than 256 bytes"),
                id if id.chars().any(char::is_control) => Some("it has a control character"),
                _ => None,
            };
            if let Some(problem) = problem {
                return Err(PeerStartError::Id { problem });
            }
        }
        if let Some(weight) = self.weight.filter(|weight| !weight.is_finite() || *weight <= 0.0) {
            return Err(PeerStartError::Weight { weight });
        }
        if self.interval < LEAST_INTERVAL {
            return Err(PeerStartError::Interval { interval: self.interval });
        }
        let (timeout, least) = (self.timeout, self.interval.saturating_mul(2));
        if timeout < least || timeout > GREATEST_TIMEOUT {
            return Err(PeerStartError::Timeout { timeout, least });
        }
        let signs = !self.keys.is_empty() || !self.key_files.is_empty();
        let (bytes, least) = (self.max_packet, if signs { LEAST_SIGNED } else { *PACKETS.start() });
        if !PACKETS.contains(&bytes) || bytes < least {
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

/// Who is spoken to, for the log.
fn with(sources: &[Box<dyn PeerSource>], multicast: Option<SocketAddr>) -> String {
    let sources = sources.iter().map(|source| format!("{source:?}"));
    let all = sources.chain(multicast.map(|group| group.to_string())).collect::<Vec<_>>();
    match all.is_empty() {
        true => "whoever speaks first".to_owned(),
        false => escape_line(&all.join(", "), LONGEST_WITH).into_owned(),
    }
}

impl PeerBuilder {
    fn read_keys(&self) -> Result<Vec<Key>, PeerStartError> {
        let mut secrets = self.keys.clone();
        for path in &self.key_files {
            let of_file = read_file(path).map_err(|problem| {
                let path = escape_line(&path.to_string_lossy(), LONGEST_PATH).into_owned();
                PeerStartError::KeyFile { path, problem }
            });
            secrets.extend(of_file?);
        }
        keys(&secrets).map_err(|problem| PeerStartError::Key { problem })
    }
}

/// Without the keys.
impl fmt::Debug for PeerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerBuilder")
            .field("bind", &self.bind)
            .field("id", &self.id)
            .field("list", &self.list)
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}

impl Peer {
    /// Begins to describe a member.
    pub fn builder() -> PeerBuilder {
        PeerBuilder::new()
    }
}
