//! The guard that a leader holds.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::Span;

use super::checkpoint::Checkpoint;
use super::hand_over::HandOverError;
use super::inbox::Input;
use super::loss::{DrainNotice, Loss};
use crate::election::term::Term;
use crate::lock::{Successor, Token};
use crate::time::clock::Instant;

/// A share in the current term: its holder may act as leader.
///
/// It is also the sign that work is being done. A term whose every `Leadership` has been dropped
/// ends ([`Cause::WorkEnded`](crate::Cause::WorkEnded), or
/// [`Cause::WorkPanicked`](crate::Cause::WorkPanicked) when that happened by a panic), the entry is
/// released, and another candidate may lead: so keep it for as long as you work, and drop it when
/// you are done. A term of which no `Leadership` was ever taken continues.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let lock = incumbent::memory::MemoryLock::new();
/// let election = incumbent::new_election("my_app", lock).start()?;
/// let leadership = election.won().await?;
/// let done = leadership.run(async { 6 * 7 }).await; // Err(Loss) if the term ends first
/// assert_eq!(done, Ok(42));
/// drop(leadership); // others may lead
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the last Leadership of a term ends the term"]
pub struct Leadership {
    term: Arc<Term>,
}

impl Leadership {
    /// Unless the term is over.
    pub(crate) fn of(term: &Arc<Term>) -> Option<Self> {
        term.hold().then(|| Self { term: Arc::clone(term) })
    }

    /// The term, without a share in it.
    #[allow(dead_code, reason = "fences use it")]
    pub(crate) fn term(&self) -> &Arc<Term> {
        &self.term
    }

    /// The fencing token of this term: greater than that of every earlier term. Pass it with every
    /// write, and let what is written to refuse a token that is smaller than one it has seen.
    ///
    /// In an election on several locks, that of the first required one; the others are among the
    /// [`tokens`](Self::tokens).
    pub fn token(&self) -> Token {
        self.term.token
    }

    /// The fencing tokens of this term on each of the election's locks, in their order, as they are
    /// now: `None` for one that is held on best effort only, and is not held now. Where there
    /// is one lock, its [`token`](Self::token).
    pub fn tokens(&self) -> Vec<Option<Token>> {
        self.term.tokens()
    }

    /// The name of the election.
    pub fn election(&self) -> &str {
        self.term.election()
    }

    /// What the terms of this election leave to each other; `None` unless
    /// [`ElectionBuilder::checkpoint`](crate::ElectionBuilder::checkpoint) asks for it.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        Checkpoint::of(&self.term)
    }

    /// When the right to lead ends, unless it is renewed before: on the election's
    /// [`Clock`](crate::time::clock::Clock).
    ///
    /// Once the term ends it moves no more.
    pub fn deadline(&self) -> Instant {
        self.term.deadline()
    }

    /// How long this term's right to lead lasts if it is not renewed; zero when it is over.
    ///
    /// Compare it with how long a step of your work takes before you begin the step.
    pub fn remaining(&self) -> Duration {
        match self.term.over() {
            Some(_) => Duration::ZERO,
            None => self.term.deadline().saturating_since(self.term.now()),
        }
    }

    /// Whether this term still leads: false from the moment at which it ends, and once its deadline
    /// has passed.
    pub fn is_valid(&self) -> bool {
        self.term.over().is_none()
    }

    /// Waits until the term ends, and returns why. The work has until [`Loss::stop_by`] to stop.
    ///
    /// It does not depend on the task of the candidate: where that does not report the end in time,
    /// because its runtime is blocked or was shut down, the clock does, about the election's
    /// grace before the deadline ([`Cause::Expired`](crate::Cause::Expired)).
    ///
    /// Cancel safe.
    pub async fn ended(&self) -> Loss {
        self.term.ended().await
    }

    /// Waits until the work is to come to its end, and returns by when: a drain has begun
    /// ([`ElectionBuilder::drain`](crate::ElectionBuilder::drain)), or the term is over.
    ///
    /// In a drain this term continues to lead, with its full right to lead, until each of its
    /// guards is dropped: finish what is begun, begin nothing new, and drop the guard.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let lock = incumbent::memory::MemoryLock::new();
    /// # async fn next_job() { std::future::pending().await }
    /// let election =
    ///     incumbent::new_election("my_app", lock).drain(Duration::from_secs(120)).start()?;
    /// let leadership = election.won().await?;
    /// # leadership.resign();
    /// loop {
    ///     tokio::select! {
    ///         _ = leadership.draining() => break,
    ///         job = next_job() => { /* do the job: the term continues meanwhile */ }
    ///     }
    /// }
    /// drop(leadership); // others may lead
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel safe.
    pub async fn draining(&self) -> DrainNotice {
        self.term.draining().await
    }

    /// Whether a drain has begun: see [`draining`](Self::draining).
    pub fn is_draining(&self) -> bool {
        self.term.drain_ends().is_some()
    }

    /// The span of the term, for work that [`run`](Self::run) does not do:
    /// `work.instrument(leadership.span())`. Its spans become children of the term's.
    ///
    /// It closes when the work has stopped and the last such clone is dropped. The current span, if
    /// no subscriber of `tracing` wants that of the term, or the term has ended.
    pub fn span(&self) -> Span {
        self.term.span()
    }

    /// Does `work` until it is done or the term ends: within the [`span`](Self::span) of the term,
    /// unless the caller has another one open.
    ///
    /// When the term ends first, `work` is dropped at its next await point: about the election's
    /// grace before the deadline. Work that needs time to stop watches [`ended`](Self::ended)
    /// itself instead. Work that blocks its thread cannot be stopped by anybody: give it the
    /// token, and move it to a thread of its own.
    ///
    /// The clock is compared with the deadline before each step of the work, and a timer of its own
    /// ends it where it waits: so it ends in time even if the task of the candidate is blocked
    /// or gone, or the machine was suspended. It runs on any runtime, and keeps its word as far
    /// as that one polls it.
    ///
    /// # Errors
    /// [`Loss`], if the term ended before the work was done.
    ///
    /// # Cancel safety
    /// Dropping the returned future drops `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        self.term.run(work).await
    }

    /// Waits until the right to lead lasts longer than until `deadline`, and returns the new
    /// deadline.
    ///
    /// For passing the [`deadline`](Self::deadline) on to where it cannot be read, such as another
    /// process.
    ///
    /// # Errors
    /// [`Loss`], if the term ends without a further renewal.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn renewed(&self, deadline: Instant) -> Result<Instant, Loss> {
        self.term.renewed(deadline).await
    }

    /// Hands over to a candidate that is ready, and returns its identity once one is found.
    ///
    /// Then the term ends with [`Cause::HandedOver`](crate::Cause::HandedOver), as by
    /// [`resign`](Self::resign), and the successor acquires the entry first.
    ///
    /// Nothing stops before a candidate has answered that it is ready. If it is gone by the time
    /// the work has [drained](crate::ElectionBuilder::drain), another one leads, at most two
    /// seconds later.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = incumbent::memory::MemoryLock::new();
    /// let first = incumbent::new_election("my_app", lock.clone()).identity("c1").start()?;
    /// let leadership = first.won().await?;
    /// let second = incumbent::new_election("my_app", lock).identity("c2").start()?;
    /// leadership.hand_over("c2").await?;
    /// second.won().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`HandOverError`]: the leader continues. The lock carries no roll calls, or no candidate
    /// that may lead next answered that it is ready.
    ///
    /// # Cancel safety
    /// Dropping the returned future does not take the handover back.
    pub async fn hand_over(&self, to: impl Into<Successor>) -> Result<Arc<str>, HandOverError> {
        let (reply, outcome) = oneshot::channel();
        self.term.send(Input::HandOver {
            term: Some(self.term.number),
            to: Box::new(to.into()),
            reply,
        });
        outcome.await.unwrap_or(Err(HandOverError::Stopped))
    }

    /// Steps down: the term ends with [`Cause::Resigned`](crate::Cause::Resigned) and others go
    /// first. Where the election [drains](crate::ElectionBuilder::drain), it ends when the work
    /// has.
    pub fn resign(&self) {
        self.term.send(Input::Resign { term: Some(self.term.number) });
    }
}

partial_debug!(Leadership, self, token: self.term.token, deadline: self.term.deadline());

impl Drop for Leadership {
    fn drop(&mut self) {
        self.term.give_back();
    }
}
