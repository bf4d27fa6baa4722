//! One request of a lock, on its way through the voters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::wire::{Ballot, Holds, Recipient, Stamps, Value};
use crate::lock::codec::ceil_millis;
use crate::lock::{LockErrorKind, Reading, Release, Revision, Write};
use crate::time::clock::Instant;

/// What a lock asks.
#[derive(Debug, Clone)]
pub enum Operation {
    /// What stands there.
    Read,
    /// A conditional write.
    Write(Write),
    /// A conditional release.
    Release(Release),
    /// Delete what is held, if this is its revision; `None`: whatever it is.
    Evict(Option<Revision>),
    /// Which elections this member has heard of lately.
    Names,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// What stands there.
    Read(Reading),
    /// The revision of the write, the release or the deletion.
    Written(Revision),
    /// There was nothing to delete.
    Nothing,
    /// The elections.
    Names(Vec<String>),
}

/// Why it was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumError {
    /// Which of the answers it is.
    pub kind: LockErrorKind,
    /// What is wrong, and how to mend it.
    pub message: String,
}

#[derive(Debug)]
pub(super) struct Proposal {
    pub ticket: u64,
    pub name: Arc<str>,
    pub operation: Operation,
    /// Of this voter's requests.
    pub number: u64,
    pub until: Instant,
    pub attempts: u32,
    /// How many rounds were given up that were not accepted in time.
    pub given_up: u32,
    /// Whether something new was sent to be accepted: then it may have been, or may yet be.
    pub sent_new: bool,
    /// Whether somebody was told another size or lease.
    pub mismatch: bool,
    /// What the new thing was to replace.
    pub replaced: Option<Option<u64>>,
    pub ballot: Ballot,
    /// When the round began.
    pub began: Instant,
    /// When to send again, or to begin a round.
    pub resend: Instant,
    pub stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Waits to begin a round.
    Pause,
    /// Asks for promises.
    Prepare(BTreeMap<String, Promise>),
    /// Asks those of whose promises the value was decided, as they are.
    Accept(Box<Accepting>),
}

#[derive(Debug)]
pub(super) struct Accepting {
    pub set: BTreeMap<String, (Recipient, u64)>,
    pub accepted: BTreeSet<String>,
    /// By which stamps they sit.
    pub seats: Stamps,
    pub value: Value,
    pub done: Outcome,
    /// `Some`: it is new, and replaces this.
    pub previous: Option<Option<u64>>,
    /// When it was sent first, and how long to wait for a majority: one of those who promised may be gone, and only they may
    /// accept.
    pub since: Instant,
    pub patience: Duration,
}

#[derive(Debug)]
pub(super) struct Promise {
    pub from: Recipient,
    pub incarnation: u64,
    pub accepted: Option<(Ballot, Value)>,
    pub floor: u64,
    pub seat: Option<Ballot>,
}

/// What follows from what stands in a register.
pub(super) enum Decision {
    End(Result<Outcome, QuorumError>),
    Write { value: Value, done: Outcome, previous: Option<Option<u64>> },
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

    /// Why there is no answer in time. `silent`: why this member does not vote; empty: it does.
    pub fn gave_up(&self, majority: usize, silent: &'static str) -> QuorumError {
        let heard = match &self.stage {
            Stage::Prepare(promises) => promises.len(),
            Stage::Accept(accepting) => accepting.accepted.len(),
            Stage::Pause => 0,
        };
        let (mut kind, why);
        kind = LockErrorKind::Unavailable;
        if self.mismatch {
            why = ": others were told another size of the quorum, another lease, or other voters";
            kind = LockErrorKind::Misconfigured;
        } else {
            why = silent;
        }
        if self.sent_new {
            kind = LockErrorKind::OutcomeUnknown;
        }
        let message = format!("no quorum: {heard} of the {majority} votes that it takes{why}");
        QuorumError { kind, message }
    }
}

impl Operation {
    /// `me`: which request this is; `next`: the revision of what it writes; `settled`: whether a majority has accepted
    /// what stands there.
    pub(super) fn decide(
        &self,
        current: Option<Value>,
        me: (u64, u64),
        next: u64,
        settled: bool,
    ) -> Decision {
        let revision = current.as_ref().map(|value| value.revision);
        let conflict = |expected: Option<Revision>| {
            let say = |revision: Option<u64>| {
                revision.map_or_else(|| "nothing".to_owned(), |r| format!("revision {r}"))
            };
            let message =
                format!("expected {}, found {}", say(expected.map(|r| r.0)), say(revision));
            Decision::End(Err(QuorumError { kind: LockErrorKind::Conflict, message }))
        };
        let write = |holds| Decision::Write {
            value: Value { revision: next, holds, by: me },
            done: Outcome::Written(Revision(next)),
            previous: Some(revision),
        };
        if let Some(value) = current.as_ref().filter(|value| value.by == me) {
            // An earlier round of this very request: it is carried through.
            let done = Outcome::Written(Revision(value.revision));
            let (value, previous) = (value.clone(), None);
            return match settled {
                true => Decision::End(Ok(done)),
                false => Decision::Write { value, done, previous },
            };
        }
        match self {
            Self::Read => {
                let Some(value) = current else {
                    // A majority that has voted for a lease has heard of nothing: nobody has written for so long.
                    return Decision::End(Ok(Outcome::Read(Reading::Empty { proof: true })));
                };
                let done = Outcome::Read(Reading::Found(value.record()));
                match settled {
                    true => Decision::End(Ok(done)),
                    false => Decision::Write { value, done, previous: None },
                }
            }
            Self::Write(asked) if asked.expected.map(|r| r.0) == revision => {
                write(Holds::written(asked))
            }
            Self::Write(asked) => conflict(asked.expected),
            Self::Release(asked) if Some(asked.expected.0) == revision => {
                write(Holds::Released { by: asked.by.0, left_ms: ceil_millis(asked.left) })
            }
            Self::Release(asked) => conflict(Some(asked.expected)),
            Self::Names => Decision::End(Ok(Outcome::Names(Vec::new()))),
            Self::Evict(Some(expected)) if Some(expected.0) != revision => {
                conflict(Some(*expected))
            }
            Self::Evict(_) => match current.as_ref().map(|value| &value.holds) {
                Some(Holds::Held { .. }) => write(Holds::Deleted),
                _ => Decision::End(Ok(Outcome::Nothing)),
            },
        }
    }
}
