//! Settings, events and actions of a voter.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use super::proposal::{Operation, Outcome, QuorumError};
#[cfg(doc)]
use super::voter::Voter;
use crate::lock::{Hint, StepDownNotice};

/// Settings of a voter.
#[derive(Debug, Clone)]
pub struct VoterSettings {
    /// The identifier of this member.
    pub id: Arc<str>,
    /// The maximum number of voters at any time.
    pub size: u32,
    /// The identifiers of the voters, if they have names.
    pub voters: Option<BTreeSet<String>>,
    /// Whether this member is one of them; otherwise it only sends requests.
    pub votes: bool,
    /// The maximum lease of any candidate.
    pub lease: Duration,
    /// A random number, drawn at each start.
    pub incarnation: u64,
    /// The wall clock at the clock's origin, in microseconds since the Unix epoch.
    pub origin_unix_us: u64,
}

/// An event of a voter.
#[derive(Debug)]
pub enum VoterEvent<'a> {
    /// The voter starts.
    Start,
    /// The time of [`Voter::next_wake`] has come.
    Wake,
    /// A member of the group has sent a message under the event [`Voter::EVENT`].
    Received {
        /// The identifier of the sender.
        id: &'a str,
        /// The address of the sender.
        from: SocketAddr,
        /// The message.
        message: &'a Json,
    },
    /// A lock of this member sends a request.
    Propose {
        /// The number to repeat in the response.
        ticket: u64,
        /// The election.
        name: Arc<str>,
        /// The request.
        operation: Operation,
        /// The timeout of the request.
        timeout: Duration,
    },
    /// A lock of this member sends a step-down notice.
    NotifyStepDown(Arc<str>, StepDownNotice),
    /// This member is about to leave: what it would announce again later, it announces now.
    Stop,
}

/// An action for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum VoterAction {
    /// Send this under the event [`Voter::EVENT`], to one address or to all.
    Send {
        /// The recipient; `None`: all members.
        to: Option<SocketAddr>,
        /// The message.
        message: Json,
    },
    /// The response to a request.
    Answer {
        /// The number of the request.
        ticket: u64,
        /// The result.
        answer: Result<Outcome, QuorumError>,
    },
    /// A hint for the candidates of this election.
    Hint {
        /// The election.
        name: Arc<str>,
        /// The hint.
        hint: Hint,
    },
}
