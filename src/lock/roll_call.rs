//! Roll calls: who takes part in an election.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Nonce, Token};

/// The longest time over which candidates spread their answers.
pub(crate) const MAX_WITHIN: Duration = Duration::from_secs(30);
/// The most answers that one call takes.
pub(crate) const MAX_ANSWERS: usize = 100_000;

/// A request to the candidates of an election to state who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct RollCall {
    /// Where to answer, in the lock's own terms.
    pub reply_to: Arc<str>,
    /// For how long answers are awaited. Each candidate picks its own moment in it, so that a large
    /// fleet does not answer at once.
    pub within: Duration,
}

/// What a candidate states of itself in a roll call. Nothing of it is evidence: anybody who may
/// answer may state anything.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_json", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CandidateInfo {
    /// What people read.
    pub identity: Arc<str>,
    /// Distinguishes candidates of one identity.
    #[cfg_attr(feature = "_json", serde(with = "nonce_text"))]
    pub nonce: Nonce,
    /// What it is doing.
    pub role: Role,
    /// See [`ElectionBuilder::priority`](crate::ElectionBuilder::priority).
    pub priority: u8,
    /// The version of this library.
    pub version: Arc<str>,
    /// When the candidate started, by its wall clock, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// The identity of the leader that it sees, if it sees one.
    pub leader: Option<Arc<str>>,
    /// The token of that leader.
    #[cfg_attr(feature = "_json", serde(default, with = "token_number"))]
    pub token: Option<Token>,
}

/// The last answer of each candidate.
pub(crate) fn distinct(answers: impl IntoIterator<Item = CandidateInfo>) -> Vec<CandidateInfo> {
    let by_nonce: HashMap<_, _> =
        answers.into_iter().take(MAX_ANSWERS).map(|info| (info.nonce, info)).collect();
    by_nonce.into_values().collect()
}

/// What a candidate is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "_json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "_json", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Role {
    /// It leads.
    Leader,
    /// It leads until its work has drained.
    Draining,
    /// It holds the entry, and waits before it leads.
    CoolingDown,
    /// It stands by.
    Standby,
}

impl Role {
    /// The role in one word: `leader`, `draining`, `cooling_down` or `standby`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Draining => "draining",
            Self::CoolingDown => "cooling_down",
            Self::Standby => "standby",
        }
    }
}

#[cfg(any(feature = "nats", feature = "postgres"))]
pub(crate) use json::{parse, to_json};

#[cfg(any(feature = "nats", feature = "postgres"))]
mod json {
    use super::CandidateInfo;
    use crate::lock::codec::{MAX_IDENTITY_LEN, display_identity};

    /// The most bytes of an answer that are read.
    const MAX_ANSWER_LEN: usize = 6 * 1024;
    /// The most bytes of a version.
    const MAX_VERSION_LEN: usize = 64;

    pub(crate) fn to_json(info: &CandidateInfo) -> String {
        serde_json::to_string(info).unwrap_or_default()
    }

    /// Reads an answer, which anybody may have sent; `None` if it is none.
    pub(crate) fn parse(answer: &[u8]) -> Option<CandidateInfo> {
        if answer.len() > MAX_ANSWER_LEN {
            return None;
        }
        let info: CandidateInfo = serde_json::from_slice(answer).ok()?;
        Some(CandidateInfo {
            identity: display_identity(&info.identity, MAX_IDENTITY_LEN),
            version: display_identity(&info.version, MAX_VERSION_LEN),
            leader: info.leader.map(|leader| display_identity(&leader, MAX_IDENTITY_LEN)),
            ..info
        })
    }
}

#[cfg(feature = "_json")]
mod nonce_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::lock::Nonce;
    use crate::lock::codec::parse_nonce;

    pub fn serialize<S: Serializer>(nonce: &Nonce, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(nonce)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Nonce, D::Error> {
        parse_nonce(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("not a nonce"))
    }
}

#[cfg(feature = "_json")]
mod token_number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::lock::Token;

    pub fn serialize<S: Serializer>(token: &Option<Token>, to: S) -> Result<S::Ok, S::Error> {
        token.map(|token| token.0).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Token>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Token))
    }
}
