//! What voters say to each other: an event of democracy's that its own members do not know, and pass over.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::lock::Advertisement;
use crate::lock::codec::{bounded_duration, ceil_millis, display_identity};
use crate::lock::{
    Content, Entry, Mark, Nonce, Record, Revision, StepDownNotice, Token, Tombstone, WriteId,
};

/// The event under which all of it travels.
pub(crate) const EVENT: &str = "incumbent/lock";
/// The most bytes of an identity.
pub(in crate::backends::peer) const MAX_IDENTITY_LEN: usize = 256;
/// The most bytes of an election's name.
pub(in crate::backends::peer) const MAX_NAME_LEN: usize = 256;

/// Where an answer goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Recipient {
    Me,
    Address(SocketAddr),
}

/// Which attempt to write comes before which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Ballot {
    pub round: u64,
    /// Whose: its incarnation.
    pub by: u64,
}

/// Which start of each voter is meant, by the time at which it asked for its seat.
pub(super) type Stamps = BTreeMap<String, Ballot>;

/// What a register holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Value {
    pub revision: u64,
    pub holds: Holds,
    /// Which request of which incarnation wrote it.
    pub by: (u64, u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Holds {
    Held {
        identity: String,
        nonce: u64,
        write: u64,
        lease_ms: u64,
        token: Option<u64>,
        since_ms: u64,
        life_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advertisement: Option<Advertisement>,
    },
    Released {
        by: u64,
        left_ms: u64,
    },
    Deleted,
}

/// A message, and in which group it counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope {
    /// How many voters there are, as the sender was told.
    pub size: u32,
    /// The longest lease, as the sender was told.
    pub lease_ms: u64,
    /// A hash of the names of those that vote, as the sender was told; zero: they have no names.
    #[serde(default)]
    pub voters: u64,
    /// Drawn at each start of the sender's.
    pub incarnation: u64,
    pub name: String,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Body {
    Prepare {
        ballot: Ballot,
    },
    Promise {
        ballot: Ballot,
        accepted: Option<(Ballot, Value)>,
        /// The greatest revision that it ever accepted.
        floor: u64,
        /// By which stamp it holds its seat, where voters have names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seat: Option<Ballot>,
    },
    /// To one voter, and to that incarnation of it which has promised.
    Accept {
        ballot: Ballot,
        to: u64,
        value: Value,
        /// All whose promises this rests on, where voters have names.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        seats: Stamps,
    },
    Accepted {
        ballot: Ballot,
    },
    /// Has promised a later one.
    Refused {
        ballot: Ballot,
        promised: Ballot,
    },
    /// Has begun too short a time ago to vote, or does not know of the promise, or gave it too long ago.
    NotYet {
        ballot: Ballot,
    },
    /// Was told another size or lease.
    Mismatch {
        ballot: Ballot,
    },
    /// Asks for the sender's seat: who sits, or the word of those that it names.
    Enter {
        stamp: Ballot,
        attempt: u64,
        among: Stamps,
    },
    /// By which stamp the sender is there, and whether it sits; and what it knows of others.
    Sits {
        attempt: u64,
        stamp: Ballot,
        sits: bool,
        known: Stamps,
    },
    /// Gives its word: a start of that name before the one of this stamp has no vote any more.
    Seconds {
        attempt: u64,
        to: Ballot,
        stamp: Ballot,
        known: Stamps,
    },
    /// Refuses: one of those that are named has lost its seat.
    Superseded {
        ballot: Ballot,
        known: Stamps,
    },
    /// A majority has accepted this, in the place of that revision.
    Stored {
        value: Value,
        previous: Option<u64>,
    },
    Conceded {
        by: u64,
        token: u64,
        revision: u64,
        left_ms: u64,
    },
}

fn latest(stamps: &Stamps) -> u64 {
    stamps.values().map(|stamp| stamp.round).max().unwrap_or(0)
}

/// A hash of names, the same on every machine: FNV-1a. Never zero.
pub(super) fn hash_of<'a>(names: impl IntoIterator<Item = &'a String>) -> u64 {
    let bytes = names.into_iter().flat_map(|name| name.bytes().chain([0]));
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.fold(0xcbf2_9ce4_8422_2325, hash).max(1)
}

impl Value {
    pub fn record(&self) -> Record {
        let content = match &self.holds {
            Holds::Held {
                identity,
                nonce,
                write,
                lease_ms,
                token,
                since_ms,
                life_ms,
                advertisement,
            } => {
                let mark = Mark {
                    write: WriteId { nonce: Nonce(*nonce), number: *write },
                    lease: bounded_duration(*lease_ms),
                    token: token.map(Token),
                    since_unix_ms: *since_ms,
                };
                let advertisement = advertisement.clone().filter(|said| said.check().is_ok());
                Content::Held(Entry {
                    identity: display_identity(identity, MAX_IDENTITY_LEN),
                    mark: Some(mark),
                    ttl: bounded_duration(*life_ms),
                    advertisement: advertisement.map(Arc::new),
                })
            }
            Holds::Released { by, left_ms } => Content::Vacant(Tombstone::Released {
                by: Nonce(*by),
                left: bounded_duration(*left_ms),
            }),
            Holds::Deleted => Content::Vacant(Tombstone::Deleted),
        };
        Record { revision: Revision(self.revision), content }
    }
}

impl Holds {
    pub fn written(write: &crate::lock::Write) -> Self {
        Self::Held {
            identity: write.identity.to_string(),
            nonce: write.mark.write.nonce.0,
            write: write.mark.write.number,
            lease_ms: ceil_millis(write.mark.lease),
            token: write.mark.token.map(|token| token.0),
            since_ms: write.mark.since_unix_ms,
            life_ms: ceil_millis(write.ttl),
            advertisement: write.advertisement.as_deref().cloned(),
        }
    }
}

impl Body {
    /// The greatest of the numbers that everybody counts on from.
    pub fn greatest(&self) -> u64 {
        match self {
            Self::Prepare { ballot }
            | Self::Accepted { ballot }
            | Self::NotYet { ballot }
            | Self::Mismatch { ballot } => ballot.round,
            Self::Promise { ballot, accepted, floor, seat } => {
                let told = accepted.as_ref().map_or(0, |(b, value)| b.round.max(value.revision));
                ballot.round.max(told).max(*floor).max(seat.map_or(0, |seat| seat.round))
            }
            Self::Accept { ballot, value, seats, .. } => {
                ballot.round.max(value.revision).max(latest(seats))
            }
            Self::Enter { stamp, among: stamps, .. }
            | Self::Sits { stamp, known: stamps, .. }
            | Self::Superseded { ballot: stamp, known: stamps } => stamp.round.max(latest(stamps)),
            Self::Seconds { to, stamp, known, .. } => stamp.round.max(to.round).max(latest(known)),
            Self::Refused { ballot, promised } => ballot.round.max(promised.round),
            Self::Stored { value, .. } => value.revision,
            Self::Conceded { .. } => 0,
        }
    }

    pub fn conceded(notice: &StepDownNotice) -> Self {
        Self::Conceded {
            by: notice.by.0,
            token: notice.token.0,
            revision: notice.revision.0,
            left_ms: ceil_millis(notice.left),
        }
    }

    pub fn notice(&self) -> Option<StepDownNotice> {
        let Self::Conceded { by, token, revision, left_ms } = self else { return None };
        Some(StepDownNotice {
            by: Nonce(*by),
            token: Token(*token),
            revision: Revision(*revision),
            left: bounded_duration(*left_ms),
        })
    }
}
