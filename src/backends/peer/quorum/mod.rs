//! A quorum of peers: a lock without a server that guarantees exclusion.
//!
//! **At most one candidate of an election on a [`QuorumLock`](super::QuorumLock) leads at any
//! instant**, if the members' clocks run at nearly the same rate, if all members that run, or have
//! run within the last lease, have the same size, lease and voters, and if one of these conditions
//! holds: voters with names ([`QuorumBuilder::voters`](super::QuorumBuilder::voters)) never keep
//! running, a majority of them, after they were replaced; or, without names, never more than `size`
//! members that were started with [`quorum(size)`](super::PeerBuilder::quorum) run at once. A
//! candidate leads only while a majority of the voters responds. Members of Node's democracy may be
//! in the group, but have no vote.
//!
//! democracy's own messages cannot guarantee that: a hello is a broadcast, and a member that
//! receives a majority's hellos may not be received by that majority. So voters exchange messages
//! of their own, which democracy's members ignore: an election is a register, and the voters write
//! its holder by consensus among a majority, as in CASPaxos. An election on this lock has a real
//! [`Leadership`](crate::Leadership), with a deadline and a token:
//!
//! ```no_run
//! use std::time::Duration;
//! use incumbent::new_election;
//! use incumbent::peer::Peer;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let peer = Peer::builder()
//!     .bind(([10, 0, 0, 3], 12345))
//!     .peers(vec![([10, 0, 0, 4], 12345).into(), ([10, 0, 0, 5], 12345).into()])
//!     .quorum(3)
//!     .lease(Duration::from_secs(10))
//!     .start()?;
//! let election = new_election("my_app", peer.lock()).start()?;
//! let leadership = election.won().await?;
//! println!("fence what you write with {}", leadership.token());
//! # Ok(())
//! # }
//! ```
//!
//! **Unstable**: the types in here, for a driver or a simulation of one's own; a minor release may
//! change them. [`QuorumLock`](super::QuorumLock) and what [`peer`](super) itself exports is
//! stable.
//!
//! # Safety argument
//! A voter keeps its promises and accepted values in memory, so a restarted voter has lost them.
//! Therefore a voter is silent for one and a half leases after its start. For the same reason a
//! newly started group elects no leader for that time. Take any instant, and a leader whose last
//! write was sent less than a lease before. A majority has accepted that write since. Any other
//! majority that votes at this instant shares a member with it. That member has accepted the write
//! less than a lease ago, and votes, so it has not restarted since, and remembers. Every request to
//! the other majority learns of the leader from that member.
//!
//! An older write that only a minority knows could override this knowledge, in a ballot that a
//! voter would have refused had it not lost its promise. So a round lasts at most half a lease,
//! every voter forgets an accepted value after a lease, and a voter that has lost more is silent
//! until then. A promise is valid only for the start of the voter that gave it.
//!
//! Without names a replacement counts as the member that it replaces, even with another identifier:
//! the old member must have ended before the new one starts. Where that is not certain, as when a
//! node of a cluster is cut off and its pods are replaced, name the voters
//! ([`QuorumBuilder::voters`](super::QuorumBuilder::voters)): a replacement then has no vote before
//! the others have agreed to refuse the old member, and `docs/peers.md` explains why that is
//! enough.
//!
//! # Tokens
//! A token is one more than the greatest revision that a majority remembers, or the wall clock in
//! microseconds as of the member's start, whichever is greater. Tokens grow from term to term as
//! long as there is a leader and a majority of the voters keeps running. After a restart of a
//! majority, tokens grow if no member's wall clock is behind the last leader's by more than the
//! time without a leader. Tokens go back if all members restart after a clock was set back.

mod acceptor;
mod proposal;
mod seats;
mod types;
mod voter;
mod wire;

pub use proposal::{Operation, Outcome, QuorumError};
pub use types::{VoterAction, VoterEvent, VoterSettings};
pub use voter::Voter;
pub(super) use wire::{MAX_IDENTITY_LEN, MAX_NAME_LEN};
