//! Settings, events and actions of an elector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::{Backoff, BackoffPolicy};
use crate::lock::Advertisement;
use crate::lock::{
    Capabilities, Hint, Holder, LockErrorKind, Nonce, Pause, Readiness, Reading, Request, Revision,
    Token,
};
use crate::time::clock::Instant;
use crate::time::timing::{COMMON_MIN_LEASE, Timing};

/// Configuration of a candidate. A copy needs a [`nonce`](Self::nonce) and a seed of its own: two
/// candidates with one nonce are twins, and take each other's writes for their own.
#[derive(Clone)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Settings {
    /// What people read.
    pub identity: Arc<str>,
    /// Identifies this candidate among all others.
    pub nonce: Nonce,
    /// Where it can be reached while it holds the election.
    pub advertisement: Option<Arc<Advertisement>>,
    /// Lease, renewal, grace.
    pub timing: Timing,
    /// How long to wait between winning and leading.
    pub cool_down: CoolDown,
    /// How to poll where no hints come.
    #[cfg_attr(feature = "_history", serde(skip, default = "standard_backoff"))]
    pub backoff: Arc<dyn BackoffPolicy>,
    /// How long to let a holder that vanished come back first.
    pub takeover_delay: Duration,
    /// Among candidates that wake together the one with the higher priority acquires first.
    pub priority: u8,
    /// Where it runs, which its entries state.
    #[cfg_attr(feature = "_history", serde(default, skip_serializing_if = "Option::is_none"))]
    pub site: Option<Arc<str>>,
    /// Whether Choria's candidates take part in the same election.
    pub with_choria: bool,
    /// Whether to acquire the entry at all, or only to watch.
    pub eligible: bool,
    /// How ready the candidate is to lead when it begins.
    #[cfg_attr(feature = "_history", serde(default, rename = "standing"))]
    pub readiness: Readiness,
    /// When it acquires a vacant entry, compared with the other members of its set.
    #[cfg_attr(feature = "_history", serde(default))]
    pub rank: Rank,
    /// What all randomness is drawn from.
    pub seed: u64,
    /// The wall clock at the clock's origin, in milliseconds since the Unix epoch: for people,
    /// never compared.
    pub origin_unix_ms: u64,
}

impl Settings {
    /// The defaults.
    pub fn new(identity: impl Into<Arc<str>>, nonce: Nonce, timing: Timing) -> Self {
        Self {
            identity: identity.into(),
            nonce,
            advertisement: None,
            timing,
            cool_down: CoolDown::default(),
            backoff: Arc::new(Backoff::FIVE_SEC),
            takeover_delay: Duration::ZERO,
            priority: 0,
            site: None,
            with_choria: false,
            eligible: true,
            readiness: Readiness::Ready,
            rank: Rank::First,
            seed: nonce.0,
            origin_unix_ms: 0,
        }
    }
}

/// A history has what its policy returned, not the policy.
#[cfg(feature = "_history")]
fn standard_backoff() -> Arc<dyn BackoffPolicy> {
    Arc::new(Backoff::FIVE_SEC)
}

impl Settings {
    /// Whether a vacant entry is acquired at all.
    pub(crate) fn may_acquire(&self) -> bool {
        self.eligible && self.rank != Rank::Never
    }
}

partial_debug!(
    Settings, self, identity: self.identity, nonce: self.nonce, timing: self.timing,
    cool_down: self.cool_down, takeover_delay: self.takeover_delay, priority: self.priority,
    with_choria: self.with_choria, eligible: self.eligible, seed: self.seed
);

/// How much a winner waits between creating the entry and leading.
///
/// Each policy waits at least as long as [`Proven`](Self::Proven) does: none of them gives the
/// promise away.
///
/// ```
/// use incumbent::{CoolDown, memory::MemoryLock, new_election};
///
/// let builder = new_election("my_app", MemoryLock::new()).cool_down(CoolDown::Strict);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum CoolDown {
    /// Until no earlier holder can still be leading, by what the winner can prove. The default.
    #[default]
    Proven,
    /// As `Proven`, without trusting the lock's clock: an expiry that the winner has not watched
    /// earns a full lease.
    Strict,
    /// At least this long.
    For(Duration),
}

/// Why a winner does not lead before the end of its cool-down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// No earlier holder can still be leading.
    NothingToWaitFor,
    /// The lease of an entry that this candidate has seen.
    SeenLease,
    /// Too little is known of an earlier holder to rule out that it still leads.
    UnknownHolder,
    /// One of Choria's candidates may still lead.
    ChoriaCandidate,
    /// What the last holder still had to wait for when it released its entry or stepped down.
    PassedOn,
    /// The wait of an earlier write of this candidate, or work of its last term that does not stop.
    OwnEarlierTerm,
    /// The configured [`CoolDown`].
    Policy,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingToWaitFor => "no earlier holder can still be leading",
            Self::SeenLease => "the lease of an earlier holder that was seen",
            Self::UnknownHolder => "an earlier holder of which too little is known",
            Self::ChoriaCandidate => "a candidate of Choria's that may still lead",
            Self::PassedOn => "the rest of the wait of the last holder",
            Self::OwnEarlierTerm => "an earlier write or term of this candidate",
            Self::Policy => "the configured cool-down",
        })
    }
}

/// An instant before which a winner must not lead, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotBefore {
    pub at: Instant,
    /// Only reported: no decision depends on it.
    pub reason: WaitReason,
}

impl NotBefore {
    pub fn new(at: Instant, reason: WaitReason) -> Self {
        Self { at, reason }
    }

    /// The later of the two; this one if they are equal.
    pub fn max(self, other: Self) -> Self {
        if other.at > self.at { other } else { self }
    }
}

/// When a candidate acquires a vacant entry, compared with the other members of its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Rank {
    /// At once: the entry is this candidate's by the plan, or it is part of no set.
    #[default]
    First,
    /// At once, as `First`: its member asked the leader for the entry. Without hints it polls often
    /// enough to see the handover while the others hold back.
    Next,
    /// If no other one has done so within a quarter of a lease, at most 2 s.
    Second,
    /// Not at all: the member leads as much as it may.
    Never,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Event {
    /// The candidate begins to take part.
    Start,
    /// [`next_wake`](super::Elector::next_wake) has come.
    Wake,
    /// The lock suggests something.
    Hint(Hint),
    /// The response to the request `id`.
    Response {
        /// The request.
        id: u64,
        /// Its response.
        response: Response,
    },
    /// [`Action::End`] has been done. `work_stopped`: false if the work would not stop, in which
    /// case the entry is left to expire.
    TermEnded {
        /// Whether no work of the term is running any more.
        work_stopped: bool,
    },
    /// The work of the term came to its end by itself.
    WorkEnded {
        /// By a panic.
        panicked: bool,
    },
    /// Step down, and take part again.
    Resign,
    /// Step down in favour of this candidate, and take part again.
    HandOver {
        /// The candidate, which acquires the entry first.
        to: Nonce,
        /// Its identity, for people.
        identity: Arc<str>,
    },
    /// How ready this candidate is to lead from now on.
    #[cfg_attr(feature = "_history", serde(rename = "Standing"))]
    Readiness(Readiness),
    /// When this candidate acquires a vacant entry from now on.
    Rank(Rank),
    /// Step down, and stop for good.
    Stop,
    /// What the lock can do is now known better.
    Capabilities(Capabilities),
    /// This candidate can be reached elsewhere. Its next write states it.
    Advertise(Arc<Advertisement>),
    /// An operator pauses the election, or ends a pause. The holder states it within a second.
    Pause(Pause),
    /// The work of the term drains: the next write states no priority, so that nobody asks to be
    /// preferred.
    Drains,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Response {
    /// Of a [`Request::Read`].
    Read(Result<Reading, LockFailure>),
    /// Of a [`Request::Write`].
    Written(Result<Revision, LockFailure>),
    /// Of a [`Request::Release`].
    Released(Result<(), LockFailure>),
    /// Of a [`Request::NotifyStepDown`].
    Notified(Result<(), LockFailure>),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LockFailure {
    /// The kind of error.
    pub kind: LockErrorKind,
    /// The text for people.
    pub message: Arc<str>,
}

impl LockFailure {
    /// A failure of this kind, with a text for people.
    pub fn new(kind: LockErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// Something to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Action {
    /// Send the request to the lock, and return its outcome with [`Event::Response`]. A request
    /// still in flight is to be dropped: its outcome does not matter any more, or will be read.
    Request {
        /// To be repeated in the response.
        id: u64,
        /// The request.
        request: Request,
    },
    /// Report that the term has begun: this candidate leads, until the deadline.
    Begin {
        /// The term's fencing token.
        token: Token,
        /// When the right to lead ends.
        deadline: Instant,
    },
    /// The right to lead now lasts until this deadline.
    Extend {
        /// When the right to lead ends.
        deadline: Instant,
    },
    /// Stop the work by `by`, wait for it, report the loss, and return [`Event::TermEnded`].
    End {
        /// Why.
        cause: Cause,
        /// When to use force.
        by: Instant,
    },
    /// What is known of the leader has changed.
    Leader(Option<Leader>),
    /// Requests fail, for a reason of another kind than before.
    LockFailing(LockFailure),
    /// Requests succeed again.
    LockRecovered,
    /// The candidate has stopped, and holds nothing.
    Finished,
}

/// Why a term ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Cause {
    /// The holder resigned and takes part again.
    Resigned,
    /// The holder handed over, and takes part again.
    HandedOver {
        /// The identity of the successor.
        to: Arc<str>,
    },
    /// The candidate was stopped.
    Stopped,
    /// Another candidate wrote over the entry.
    Superseded {
        /// Its identity, as far as is known.
        by: Option<Arc<str>>,
    },
    /// The entry was deleted.
    Evicted,
    /// The lease could not be renewed in time, or the lock let it expire.
    Expired {
        /// The last failure to renew it.
        last_error: Option<Arc<str>>,
    },
    /// The lock denies this candidate the permission to renew.
    Denied {
        /// The lock's error.
        error: Arc<str>,
    },
    /// The work came to its end by itself.
    WorkEnded,
    /// The work panicked.
    WorkPanicked,
}

impl Cause {
    /// The cause in one word, for labels and marks: `resigned`, `handed_over`, `stopped`,
    /// `superseded`, `evicted`, `expired`, `denied`, `work_ended` or `work_panicked`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Resigned => "resigned",
            Self::HandedOver { .. } => "handed_over",
            Self::Stopped => "stopped",
            Self::Superseded { .. } => "superseded",
            Self::Evicted => "evicted",
            Self::Expired { .. } => "expired",
            Self::Denied { .. } => "denied",
            Self::WorkEnded => "work_ended",
            Self::WorkPanicked => "work_panicked",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resigned => f.write_str("resigned"),
            Self::HandedOver { to } => write!(f, "handed over to {to}"),
            Self::Stopped => f.write_str("stopped"),
            Self::Superseded { by: Some(by) } => write!(f, "superseded by {by}"),
            Self::Superseded { by: None } => f.write_str("superseded by another candidate"),
            Self::Evicted => f.write_str("evicted: the entry was deleted"),
            Self::Expired { last_error: Some(error) } => {
                write!(f, "expired: could not renew: {error}")
            }
            Self::Expired { last_error: None } => f.write_str("expired"),
            Self::Denied { error } => write!(f, "denied: {error}"),
            Self::WorkEnded => f.write_str("the work ended"),
            Self::WorkPanicked => f.write_str("the work panicked"),
        }
    }
}

/// The state of a candidate, in Choria's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "_history", derive(serde::Serialize))]
pub enum State {
    /// Nothing has been received from the lock yet.
    #[default]
    Unknown,
    /// On standby, or elected and cooling down.
    Candidate,
    /// Leading.
    Leader,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
        })
    }
}

/// The holder of the election, as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Leader {
    /// What people read.
    pub identity: Arc<str>,
    /// The term's token; `None` where the holder is not of this library.
    pub token: Option<Token>,
    /// When the term began, by the holder's wall clock, in milliseconds since the Unix epoch.
    pub since_unix_ms: Option<u64>,
    /// Where it can be reached, if it advertises that.
    pub advertisement: Option<Arc<Advertisement>>,
    /// When its last write was seen first, on the local clock.
    pub last_seen: Instant,
    /// How long after a write it may lead at most.
    pub lease: Duration,
    /// Whether it is this very candidate.
    pub is_me: bool,
    /// The priority that its last write states, if it may be asked to hand over.
    pub(crate) priority: Option<u8>,
}

/// What an observer sees of a leader.
impl From<&Leader> for Holder {
    fn from(leader: &Leader) -> Self {
        let since = leader.since_unix_ms.map(Duration::from_millis);
        Self {
            since: since.and_then(crate::lock::record::from_unix),
            lease: Some(leader.lease),
            advertisement: leader.advertisement.clone(),
            ..Self::new(&*leader.identity, leader.token)
        }
    }
}

impl Leader {
    /// Whether it has been seen to write within its lease, at least a second, at `now`: if not, it
    /// may be gone without a notice so far.
    pub fn is_fresh(&self, now: Instant) -> bool {
        now < self.fresh_until()
    }

    /// The first instant at which it is not fresh unless another write of it is seen.
    pub(crate) fn fresh_until(&self) -> Instant {
        self.last_seen + self.lease.max(COMMON_MIN_LEASE)
    }

    /// Whether they differ by nothing but a renewal.
    pub(super) fn is_renewal_of(&self, other: &Self) -> bool {
        let Self { identity, token, advertisement, is_me, .. } = self;
        (identity, token, advertisement, is_me)
            == (&other.identity, &other.token, &other.advertisement, &other.is_me)
    }
}
