//! Messages between voters: a democracy event that democracy's own members do not know and ignore.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::lock::Advertisement;
use crate::lock::codec::{
    bounded_duration, cause_label, ceil_millis, display_identity, stated_advertisement,
    stated_mark, stated_release,
};
use crate::lock::{
    Content, Entry, MoveInfo, Nonce, Pause, Record, Revision, StepDownNotice, Token, WriteId,
};
use crate::util::stable_hash;

/// The event that carries all messages.
pub(crate) const EVENT: &str = "incumbent/lock";
/// The maximum length of an identity in bytes.
pub(in crate::backends::peer) const MAX_IDENTITY_LEN: usize = 256;
/// The maximum length of an election's name in bytes.
pub(in crate::backends::peer) const MAX_NAME_LEN: usize = 256;

/// The recipient of a response.
#[derive(Debug, Clone, Copy)]
pub(super) enum Recipient {
    Me,
    Address(SocketAddr),
}

/// The order of attempts to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Ballot {
    pub round: u64,
    /// The incarnation of the proposer.
    pub by: u64,
}

/// The start of each voter, by the time at which it requested its seat.
pub(super) type Stamps = BTreeMap<String, Ballot>;

/// The content of a register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Value {
    pub revision: u64,
    pub holds: Holds,
    /// The incarnation and the request that wrote it.
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
        #[serde(default, skip_serializing_if = "MoveInfo::is_empty")]
        moves: MoveInfo,
    },
    Released {
        by: u64,
        left_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pause: Option<Pause>,
    },
}

/// A message, and the settings of its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope {
    /// The number of voters in the sender's settings.
    pub size: u32,
    /// The maximum lease in the sender's settings.
    pub lease_ms: u64,
    /// A hash of the voters' names in the sender's settings; zero: they have no names.
    #[serde(default)]
    pub voters: u64,
    /// A random number, drawn at each start of the sender.
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
        /// The greatest revision that the voter ever accepted.
        floor: u64,
        /// The stamp of the voter's seat, if voters have names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seat: Option<Ballot>,
    },
    /// To one voter, and to the incarnation of it that has promised.
    Accept {
        ballot: Ballot,
        to: u64,
        value: Value,
        /// The voters whose promises this rests on, if voters have names.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        seats: Stamps,
    },
    Accepted {
        ballot: Ballot,
    },
    /// The voter has promised a later ballot.
    Refused {
        ballot: Ballot,
        promised: Ballot,
    },
    /// The voter started too recently to vote, does not know the promise, or gave it too long ago.
    NotYet {
        ballot: Ballot,
    },
    /// The voter has another size, lease or list of voters.
    Mismatch {
        ballot: Ballot,
    },
    /// The voter cannot remember another election.
    Full {
        ballot: Ballot,
    },
    /// Requests the sender's seat: queries the seats, or the grants of the voters in `among`.
    Enter {
        stamp: Ballot,
        attempt: u64,
        among: Stamps,
    },
    /// The sender's stamp, whether it holds its seat, and the stamps that it knows.
    Sits {
        attempt: u64,
        stamp: Ballot,
        sits: bool,
        known: Stamps,
    },
    /// A grant: a start of that name with an earlier stamp has no vote any more.
    Seconds {
        attempt: u64,
        to: Ballot,
        stamp: Ballot,
        known: Stamps,
    },
    /// A refusal: one of the named voters has lost its seat.
    Superseded {
        ballot: Ballot,
        known: Stamps,
    },
    /// A majority has accepted this value, which replaces the revision `previous`.
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

/// Returns a hash of names. Never zero.
pub(super) fn hash_of<'a>(names: impl IntoIterator<Item = &'a String>) -> u64 {
    stable_hash(names.into_iter().flat_map(|name| name.bytes().chain([0]))).max(1)
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
                moves,
            } => {
                let write = WriteId { nonce: Nonce(*nonce), number: *write };
                Content::Held(Entry {
                    identity: display_identity(identity, MAX_IDENTITY_LEN),
                    mark: Some(stated_mark(write, *lease_ms, *token, *since_ms, moves.clone())),
                    ttl: bounded_duration(*life_ms),
                    advertisement: stated_advertisement(advertisement.clone()),
                })
            }
            Holds::Released { by, left_ms, cause, to, pause } => {
                let (by, to) = (Nonce(*by), to.map(Nonce));
                Content::Vacant(stated_release(by, *left_ms, cause.as_deref(), to, *pause))
            }
        };
        Record { revision: Revision(self.revision), content }
    }
}

impl Holds {
    fn is_bounded(&self) -> bool {
        let fits = |text: &str| text.len() <= MAX_IDENTITY_LEN;
        match self {
            Self::Held { identity, advertisement, moves, .. } => {
                fits(identity)
                    && moves.site.as_deref().is_none_or(fits)
                    && advertisement.as_ref().is_none_or(|stated| stated.check().is_ok())
            }
            Self::Released { cause, .. } => cause.as_deref().is_none_or(fits),
        }
    }

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
            moves: (*write.mark.moves).clone(),
        }
    }

    pub fn released(release: &crate::lock::Release) -> Self {
        Self::Released {
            by: release.by.0,
            left_ms: ceil_millis(release.left),
            cause: Some(cause_label(release.cause)),
            to: release.to.map(|to| to.0),
            pause: release.pause,
        }
    }
}

impl Body {
    /// Returns whether a value to remember is as short as all that members write.
    pub fn is_bounded(&self) -> bool {
        match self {
            Self::Accept { value, .. } | Self::Stored { value, .. } => value.holds.is_bounded(),
            _ => true,
        }
    }

    /// Returns the greatest of the numbers that members continue to count from.
    pub fn greatest(&self) -> u64 {
        match self {
            Self::Prepare { ballot }
            | Self::Accepted { ballot }
            | Self::NotYet { ballot }
            | Self::Mismatch { ballot }
            | Self::Full { ballot } => ballot.round,
            Self::Promise { ballot, accepted, floor, seat } => {
                let known = accepted.as_ref().map_or(0, |(b, value)| b.round.max(value.revision));
                ballot.round.max(known).max(*floor).max(seat.map_or(0, |seat| seat.round))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock::Tombstone;

    fn content(holds: &str) -> Content {
        let text = format!(r#"{{"revision":1,"holds":{{"Released":{holds}}},"by":[1,2]}}"#);
        serde_json::from_str::<Value>(&text).expect("a value").record().content
    }

    fn released(cause: Option<&str>) -> Content {
        let (by, left, cause) = (Nonce(7), Duration::from_millis(5), cause.map(Into::into));
        Content::Vacant(Tombstone::Released { by, left, cause, to: None, pause: None })
    }

    #[test]
    fn the_cause_of_a_release_is_optional_and_bounded() {
        assert_eq!(content(r#"{"by":7,"left_ms":5}"#), released(None));
        assert_eq!(content(r#"{"by":7,"left_ms":5,"cause":"crashed"}"#), released(Some("crashed")));
        let long = format!(r#"{{"by":7,"left_ms":5,"cause":"\u001b\n{}"}}"#, "x".repeat(10_000));
        assert_eq!(content(&long), released(Some(&"x".repeat(32))));
    }

    /// As members of an earlier version write it.
    #[test]
    fn a_release_without_a_cause_has_no_field_of_it() {
        let holds = Holds::Released { by: 7, left_ms: 5, cause: None, to: None, pause: None };
        let text = serde_json::to_string(&holds).expect("JSON");
        assert_eq!(text, r#"{"Released":{"by":7,"left_ms":5}}"#);
    }
}
