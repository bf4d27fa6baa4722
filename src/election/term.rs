//! One term, as the driver and the holders of its guards share it.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{Instrument, Span};

use super::claimed_checkpoint::ClaimedCheckpoint;
use super::inbox::{Inbox, Input};
use super::loss::{DrainNotice, Loss};
use super::term_span::TermSpan;
use crate::lock::{LockErrorKind, Token};
use crate::protocol::{Cause, LockFailure};
use crate::time::clock::{Clock, Instant, sleep_until};
use crate::util::locked;

/// How much later than the driver a guard finds by itself that its term is over, at most. A
/// running driver reports the cause first.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// Until when this candidate leads; 0 while it does not, or must stop. Written by the driver, and
/// at the end of a term by what finds it over first.
#[derive(Clone, Default)]
pub(crate) struct LeadsUntil(Arc<AtomicU64>);

impl LeadsUntil {
    pub fn set(&self, deadline: Option<Instant>) {
        self.0.store(deadline.map_or(0, Instant::as_nanos), Ordering::Release);
    }

    pub fn is_after(&self, now: Instant) -> bool {
        let until = self.0.load(Ordering::Acquire);
        until != 0 && now < Instant::from_nanos(until)
    }
}

/// What a term takes from the candidate whose term it is.
pub(crate) struct TermOwner {
    pub election: Arc<str>,
    pub clock: Arc<dyn Clock>,
    pub inbox: Inbox,
    pub leads_until: LeadsUntil,
}

pub(crate) struct Term {
    owner: TermOwner,
    pub token: Token,
    pub number: NonZeroU64,
    pub began: Instant,
    /// If the election keeps one.
    pub checkpoint: Option<Box<ClaimedCheckpoint>>,
    deadline_ns: AtomicU64,
    /// How long before the deadline guards end by themselves.
    margin: Duration,
    state: Mutex<TermState>,
    /// Wakes tasks that wait for the end or a renewal.
    changed: Notify,
    /// Wakes the driver when no guard is held.
    idle: Notify,
}

#[derive(Default)]
struct TermState {
    /// How many guards there are.
    held: u32,
    /// How many steps are being done.
    steps: u32,
    panicked: bool,
    /// No more guards are handed out.
    closed: bool,
    /// When a drain of the term ends. It has no guards for others than those that are draining.
    drain_ends: Option<Instant>,
    /// Where there are several locks, the token of each.
    tokens: Option<Vec<Option<Token>>>,
    /// What keeps the lease from being renewed, if anything does.
    lock_failure: Option<LockFailure>,
    end: Option<Box<Loss>>,
    span: TermSpan,
}

impl TermState {
    fn is_idle(&self) -> bool {
        self.held == 0 && self.steps == 0
    }
}

impl Term {
    pub fn new(
        owner: TermOwner,
        token: Token,
        number: NonZeroU64,
        deadline: Instant,
        grace: Duration,
        span: TermSpan,
        checkpoint: Option<Box<ClaimedCheckpoint>>,
    ) -> Arc<Self> {
        let term = Self {
            began: owner.clock.now(),
            owner,
            token,
            number,
            checkpoint,
            deadline_ns: AtomicU64::new(deadline.as_nanos()),
            margin: grace - MAX_DELAY.min(grace / 2),
            state: Mutex::new(TermState { span, ..TermState::default() }),
            changed: Notify::new(),
            idle: Notify::new(),
        };
        Arc::new(term)
    }

    /// The span for work of this term; the current one if there is none, or it is closed.
    pub fn span(&self) -> Span {
        // The subscriber runs after the lock is released: it may ask a holder about the term.
        let span = locked(&self.state).span.clone();
        span.span()
    }

    /// The work has stopped.
    pub fn close_span(&self, cause: &Cause) {
        let span = std::mem::take(&mut locked(&self.state).span);
        span.close(cause);
    }

    pub fn election(&self) -> &str {
        &self.owner.election
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.owner.clock
    }

    pub fn now(&self) -> Instant {
        self.owner.clock.now()
    }

    pub fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline_ns.load(Ordering::Acquire))
    }

    /// Moves the deadline, unless the term has ended.
    pub fn extend(&self, deadline: Instant) {
        let state = locked(&self.state);
        if state.end.is_some() {
            return;
        }
        self.deadline_ns.store(deadline.as_nanos(), Ordering::Release);
        self.owner.leads_until.set(Some(deadline));
        drop(state);
        self.changed.notify_waiters();
    }

    pub fn send(&self, input: Input) {
        self.owner.inbox.send(input);
    }

    /// Why requests to the lock fail, or that they succeed again.
    pub fn set_lock_failure(&self, failure: Option<LockFailure>) {
        locked(&self.state).lock_failure = failure;
    }

    /// Ignored once the term ends.
    pub fn set_tokens(&self, tokens: Vec<Option<Token>>) {
        let mut state = locked(&self.state);
        if state.end.is_none() {
            state.tokens = Some(tokens);
        }
    }

    pub fn tokens(&self) -> Vec<Option<Token>> {
        self.tokens_of(&locked(&self.state))
    }

    fn tokens_of(&self, state: &TermState) -> Vec<Option<Token>> {
        state.tokens.clone().unwrap_or_else(|| vec![Some(self.token)])
    }

    /// Counts one guard more, unless the term is over: then it returns false.
    pub fn hold(&self) -> bool {
        self.over();
        let mut state = locked(&self.state);
        let open = !state.closed && state.drain_ends.is_none();
        let held = state.held.checked_add(1).filter(|_| open);
        state.held = held.unwrap_or(state.held);
        held.is_some()
    }

    /// Gives a share back. The last one ends the term.
    pub fn give_back(&self) {
        let mut state = locked(&self.state);
        state.held = state.held.saturating_sub(1);
        state.panicked |= std::thread::panicking();
        if state.held > 0 {
            return;
        }
        state.closed = true;
        let panicked = state.panicked;
        drop(state);
        self.idle.notify_waiters();
        self.send(Input::WorkEnded { term: self.number, panicked });
    }

    /// Whether a guard is held: work is being done.
    pub fn is_held(&self) -> bool {
        locked(&self.state).held > 0
    }

    /// Announces a drain to the holders of the term, once. Returns the notice, unless there was one
    /// before.
    pub fn announce_drain(&self, until: Instant) -> Option<DrainNotice> {
        let mut state = locked(&self.state);
        if state.drain_ends.is_some() || state.end.is_some() {
            return None;
        }
        state.drain_ends = Some(until);
        drop(state);
        self.changed.notify_waiters();
        Some(self.drain_notice(until))
    }

    /// Waits until the work is to come to its end: by a drain, or with the term. Cancel safe.
    pub async fn draining(&self) -> DrainNotice {
        let draining = || match self.over() {
            Some(loss) => Some(self.drain_notice(loss.stop_by)),
            None => self.drain_ends().map(|until| self.drain_notice(until)),
        };
        self.wait(draining, || self.deadline() - self.margin).await
    }

    /// When a drain ends; `None` unless there is one.
    pub fn drain_ends(&self) -> Option<Instant> {
        locked(&self.state).drain_ends
    }

    fn drain_notice(&self, until: Instant) -> DrainNotice {
        DrainNotice { election: Arc::clone(&self.owner.election), token: self.token, until }
    }

    /// Counts one step more, unless the term is over: then it returns false.
    pub fn begin_step(&self) -> bool {
        self.over();
        let mut state = locked(&self.state);
        let steps = state.steps.checked_add(1).filter(|_| !state.closed);
        state.steps = steps.unwrap_or(state.steps);
        steps.is_some()
    }

    pub fn step_done(&self) {
        let mut state = locked(&self.state);
        state.steps = state.steps.saturating_sub(1);
        if state.steps == 0 {
            drop(state);
            self.idle.notify_waiters();
        }
    }

    /// Announces the end of the term to its holders, once. Returns the loss that was announced.
    pub fn announce_end(&self, cause: Cause, stop_by: Instant) -> Loss {
        let loss = self.close(cause, stop_by);
        self.wake_holders();
        loss
    }

    /// Ends the term, unless it is over, and wakes nobody yet. Returns the loss that its holders
    /// are to be told.
    pub fn close(&self, cause: Cause, stop_by: Instant) -> Loss {
        let mut state = locked(&self.state);
        match &state.end {
            Some(announced) => (**announced).clone(),
            None => self.end(&mut state, cause, stop_by),
        }
    }

    pub fn wake_holders(&self) {
        self.changed.notify_waiters();
    }

    fn end(&self, state: &mut TermState, cause: Cause, stop_by: Instant) -> Loss {
        let (election, token) = (Arc::clone(&self.owner.election), self.token);
        let loss = Loss { election, token, tokens: self.tokens_of(state), cause, stop_by };
        state.closed = true;
        state.end = Some(Box::new(loss.clone()));
        // With the lock held, so that no later term has begun.
        self.owner.leads_until.set(None);
        loss
    }

    /// The loss, if the term is over: as the driver announced, or, if it did not get to it, by the
    /// clock.
    pub fn over(&self) -> Option<Loss> {
        let now = self.now();
        let mut state = locked(&self.state);
        if let Some(announced) = &state.end {
            return Some((**announced).clone());
        }
        let deadline = self.deadline();
        if now < deadline - self.margin {
            return None;
        }
        let cause = expired(state.lock_failure.clone());
        let loss = self.end(&mut state, cause, deadline);
        drop(state);
        self.changed.notify_waiters();
        // A driver that gets to it later must not renew without a holder.
        let input = Input::WorkEnded { term: self.number, panicked: false };
        self.send(input);
        Some(loss)
    }

    /// Waits until the term is over. Cancel safe.
    pub async fn ended(&self) -> Loss {
        let ended = || self.over();
        self.wait(ended, || self.deadline() - self.margin).await
    }

    /// Waits until the deadline is later than this one, or the term is over. Cancel safe.
    pub async fn renewed(&self, deadline: Instant) -> Result<Instant, Loss> {
        let renewed = || match (self.over(), self.deadline()) {
            (Some(loss), _) => Some(Err(loss)),
            (None, now) => (now > deadline).then_some(Ok(now)),
        };
        self.wait(renewed, || self.deadline() - self.margin).await
    }

    /// Does `work` until it is done or the term is over. The clock is looked at before each of its
    /// steps.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        let mut ended = pin!(self.ended());
        // A span that the caller has open is the context of its work already.
        let own = Span::current();
        let span = if own.is_none() { self.span() } else { own };
        let mut work = pin!(work.instrument(span));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(loss) = ended.as_mut().poll(cx) {
                return Poll::Ready(Err(loss));
            }
            match self.over() {
                Some(loss) => Poll::Ready(Err(loss)),
                None => work.as_mut().poll(cx).map(Ok),
            }
        })
        .await
    }

    /// Does `work`, which sees to its end itself, until the deadline at the latest.
    pub async fn run_to_the_last<F: Future>(&self, work: F) -> Option<F::Output> {
        let passed = || (self.now() >= self.deadline()).then_some(());
        let mut deadline = pin!(self.wait(passed, || self.deadline()));
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            if deadline.as_mut().poll(cx).is_ready() || passed().is_some() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Waits until no guard is held and no step is being done. Cancel safe.
    pub async fn idle(&self) {
        loop {
            let mut notified = pin!(self.idle.notified());
            notified.as_mut().enable(); // before looking, so that nothing is missed in between
            if locked(&self.state).is_idle() {
                return;
            }
            notified.await;
        }
    }

    /// Waits until `look` returns a value, calling it at each change and at the instant that `at`
    /// returns. Cancel safe.
    async fn wait<T>(&self, look: impl Fn() -> Option<T>, at: impl Fn() -> Instant) -> T {
        let mut sleep = sleep_until(Arc::clone(&self.owner.clock), at());
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable(); // before looking, so that nothing is missed in between
            if let Some(found) = look() {
                return found;
            }
            sleep.reset(at());
            tokio::select! {
                () = changed => {}
                () = &mut sleep => {}
            }
        }
    }
}

fn expired(failure: Option<LockFailure>) -> Cause {
    match failure {
        Some(LockFailure { kind: LockErrorKind::Denied, message }) => {
            Cause::Denied { error: message }
        }
        failure => Cause::Expired { last_error: failure.map(|failure| failure.message) },
    }
}
