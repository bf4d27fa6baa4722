//! A member of a group that is a voter of a quorum.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thiserror::Error;

use super::driver::VoterHost;
use super::quorum::{Voter, VoterSettings};
use super::quorum_lock::QuorumLock;
use crate::backends::peer::builder::{PeerBuilder, check_id};
use crate::backends::peer::handle::{Changes, Peer};
use crate::backends::peer::protocol::Member;
use crate::backends::peer::seal::RefusedDatagrams;
use crate::backends::peer::start_error::PeerStartError;
use crate::protocol::{MAX_LEASE, MIN_LEASE};
use crate::time::clock::{Clock, unix_time_at_origin};

/// The default maximum lease of a quorum.
const DEFAULT_LEASE: Duration = Duration::from_secs(15);
/// The allowed numbers of voters.
const SIZES: std::ops::RangeInclusive<u32> = 2..=31;

/// Configuration of a quorum member.
#[derive(Debug)]
#[must_use = "a member starts with start()"]
pub struct QuorumBuilder {
    member: PeerBuilder,
    size: u32,
    lease: Duration,
    voters: Option<BTreeSet<String>>,
    votes: bool,
}

impl PeerBuilder {
    /// Makes this member one of a quorum of `size` voters, whose lock guarantees exclusion: see
    /// [`quorum`](super::quorum). democracy's own members do not vote.
    ///
    /// All members that run, or have run within the last lease, must have the same size, lease and
    /// voters. To change one of these, stop all members, wait for the old lease, and start all.
    pub fn quorum(self, size: u32) -> QuorumBuilder {
        QuorumBuilder::new(self, size)
    }
}

impl QuorumBuilder {
    pub(super) fn new(member: PeerBuilder, size: u32) -> Self {
        Self { member, size, lease: DEFAULT_LEASE, voters: None, votes: true }
    }

    /// Sets the maximum lease of candidates, which is also their default: 200 ms to 1 h, the same
    /// for all members, as [`quorum`](PeerBuilder::quorum) says. A member does not vote for one and
    /// a half leases after its start. Default: 15 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the voters by their [identifiers](PeerBuilder::id): as many as the quorum's size, the
    /// same for all members. Each member then needs an identifier, unless it is
    /// [read-only](Self::read_only); one that is not listed has no vote. Default: every member that
    /// was started with the same size and lease votes.
    ///
    /// A named voter may be replaced, under its own name, while it still runs, as when its node is
    /// cut off: the replacement votes after the others have agreed to refuse the old one. See the
    /// [module](super::quorum).
    pub fn voters(mut self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.voters = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// Adds a secret that all members share, as [`PeerBuilder::key`].
    pub fn key(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.member = self.member.key(secret);
        self
    }

    /// Adds the keys of a file, as [`PeerBuilder::key_file`].
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.member = self.member.key_file(path);
        self
    }

    /// Makes this member read-only: it reads, and may evict, by the votes of the others, and has no
    /// vote itself. It does not count in any quorum's size, the group does not elect it while
    /// another member is present, and its identifier must not be among the [voters](Self::voters).
    pub fn read_only(mut self) -> Self {
        self.votes = false;
        self.member = self.member.weight(f64::MIN_POSITIVE);
        self
    }

    /// Checks the configuration, and starts the member as [`PeerBuilder::start`] does. The member
    /// votes after one and a half leases.
    ///
    /// # Errors
    /// [`QuorumStartError`], which names the problem. Nothing has been started then.
    pub fn start(self) -> Result<QuorumPeer, QuorumStartError> {
        let Self { member, size, lease, voters, votes } = self;
        if !SIZES.contains(&size) {
            return Err(QuorumStartError::Size { size });
        }
        if !(MIN_LEASE..=MAX_LEASE).contains(&lease) {
            return Err(QuorumStartError::Lease { lease });
        }
        voters.iter().flatten().try_for_each(|voter| check_id(voter))?;
        if let Some(voters) = voters.as_ref().map(BTreeSet::len)
            && u32::try_from(voters) != Ok(size)
        {
            return Err(QuorumStartError::Voters { voters, size });
        }
        if let Some(voters) = &voters {
            match member.named_id() {
                None if votes => return Err(QuorumStartError::NoId),
                Some(id) if !votes && voters.contains(id) => {
                    return Err(QuorumStartError::ReadOnlyVoter { id: id.to_owned() });
                }
                _ => {}
            }
        }
        let peer = member.start_with(|id, clock| {
            let incarnation = getrandom::u64().map_err(|_| PeerStartError::NoRandomness)?;
            let id = id.clone();
            let origin_unix_us = unix_us_at_origin(clock);
            let settings =
                VoterSettings { id, size, voters, votes, lease, incarnation, origin_unix_us };
            Ok(Some(VoterHost::new(Voter::new(settings))))
        })?;
        Ok(QuorumPeer { peer, lease })
    }
}

/// A member of a group that is a voter of a quorum: see the [module](super::quorum).
///
/// The group may also elect it by weight. Only the [`lock`](Self::lock) guarantees exclusion, so
/// this type does not expose the group's leader.
///
/// When the last handle, its locks included, is dropped, the member leaves as with
/// [`stop`](Self::stop).
///
/// ```no_run
/// use incumbent::peer::Peer;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let group = Peer::builder().bind(([10, 0, 0, 3], 12345)).peer(([10, 0, 0, 4], 12345));
/// let peer = group.peer(([10, 0, 0, 5], 12345)).quorum(3).start()?;
/// let election = incumbent::new_election("my_app", peer.lock()).start()?;
/// let leadership = election.won().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "dropping the last handle leaves the group"]
pub struct QuorumPeer {
    peer: Peer,
    lease: Duration,
}

impl QuorumPeer {
    /// Returns the quorum's lock, for any number of elections.
    pub fn lock(&self) -> QuorumLock {
        QuorumLock::new(self.peer.clone(), self.lease)
    }

    /// Returns the identifier of this member.
    pub fn id(&self) -> &str {
        self.peer.id()
    }

    /// Returns this member and all members that it receives messages from, whether they vote or
    /// not.
    pub fn members(&self) -> Vec<Member> {
        self.peer.members()
    }

    /// Returns whether this member's vote counts, as of its last hello: not within one and a half
    /// leases after its start, and not before it has its seat, if voters have names. A member
    /// without a vote may lead an election.
    pub fn votes(&self) -> bool {
        self.peer.shared().votes.load(Ordering::Relaxed)
    }

    /// As [`Peer::local_address`].
    pub fn local_address(&self) -> SocketAddr {
        self.peer.local_address()
    }

    /// As [`Peer::refused_datagrams`].
    pub fn refused_datagrams(&self) -> RefusedDatagrams {
        self.peer.refused_datagrams()
    }

    /// As [`Peer::changes`].
    pub fn changes(&self) -> Changes {
        self.peer.changes()
    }

    /// Leaves the group. Stop elections on its lock first: they cannot release their entries
    /// afterwards.
    pub async fn stop(&self) {
        self.peer.stop().await;
    }
}

fn unix_us_at_origin(clock: &dyn Clock) -> u64 {
    u64::try_from(unix_time_at_origin(clock).as_micros()).unwrap_or(0)
}

/// Why a member of a quorum cannot start.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum QuorumStartError {
    /// The size.
    #[error("a quorum of {size}: must be 2 to 31 voters, preferably an odd number")]
    Size {
        /// As given.
        size: u32,
    },
    /// The lease.
    #[error("a lease of {lease:?} is not between 200ms and 3600s")]
    Lease {
        /// As given.
        lease: Duration,
    },
    /// The voters.
    #[error("{voters} voters are named for a quorum of {size}")]
    Voters {
        /// How many are named.
        voters: usize,
        /// As given.
        size: u32,
    },
    /// No identifier.
    #[error("voters are named, so this member needs an id: set id")]
    NoId,
    /// A read-only member.
    #[error("{id:?} is one of the voters, so it cannot be read-only")]
    ReadOnlyVoter {
        /// As given.
        id: String,
    },
    /// The member itself.
    #[error(transparent)]
    Member(#[from] PeerStartError),
}
