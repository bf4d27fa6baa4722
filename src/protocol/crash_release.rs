//! Releasing the entry of a leader whose process is dead: the decisions of a sentinel.
//!
//! The caller has proved that no work of the term is running any more. The release is then the same
//! conditional delete as that of a leader that stops: a renewal that was still in flight either
//! comes first, and the delete is refused, or comes later, and is refused itself.

use std::time::Duration;

use super::types::Response;
use crate::lock::{
    Content, LockErrorKind, Nonce, Pause, Reading, Record, Release, Request, Revision, Token,
    Tombstone,
};
use crate::time::clock::Instant;
use crate::util::retry::ProtocolRetries;

/// The cause of a release after a crash, as it is written for people.
pub const CRASHED: &str = "crashed";

/// A term of a process, as far as a sentinel has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegisteredTerm {
    /// The candidate.
    pub nonce: Nonce,
    /// The term.
    pub token: Token,
    /// The number of the write that began it.
    pub create: u64,
}

impl RegisteredTerm {
    /// Returns whether the entry in `record` is of this term.
    pub fn holds(&self, record: &Record) -> bool {
        let Content::Held(entry) = &record.content else { return false };
        entry.mark.as_ref().is_some_and(|mark| {
            // The write that begins the term has no token yet. Its revision is the token, but on
            // Kubernetes one that reads the entry anew finds the revision of a later roll call.
            let of_term = mark.token.map_or(mark.write.number == self.create, |t| t == self.token);
            mark.write.nonce == self.nonce && of_term
        })
    }
}

/// What became of a [`CrashRelease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrashOutcome {
    /// The entry is released: another candidate may lead at once.
    Released,
    /// There was no entry of the term any more.
    NotHeld,
    /// The lock refused, or did not respond in time. The entry expires by itself.
    Failed(String),
}

/// The next step of a [`CrashRelease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrashStep {
    /// Send this request, and pass its response to [`CrashRelease::on_response`].
    Request(Request),
    /// Ask again at this instant.
    Wait(Instant),
    /// Nothing is left to do.
    Done(CrashOutcome),
}

/// Releases the entry of one term after the death of its process.
///
/// Requests are sent one at a time.
#[derive(Debug, Clone)]
pub struct CrashRelease {
    pub(super) term: RegisteredTerm,
    pub(super) timeout: Duration,
    /// When to stop trying.
    pub(super) until: Instant,
    pub(super) at: Instant,
    /// The entry, once a read has shown it.
    pub(super) held: Option<Revision>,
    /// The pause that it states.
    pub(super) pause: Option<Pause>,
    pub(super) retries: ProtocolRetries,
    pub(super) refused: bool,
    pub(super) outcome: Option<CrashOutcome>,
}

impl CrashRelease {
    /// `now`: when the last work of the term had ended. It tries until `until`, with `timeout` for
    /// each request.
    pub fn new(
        term: RegisteredTerm,
        now: Instant,
        until: Instant,
        timeout: Duration,
        seed: u64,
    ) -> Self {
        Self {
            term,
            timeout,
            until,
            at: now,
            held: None,
            pause: None,
            retries: ProtocolRetries::new(seed),
            refused: false,
            outcome: None,
        }
    }

    /// The next step at `now`. Must not be called while a request is in flight.
    pub fn next(&self, now: Instant) -> CrashStep {
        if let Some(outcome) = &self.outcome {
            return CrashStep::Done(outcome.clone());
        }
        if now < self.at {
            return CrashStep::Wait(self.at);
        }
        CrashStep::Request(match self.held {
            None => Request::Read { timeout: self.timeout },
            Some(expected) => Request::Release(Release {
                expected,
                by: self.term.nonce,
                left: Duration::ZERO, // only terms that have begun are registered
                cause: CRASHED,
                to: None,
                pause: self.pause,
                timeout: self.timeout,
            }),
        })
    }

    /// Takes the response to the last request.
    pub fn on_response(&mut self, now: Instant, response: Response) {
        match response {
            Response::Read(Ok(Reading::Found(record))) => {
                if self.term.holds(&record) {
                    self.held = Some(record.revision);
                    self.pause = match &record.content {
                        Content::Held(entry) => entry.pause(),
                        Content::Vacant(_) => None,
                    };
                } else {
                    self.outcome = Some(self.outcome_of(&record));
                }
            }
            Response::Read(Ok(Reading::Empty { .. })) => {
                self.outcome = Some(CrashOutcome::NotHeld);
            }
            Response::Released(Ok(())) => self.outcome = Some(CrashOutcome::Released),
            // A renewal came first: at once, but only once.
            Response::Released(Err(failure))
                if failure.kind == LockErrorKind::Conflict && !self.refused =>
            {
                self.refused = true;
                self.held = None;
            }
            Response::Read(Err(failure)) | Response::Released(Err(failure)) => {
                self.held = None; // the outcome of a release may be unknown: read
                self.at = now + self.retries.delay();
                let lasting =
                    matches!(failure.kind, LockErrorKind::Denied | LockErrorKind::Misconfigured);
                if lasting || self.at > self.until {
                    self.outcome = Some(CrashOutcome::Failed(failure.message.to_string()));
                }
            }
            Response::Written(_) | Response::Notified(_) => {} // not requested
        }
    }

    /// The outcome where the entry is not of the term. Our own release may have been stored
    /// although its response was lost.
    fn outcome_of(&self, record: &Record) -> CrashOutcome {
        match &record.content {
            Content::Vacant(Tombstone::Released { by, .. }) if *by == self.term.nonce => {
                CrashOutcome::Released
            }
            _ => CrashOutcome::NotHeld,
        }
    }
}
