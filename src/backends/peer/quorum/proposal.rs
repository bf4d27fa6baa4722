//! A request of a lock, while it is decided by the voters.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::wire::{Ballot, Holds, Recipient, Stamps, Value};
use crate::lock::{LockErrorKind, Reading, Release, Revision, Write, unexpected};
use crate::time::clock::Instant;

/// A request of a lock.
#[derive(Debug, Clone)]
pub enum Operation {
    /// The content of the register.
    Read,
    /// A conditional write.
    Write(Write),
    /// A conditional release.
    Release(Release),
    /// The elections that this member received messages about recently.
    Names,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The content of the register.
    Read(Reading),
    /// The revision of the write or the release.
    Written(Revision),
    /// The elections.
    Names(Vec<String>),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumError {
    /// The kind of the error.
    pub kind: LockErrorKind,
    /// The problem, and how to fix it.
    pub message: String,
}

#[derive(Debug)]
pub(super) struct Proposal {
    pub ticket: u64,
    pub name: Arc<str>,
    pub operation: Operation,
    /// The number among this voter's requests.
    pub number: u64,
    pub until: Instant,
    pub attempts: u32,
    /// How many rounds were abandoned because they were not accepted in time.
    pub abandoned: u32,
    /// Whether a new value was sent to be accepted: it may have been accepted, or may be later.
    pub sent_new: bool,
    /// Why a voter refuses all requests of this member, or of this election; empty: none does.
    pub refusal: Cow<'static, str>,
    /// The revision that the new value replaces.
    pub replaced: Option<Option<u64>>,
    pub ballot: Ballot,
    /// When the round started.
    pub began: Instant,
    /// When to send again, or to start a round.
    pub resend: Instant,
    pub stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Waits to start a round.
    Pause,
    /// Requests promises.
    Prepare(BTreeMap<String, Promise>),
    /// Requests acceptance from the voters whose promises decided the value, and from their same
    /// starts.
    Accept(Box<Accepting>),
}

#[derive(Debug)]
pub(super) struct Accepting {
    pub set: BTreeMap<String, (Recipient, u64)>,
    pub accepted: BTreeSet<String>,
    /// The stamps of their seats.
    pub seats: Stamps,
    pub value: Value,
    pub done: Outcome,
    /// `Some`: the value is new, and replaces this revision.
    pub previous: Option<Option<u64>>,
    /// When it was sent first, and how long to wait for a majority: only voters that promised may
    /// accept, and one of them may be gone.
    pub since: Instant,
    pub timeout: Duration,
}

#[derive(Debug)]
pub(super) struct Promise {
    pub from: Recipient,
    pub incarnation: u64,
    pub accepted: Option<(Ballot, Value)>,
    pub floor: u64,
    pub seat: Option<Ballot>,
}

/// The decision on a request, from the content of a register.
pub(super) enum Decision {
    End(Result<Outcome, QuorumError>),
    Write { value: Box<Value>, done: Outcome, previous: Option<Option<u64>> },
}

impl Proposal {
    pub fn promised(&mut self, id: &str, promise: Promise) {
        if let Stage::Prepare(promises) = &mut self.stage {
            promises.insert(id.to_owned(), promise);
        }
    }

    pub fn accepted(&mut self, id: &str, incarnation: u64) {
        if let Stage::Accept(accepting) = &mut self.stage
            && accepting.set.get(id).is_some_and(|(_, promised)| *promised == incarnation)
        {
            accepting.accepted.insert(id.to_owned());
        }
    }

    /// Returns the error of a request that timed out. `silent`: why this member does not vote;
    /// empty: it votes.
    pub fn timeout_error(&self, majority: usize, silent: &'static str) -> QuorumError {
        let received = match &self.stage {
            Stage::Prepare(promises) => promises.len(),
            Stage::Accept(accepting) => accepting.accepted.len(),
            Stage::Pause => 0,
        };
        let (kind, why) = match &*self.refusal {
            "" => (LockErrorKind::Unavailable, silent),
            refusal => (LockErrorKind::Misconfigured, refusal),
        };
        let message = format!("no quorum: {received} of {majority} required votes{why}");
        QuorumError { kind: self.error_kind(kind), message }
    }

    /// Returns the kind of the error that ends the request: unless nothing was sent to be accepted,
    /// its outcome is unknown.
    pub fn error_kind(&self, kind: LockErrorKind) -> LockErrorKind {
        if self.sent_new { LockErrorKind::OutcomeUnknown } else { kind }
    }
}

impl Operation {
    /// Decides the request. `me`: the identity of this request; `next`: the revision of a new
    /// value; `settled`: whether a majority has accepted `current`.
    pub(super) fn decide(
        &self,
        current: Option<Value>,
        me: (u64, u64),
        next: u64,
        settled: bool,
    ) -> Decision {
        let revision = current.as_ref().map(|value| value.revision);
        let conflict = |expected: Option<Revision>| {
            let message = unexpected(expected, revision.map(Revision));
            Decision::End(Err(QuorumError { kind: LockErrorKind::Conflict, message }))
        };
        let write = |holds| Decision::Write {
            value: Box::new(Value { revision: next, holds, by: me }),
            done: Outcome::Written(Revision(next)),
            previous: Some(revision),
        };
        if let Some(value) = current.as_ref().filter(|value| value.by == me) {
            // An earlier round of this request: complete it.
            let done = Outcome::Written(Revision(value.revision));
            let (value, previous) = (Box::new(value.clone()), None);
            return match settled {
                true => Decision::End(Ok(done)),
                false => Decision::Write { value, done, previous },
            };
        }
        match self {
            Self::Read => {
                let Some(value) = current else {
                    // A majority that has voted for a lease has no value, so nothing was written
                    // for that time.
                    return Decision::End(Ok(Outcome::Read(Reading::Empty { proof: true })));
                };
                let done = Outcome::Read(Reading::Found(value.record()));
                match settled {
                    true => Decision::End(Ok(done)),
                    false => Decision::Write { value: Box::new(value), done, previous: None },
                }
            }
            Self::Write(request) if request.expected.map(|r| r.0) == revision => {
                write(Holds::written(request))
            }
            Self::Write(request) => conflict(request.expected),
            Self::Release(request) if Some(request.expected.0) == revision => {
                write(Holds::released(request))
            }
            Self::Release(request) => conflict(Some(request.expected)),
            Self::Names => Decision::End(Ok(Outcome::Names(Vec::new()))),
        }
    }
}
