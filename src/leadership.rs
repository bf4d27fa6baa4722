//! What one holds while leading.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use thiserror::Error;
use tokio::sync::Notify;

use crate::clock::{Clock, Instant};

use crate::lock::Token;
use crate::protocol::Cause;
use crate::shared::{Inbox, Input};

/// The office: who holds one may do the leader's work.
///
/// It is also the sign that work is being done. A term whose every `Leadership` has been dropped ends
/// ([`Cause::WorkEnded`], or [`Cause::WorkPanicked`] when that happened by a panic), the entry is released, and
/// somebody else may lead: so keep it for as long as you work, and drop it when you are done. A term of which no
/// `Leadership` was ever taken goes on.
#[must_use = "dropping the last Leadership of a term ends the term"]
pub struct Leadership {
    term: Arc<Term>,
}

impl Leadership {
    /// The fencing token of this term: greater than that of every earlier term. Pass it with every write, and let what
    /// is written to refuse a token that is smaller than one it has seen.
    ///
    /// In an election on several locks, that of the first required one; the others are among the [`tokens`](Self::tokens).
    pub fn token(&self) -> Token {
        self.term.token
    }

    /// The fencing tokens of this term on each of the election's locks, in their order, as they are now: `None` for one that
    /// is held on best effort only, and is not held now. Where there is one lock, its [`token`](Self::token).
    pub fn tokens(&self) -> Vec<Option<Token>> {
        self.term.tokens()
    }

    /// When the right to lead ends, unless it is renewed before: on the election's [`Clock`](crate::clock::Clock).
    ///
    /// Once the term has been told to end it moves no more.
    pub fn deadline(&self) -> Instant {
        self.term.deadline()
    }

    /// How long this term's right to lead lasts if it is not renewed; zero when it is over.
    ///
    /// Compare it with how long a step of your work takes before you begin the step.
    pub fn remaining(&self) -> Duration {
        self.term.deadline().saturating_since(self.term.clock.now())
    }

    /// Whether this term still leads: false from the moment it is told to end, and when its deadline has passed.
    pub fn is_valid(&self) -> bool {
        self.term.state().end.is_none() && !self.remaining().is_zero()
    }

    /// Waits until the term is told to end, and answers why. The work has until [`Loss::stop_by`] to stop.
    ///
    /// Cancel safe.
    pub async fn ended(&self) -> Loss {
        self.term.wait(&self.term.ended, |state| state.end.clone()).await
    }

    /// Does `work` until it is done or the term ends.
    ///
    /// When the term ends first, `work` is dropped at its next await point: at least the election's grace before the
    /// deadline. Work that needs time to stop watches [`ended`](Self::ended) itself instead. Work that blocks its
    /// thread cannot be stopped by anybody: give it the token, and move it to a thread of its own.
    ///
    /// # Errors
    /// [`Loss`], if the term ended before the work was done.
    ///
    /// # Cancel safety
    /// Dropping the returned future drops `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        let ended = pin!(self.ended());
        let work = pin!(work);
        match select(ended, work).await {
            Either::Left((loss, _)) => Err(loss),
            Either::Right((done, _)) => Ok(done),
        }
    }

    /// Waits until the right to lead lasts longer than until `deadline`, and answers until when.
    ///
    /// For passing the [`deadline`](Self::deadline) on to where it cannot be asked for, such as another process. It
    /// never returns when the term ends without a further renewal, so wait for [`ended`](Self::ended) beside it.
    ///
    /// Cancel safe.
    pub async fn renewed(&self, deadline: Instant) -> Instant {
        let later = |_: &TermState| Some(self.term.deadline()).filter(|now| *now > deadline);
        self.term.wait(&self.term.renewed, later).await
    }

    /// Gives up the office: the term ends with [`Cause::Resigned`] and others go first.
    pub fn resign(&self) {
        self.term.inbox.send(Input::Resign { term: Some(self.term.number) });
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("token", &self.term.token)
            .field("deadline", &self.term.deadline())
            .finish_non_exhaustive()
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        let mut state = self.term.state();
        state.held = state.held.saturating_sub(1);
        state.panicked |= std::thread::panicking();
        if state.held > 0 {
            return;
        }
        state.closed = true;
        let panicked = state.panicked;
        drop(state);
        self.term.idle.notify_waiters();
        self.term.inbox.send(Input::WorkEnded { term: self.term.number, panicked });
    }
}

/// That a term has ended, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no longer the leader of {election} (term {token}): {cause}")]
#[non_exhaustive]
pub struct Loss {
    /// The election.
    pub election: Arc<str>,
    /// The token of the term that ended.
    pub token: Token,
    /// Its tokens on each of the election's locks, in their order: see [`Leadership::tokens`].
    pub tokens: Vec<Option<Token>>,
    /// Why it ended.
    pub cause: Cause,
    /// When work of the term is stopped by force: never after the deadline.
    pub stop_by: Instant,
}

/// One term, as the driver and the holders of its [`Leadership`] share it.
pub(crate) struct Term {
    pub election: Arc<str>,
    pub token: Token,
    pub number: NonZeroU32,
    clock: Arc<dyn Clock>,
    deadline_ns: AtomicU64,
    state: Mutex<TermState>,
    /// Wakes those who wait for the end.
    ended: Notify,
    /// Wakes those who wait for a renewal.
    renewed: Notify,
    /// Wakes the driver when no guard is held.
    idle: Notify,
    inbox: Inbox,
}

#[derive(Default)]
struct TermState {
    /// How many guards there are.
    held: usize,
    panicked: bool,
    /// Where there are several locks, the token of each.
    tokens: Option<Vec<Option<Token>>>,
    /// No more guards are handed out.
    closed: bool,
    end: Option<Loss>,
}

impl Term {
    pub fn new(
        election: Arc<str>,
        token: Token,
        number: NonZeroU32,
        deadline: Instant,
        clock: Arc<dyn Clock>,
        inbox: Inbox,
    ) -> Arc<Self> {
        let term = Self {
            election,
            token,
            number,
            clock,
            deadline_ns: AtomicU64::new(0),
            state: Mutex::default(),
            ended: Notify::new(),
            renewed: Notify::new(),
            idle: Notify::new(),
            inbox,
        };
        term.extend(deadline);
        Arc::new(term)
    }

    pub fn extend(&self, deadline: Instant) {
        self.deadline_ns.store(as_ns(deadline), Ordering::Release);
        self.renewed.notify_waiters();
    }

    pub fn deadline(&self) -> Instant {
        from_ns(self.deadline_ns.load(Ordering::Acquire))
    }

    /// Of a term that has not been told to end.
    pub fn set_tokens(&self, tokens: Vec<Option<Token>>) {
        let mut state = self.state();
        if state.end.is_none() {
            state.tokens = Some(tokens);
        }
    }

    pub fn tokens(&self) -> Vec<Option<Token>> {
        self.state().tokens.clone().unwrap_or_else(|| vec![Some(self.token)])
    }

    /// A share of the office, unless the term has ended.
    pub fn guard(self: &Arc<Self>) -> Option<Leadership> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.held += 1;
        drop(state);
        Some(Leadership { term: Arc::clone(self) })
    }

    /// Tells every holder that the term is over.
    pub fn tell_end(&self, cause: Cause, stop_by: Instant) -> Loss {
        let (election, token) = (Arc::clone(&self.election), self.token);
        let loss = Loss { election, token, tokens: self.tokens(), cause, stop_by };
        let mut state = self.state();
        state.closed = true;
        state.end = Some(loss.clone());
        drop(state);
        self.ended.notify_waiters();
        loss
    }

    /// Waits until no guard is held. Cancel safe.
    pub async fn idle(&self) {
        self.wait(&self.idle, |state| (state.held == 0).then_some(())).await;
    }

    /// Waits until `look` finds something; `notify` tells when to look again. Cancel safe.
    async fn wait<T>(&self, notify: &Notify, look: impl Fn(&TermState) -> Option<T>) -> T {
        loop {
            let mut notified = pin!(notify.notified());
            notified.as_mut().enable(); // before looking, so that nothing is missed in between
            if let Some(found) = look(&self.state()) {
                return found;
            }
            notified.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, TermState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn as_ns(instant: Instant) -> u64 {
    u64::try_from(instant.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn from_ns(ns: u64) -> Instant {
    Instant::from_origin(Duration::from_nanos(ns))
}
