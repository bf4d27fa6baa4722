//! The messages between a candidate and its `run-traffic` process, one per line, as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::StopTimes;

/// The subcommand of the process.
pub const SUBCOMMAND: &str = "run-traffic";
/// The variable with the arguments of the candidate, as JSON: a list of processes does not show it.
pub const ARGUMENTS: &str = "INCUMBENT_TRAFFIC_ARGUMENTS";
/// The file beside the deadline file that is there while requests may be directed here.
pub const MARKER: &str = "directed";
/// How long the end of a term waits until all is withdrawn but the addresses.
pub const WITHDRAWAL: Duration = Duration::from_secs(1);

/// A request to the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficRequest {
    /// A term with this token began: direct requests here, until this time.
    Direct { token: u64, until: StopTimes },
    /// The term was renewed.
    Extend(StopTimes),
    /// Let no new requests come here, where that leaves those that are being served.
    Drain,
    /// The term ends: direct no requests here.
    Withdraw,
}

/// An event of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficEvent {
    /// No address is left here of an earlier process.
    Cleaned,
    /// It was checked that requests can be directed.
    Ready,
    /// Requests are directed here, in the term with this token.
    Directed { token: u64 },
    /// Acknowledges renewals of that term.
    Extended { token: u64 },
    /// The addresses of that term are removed: a successor may add them.
    AddressesRemoved { token: u64 },
    /// All of that term is withdrawn, or was tried to be.
    Withdrawn { token: u64 },
    /// Requests cannot be directed here, and what was done is withdrawn: why, in one line.
    Failed { token: u64, why: String },
}

impl TrafficEvent {
    /// The token of the term that it is about.
    pub fn token(&self) -> Option<u64> {
        match self {
            Self::Cleaned | Self::Ready => None,
            Self::Directed { token }
            | Self::Extended { token }
            | Self::AddressesRemoved { token }
            | Self::Withdrawn { token }
            | Self::Failed { token, .. } => Some(*token),
        }
    }
}
