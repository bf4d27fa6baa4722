//! Roll calls: who takes part in an election.

#[allow(dead_code, reason = "not every lock calls the roll")]
mod json;
pub(super) mod numbers;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{LockError, LockErrorKind, MemberLoad, Nonce, Pause, TakeRequest, Token};

/// The most answers that one call takes.
pub(crate) const MAX_ANSWERS: usize = 100_000;

/// A request to the candidates of an election, which they answer by stating who they are.
///
/// It names no address: whoever may call could have candidates write there with their own
/// permissions. Each lock derives from the id where the answers to a call go.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RollCall {
    /// Distinguishes the answers to this call.
    #[serde(with = "numbers::call_id_text")]
    pub id: CallId,
    /// For how long answers are awaited. Each candidate picks its own moment in it, so that a large
    /// fleet does not answer at once.
    #[serde(rename = "within_ms", with = "numbers::within_millis")]
    pub within: Duration,
    /// What the candidates are to do.
    #[serde(default, deserialize_with = "numbers::bounded_request")]
    pub request: CandidateRequest,
}

/// The id of a [`RollCall`]: displayed and sent as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(pub u64);

impl CallId {
    pub(crate) fn random() -> Self {
        Self(fastrand::u64(..))
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl RollCall {
    /// The longest time over which candidates spread their answers.
    pub const MAX_WITHIN: Duration = Duration::from_secs(30);
    /// For how long a leader that is to hand over awaits the answers of those that are ready.
    /// Nothing has stopped meanwhile.
    pub const SUCCESSORS_WITHIN: Duration = Duration::from_secs(1);
    /// What a call may take beside the time for answers: to connect, to send it, to read answers.
    pub(crate) const MARGIN: Duration = Duration::from_secs(4);
    /// For how long the answer of a leader that is asked to hand over is awaited: it calls the roll
    /// first, and a second is for the way.
    pub const HANDOVER_WITHIN: Duration =
        Self::SUCCESSORS_WITHIN.saturating_add(Self::MARGIN).saturating_add(Duration::from_secs(1));
}

/// What the candidates of an election are requested to do.
///
/// None of it weakens the promise: a request leads to an ordinary end of a term at most.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CandidateRequest {
    /// State who they are. Each answers.
    #[default]
    Identify,
    /// State who they are, if they may be this successor of the leader. The others are silent, so
    /// that the answer of one does not get lost among those of thousands.
    #[serde(rename = "succeed")]
    WhoCanSucceed(Successor),
    /// Hand over, as an operator wants it. The leader answers.
    HandOver(Successor),
    /// Hand over to a candidate that is to be preferred to the present leader. The leader answers.
    Prefer {
        /// The candidate that asks.
        #[serde(with = "crate::lock::codec::nonce_text")]
        by: Nonce,
        /// Its priority.
        priority: u8,
    },
    /// Hand over this shard of a set, so that its load is more even. The leader answers.
    Take(TakeRequest),
    /// Move the leadership for no failed check and no preference during this pause. The holder of
    /// the entry states it there, and answers.
    Pause(Pause),
}

impl CandidateRequest {
    /// Whether candidates do nothing but answer it: a lesser right.
    #[cfg(feature = "nats")]
    pub(crate) fn is_question(&self) -> bool {
        matches!(self, Self::Identify | Self::WhoCanSucceed(_))
    }

    /// Whether the leader alone answers it.
    pub fn is_for_leader(&self) -> bool {
        matches!(self, Self::HandOver(_) | Self::Prefer { .. } | Self::Take(_) | Self::Pause(_))
    }

    /// Whether no further answer is awaited after this one.
    pub(crate) fn is_answered_by(&self, info: &CandidateInfo) -> bool {
        match self {
            Self::WhoCanSucceed(Successor::Candidate(wanted)) => info.nonce == *wanted,
            Self::Pause(_) => info.role != Role::Standby,
            _ => self.is_for_leader() && info.handover.is_some(),
        }
    }

    /// Whether one candidate alone answers it: it does so at once.
    pub(crate) fn has_one_answer(&self) -> bool {
        self.is_for_leader() || matches!(self, Self::WhoCanSucceed(Successor::Candidate(_)))
    }

    /// Restricts what anybody may have sent to what a candidate may send.
    fn bounded(self) -> Self {
        match self {
            Self::WhoCanSucceed(to) => Self::WhoCanSucceed(to.bounded()),
            Self::HandOver(to) => Self::HandOver(to.bounded()),
            Self::Take(TakeRequest { by, identity, load }) => {
                use crate::lock::codec::{MAX_IDENTITY_LEN, display_identity};
                let identity = display_identity(&identity, MAX_IDENTITY_LEN);
                Self::Take(TakeRequest { by, identity, load })
            }
            other => other,
        }
    }
}

/// To which candidate a leader hands over. Among several the one with the highest priority leads
/// next.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Successor {
    /// To any one that is ready.
    #[default]
    Any,
    /// To one of this identity.
    Identity(Arc<str>),
    /// To one at this [site](crate::ElectionBuilder::site).
    Site(Arc<str>),
    /// To this one.
    #[serde(with = "crate::lock::codec::nonce_text")]
    Candidate(Nonce),
}

impl Successor {
    /// Whether it may be this candidate.
    pub fn includes(&self, info: &CandidateInfo) -> bool {
        self.includes_candidate(info.nonce, &info.identity, info.site.as_ref())
    }

    pub(crate) fn includes_candidate(
        &self,
        nonce: Nonce,
        identity: &Arc<str>,
        site: Option<&Arc<str>>,
    ) -> bool {
        match self {
            Self::Any => true,
            Self::Identity(wanted) => wanted == identity,
            Self::Site(wanted) => Some(wanted) == site,
            Self::Candidate(wanted) => *wanted == nonce,
        }
    }

    fn bounded(self) -> Self {
        use crate::lock::codec::{MAX_IDENTITY_LEN, display_identity};
        match self {
            Self::Any => Self::Any,
            Self::Identity(identity) => {
                Self::Identity(display_identity(&identity, MAX_IDENTITY_LEN))
            }
            Self::Site(site) => Self::Site(display_identity(&site, MAX_SITE_LEN)),
            Self::Candidate(nonce) => Self::Candidate(nonce),
        }
    }
}

impl From<&str> for Successor {
    /// The candidate of this identity.
    fn from(identity: &str) -> Self {
        Self::Identity(identity.into())
    }
}

/// How ready a candidate is to lead.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Readiness {
    /// It leads when its turn comes.
    #[default]
    Ready,
    /// It [stands aside](crate::ElectionBuilder::stand_aside): it leads if no ready one does.
    #[serde(rename = "aside")]
    Cordoned,
    /// Its [check](crate::ElectionBuilder::check) fails, or the lock refuses its writes, as where a
    /// permission is missing: it leads if no other one does.
    #[serde(rename = "sick")]
    Unhealthy,
}

impl Readiness {
    /// The word for it in formats and messages: `ready`, `aside` or `sick`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Cordoned => "aside",
            Self::Unhealthy => "sick",
        }
    }
}

/// What a leader answers to a request to hand over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HandoverAnswer {
    /// It hands over to the candidate of this identity.
    To(Arc<str>),
    /// It does not, for this reason.
    Refused(Arc<str>),
}

/// What a candidate states of itself in a roll call. Nothing of it is evidence: anybody who may
/// answer may state anything.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct CandidateInfo {
    /// What people read.
    pub identity: Arc<str>,
    /// Distinguishes candidates of one identity.
    #[serde(with = "crate::lock::codec::nonce_text")]
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
    #[serde(default)]
    pub token: Option<Token>,
    /// See [`ElectionBuilder::site`](crate::ElectionBuilder::site).
    #[serde(default)]
    pub site: Option<Arc<str>>,
    /// How ready it is to lead.
    #[serde(default, rename = "standing")]
    pub readiness: Readiness,
    /// What it answers as the leader to a request to hand over.
    #[serde(default)]
    pub handover: Option<HandoverAnswer>,
    /// How much of the set it leads, if the election is a shard of one.
    #[serde(default)]
    pub load: Option<MemberLoad>,
    /// What is left of its cool-down, if it holds the entry and does not lead yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cool_down: Option<CoolDownLeft>,
}

/// What is left of the cool-down of a candidate that holds the entry.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct CoolDownLeft {
    /// How long it will last, in milliseconds, unless a step-down notice ends it.
    pub left_ms: u64,
    /// What is waited for: a [`WaitReason`](crate::WaitReason) in words.
    pub reason: Arc<str>,
}

impl CandidateInfo {
    /// A ready standby of this library's version, of which nothing else is known.
    pub fn new(identity: impl Into<Arc<str>>, nonce: Nonce) -> Self {
        Self {
            identity: identity.into(),
            nonce,
            role: Role::Standby,
            priority: 0,
            version: env!("CARGO_PKG_VERSION").into(),
            since_unix_ms: 0,
            leader: None,
            token: None,
            site: None,
            readiness: Readiness::Ready,
            handover: None,
            load: None,
            cool_down: None,
        }
    }
}

/// The response of a lock that carries no calls.
pub(crate) fn no_calls() -> Result<Vec<CandidateInfo>, LockError> {
    let what = "this lock carries no roll calls: its candidates are unknown";
    Err(LockError::new(LockErrorKind::Misconfigured, what))
}

/// The last answer of each candidate.
pub(crate) fn distinct(answers: impl IntoIterator<Item = CandidateInfo>) -> Vec<CandidateInfo> {
    let by_nonce: HashMap<_, _> =
        answers.into_iter().take(MAX_ANSWERS).map(|info| (info.nonce, info)).collect();
    by_nonce.into_values().collect()
}

/// What a candidate is doing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
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

pub(crate) use super::types::MAX_SITE_LEN;

#[allow(unused_imports, reason = "not every lock calls the roll")]
pub(crate) use json::{Answers, parse, parse_call, to_json};
