//! A quorum of peers: a lock without a server that promises exclusion.
//!
//! **At most one candidate of an election on a [`QuorumLock`](super::QuorumLock) leads at any instant**, if the members' clocks run at nearly the
//! same rate, and if voters with names ([`QuorumBuilder::voters`](super::QuorumBuilder::voters)) are never, a majority of them, running on after they were
//! replaced; or, where they have no names, if never more than `size` members that were started with
//! [`quorum(size)`](super::PeerBuilder::quorum) run at once. It leads only while a majority of them answers. Members of Node's democracy may be in the group, but have no vote.
//!
//! democracy's own messages cannot promise that: a hello is a broadcast, and whoever hears a majority is not heard by it. So
//! voters speak among themselves, in messages that democracy's members pass over: an election is a register, and who holds
//! it is written there by consensus among a majority, as CASPaxos does it. An election on it gives a real
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
//! # Why it holds
//! A voter keeps what it has promised and accepted in memory, so one that begins again has forgotten it. Therefore a voter is
//! silent for one and a half leases after its start, which also means that a group that has just been started elects nobody
//! for so long. Take any instant, and a leader whose last write was sent less than a lease before. A majority has accepted that
//! write since. Any other majority that votes at this instant shares a member with it; that member has accepted the write less
//! than a lease ago, and votes, so it has not begun again since, and remembers. Whoever asks the other majority is told.
//!
//! What is told could be outshone by an older write of which a minority knows, in a ballot that a voter would have kept out had
//! it not forgotten its promise. So a round lasts half a lease at the most, what was accepted is forgotten after a lease by
//! everybody, and whoever has forgotten more is silent until that is so. A promise is good for the start of the voter that gave it.
//!
//! Without names a replacement counts like the member that it replaces, also under another identifier: the old one must have ended
//! before the new one starts. Where that is not sure, as where a node of a cluster is cut off and its pods are replaced, name the
//! voters ([`QuorumBuilder::voters`](super::QuorumBuilder::voters)): a replacement then has no vote before the others have given their word to refuse the old one,
//! and `docs/peers.md` says why that is enough.
//!
//! # Tokens
//! A token is one more than the greatest revision that a majority remembers, or the wall clock in microseconds as of the member's
//! start, whichever is greater. So it grows from term to term as long as somebody leads and a majority of the voters goes on; where
//! a majority was started anew, it grows if no member's wall clock is behind the last leader's by as much as nobody led. It goes
//! back where all members restart after a clock was set back.

mod acceptor;
mod proposal;
mod seats;
mod types;
mod voter;
mod voter_host;
mod wire;

pub use proposal::{Operation, Outcome, QuorumError};
pub use types::{VoterAction, VoterEvent, VoterSettings};
pub use voter::Voter;
pub(super) use voter_host::VoterHost;
pub(super) use wire::{MAX_IDENTITY_LEN, MAX_NAME_LEN};
