//! What a voter is told, and what it wants done.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use super::proposal::{Operation, Outcome, QuorumError};
#[cfg(doc)]
use super::voter::Voter;
use crate::lock::{Hint, StepDownNotice};

/// How a voter votes.
#[derive(Debug, Clone)]
pub struct VoterSettings {
    /// What tells this member from others.
    pub id: Arc<str>,
    /// How many voters there are at the most at any time.
    pub size: u32,
    /// Who they are, where that is known.
    pub voters: Option<BTreeSet<String>>,
    /// Whether this member is one of them; otherwise it only asks.
    pub votes: bool,
    /// The longest lease that anybody may hold.
    pub lease: Duration,
    /// Drawn at each start.
    pub incarnation: u64,
    /// The wall clock at the clock's origin, in microseconds since the Unix epoch.
    pub origin_unix_us: u64,
}

/// What has happened to a voter.
#[derive(Debug)]
pub enum VoterEvent<'a> {
    /// It begins.
    Start,
    /// The time of [`Voter::next_wake`] has come.
    Wake,
    /// A member of the group has said this under the event [`Voter::EVENT`].
    Received {
        /// Who.
        id: &'a str,
        /// From where.
        from: SocketAddr,
        /// What.
        said: &'a Json,
    },
    /// A lock of this member asks something.
    Propose {
        /// To be repeated in the answer.
        ticket: u64,
        /// The election.
        name: Arc<str>,
        /// What is asked.
        operation: Operation,
        /// How long to try.
        timeout: Duration,
    },
    /// A lock of this member concedes.
    Concede(Arc<str>, StepDownNotice),
}

/// What a voter wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum VoterAction {
    /// Say this under the event [`Voter::EVENT`], to one address or to all.
    Send {
        /// `None`: to all.
        to: Option<SocketAddr>,
        /// What.
        said: Json,
    },
    /// The answer to what was asked.
    Answer {
        /// As asked.
        ticket: u64,
        /// What came of it.
        answer: Result<Outcome, QuorumError>,
    },
    /// A hint for whoever stands in this election.
    Hint {
        /// The election.
        name: Arc<str>,
        /// The hint.
        hint: Hint,
    },
}
