//! A term as the driver performs it: it begins, drains and ends. The work stops, then the loss is
//! reported, once.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::field::debug;
use tracing::{Instrument, error, info, warn};

use super::callbacks::{Callback, call};
use super::{Claim, ClaimOutcome, Driver};
use crate::election::change::Change;
use crate::election::claimed_checkpoint::{ClaimedCheckpoint, Store};
use crate::election::inbox::Input;
use crate::election::leadership::Leadership;
use crate::election::loss::{DrainNotice, Loss};
use crate::election::shared::Shared;
use crate::election::term::Term;
use crate::election::term_span::TermSpan;
use crate::lock::Token;
use crate::protocol::{Cause, Event, State, Timing};
use crate::time::clock::{Clock, Instant, Sleep, sleep_until};
use crate::util::text::error_chain;

/// How long a callback that is dropped has at least to come to an await point.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

impl Driver {
    pub(super) fn begin(&mut self, token: Token, deadline: Instant) {
        match self.checkpoint {
            true => self.claim(token, deadline),
            false => self.begin_term(token, deadline, None),
        }
    }

    /// `checkpoint`: as it was claimed, if the election keeps one.
    pub(super) fn begin_term(
        &mut self,
        token: Token,
        deadline: Instant,
        checkpoint: Option<Box<ClaimedCheckpoint>>,
    ) {
        let number = self.term.and_then(|term| term.checked_add(1)).unwrap_or(NonZeroU64::MIN);
        self.term = Some(number);
        let shared = Arc::clone(self.shared());
        let grace = self.machine.least_grace();
        let takeover = self.vacant_since.take().map(|since| self.now().saturating_since(since));
        let after = self.machine.previous_term();
        let span = TermSpan::open((&shared.name, &shared.identity), token, takeover, after);
        let term = Term::new(shared.term_owner(), token, number, deadline, grace, span, checkpoint);
        term.set_lock_failure(shared.status.borrow().lock_failure.clone());
        if let Some(tokens) = self.machine.tokens() {
            term.set_tokens(tokens); // before anybody holds it
        }
        self.telemetry().won(takeover, after);
        term.span().in_scope(|| info!(%token, "became leader"));
        if number == NonZeroU64::MIN
            && let Some((round_trip, timing)) = self.machine.slow_lock()
        {
            let (lease, longer) = (timing.lease(), Timing::shortest_lease(round_trip).map(debug));
            warn!(
                ?round_trip,
                ?lease,
                use_at_least = longer,
                "requests to the lock are too slow for the lease: use a longer one, or a closer server"
            );
        }
        if let Some(part) = &mut self.set_part {
            part.begin();
        }
        // Held before anybody else may hold and drop it.
        let won = self.callbacks.as_ref().and_then(|callbacks| callbacks.won.clone());
        let leadership = won.as_ref().and_then(|_| Leadership::of(&term));
        shared.update(|status| {
            term.extend(deadline); // unless a subscriber of the log was so slow that it is over
            status.state = State::Leader;
            status.term = Some(Arc::clone(&term));
        });
        if let Some(callback) = won
            && let Some(leadership) = leadership
        {
            let term_span = term.span();
            let work = async move {
                // A runtime may come to it late.
                if term.over().is_none() {
                    term.run_to_the_last(callback(leadership)).await;
                }
            };
            self.tasks().work = Some(tokio::spawn(work.instrument(term_span)));
        }
        shared.publish(Change::Won { token });
    }

    /// Claims the checkpoint until the work would have to stop if nothing were renewed.
    pub(super) fn claim(&mut self, token: Token, deadline: Instant) {
        let timing = self.machine.settings().timing;
        let shared = Arc::clone(self.shared());
        let store = Store {
            lock: Arc::clone(&shared.lock),
            name: Arc::clone(&shared.name),
            timeout: timing.request_timeout(),
        };
        let give_up = deadline - timing.grace();
        let claim = ClaimedCheckpoint::claim(store, token, Arc::clone(&shared.clock), give_up);
        let claim = Claim::new(token, deadline, claim.in_current_span());
        self.tasks().claim = Some(claim);
    }

    pub(super) fn is_claiming(&self) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| tasks.claim.is_some())
    }

    /// The state of the candidate: no leader without its checkpoint.
    pub(super) fn state(&self) -> State {
        match self.machine.state() {
            State::Leader if self.is_claiming() => State::Candidate,
            state => state,
        }
    }

    pub(super) fn extend_claim(&mut self, deadline: Instant) {
        if let Some(claim) = &mut self.tasks().claim {
            claim.deadline = deadline;
        }
    }

    pub(super) fn claimed(&mut self, outcome: ClaimOutcome) {
        match outcome {
            Ok(checkpoint) => {
                let now = self.now();
                let claim = self.tasks().claim.take_if(|claim| now < claim.deadline);
                // If the deadline has passed meanwhile, the machine ends the term and the claim.
                let Some(Claim { token, deadline, .. }) = claim else { return };
                self.set_unclaimed(None);
                self.begin_term(token, deadline, Some(checkpoint));
            }
            Err(error) => {
                let error = error_chain(&error);
                warn!(%error, "the checkpoint cannot be claimed: not leading without it");
                self.set_unclaimed(Some(error.into()));
                self.handle(Event::Resign); // ends the claim
            }
        }
    }

    /// The term has ended before it began for others: nothing was won, and nothing is lost.
    pub(super) fn end_claim(&mut self) {
        self.tasks().claim = None;
        self.drain_is_over();
        self.nothing_to_stop();
    }

    /// The term of the machine ends, and no work ran in it.
    fn nothing_to_stop(&mut self) {
        self.tasks().ending = Some(Box::pin(std::future::ready(true)));
    }

    /// Resigns or stops, after the work of the term has come to its end where that is set.
    pub(super) fn drain_before(&mut self, event: Event) {
        let term = self.shared().status.borrow().term.clone();
        let works = term.as_ref().is_some_and(|term| term.is_held());
        if let Some(event) = self.machine.drain.hold(self.now(), event, works) {
            return self.handle(event);
        }
        let (Some(until), Some(term)) = (self.machine.drain.until(), term) else { return };
        if let Some(notice) = term.announce_drain(until) {
            self.handle(Event::Drains);
            self.report_drain(&term, notice);
        }
    }

    fn report_drain(&mut self, term: &Term, notice: DrainNotice) {
        let (token, until) = (notice.token, notice.until);
        let within = until.saturating_since(self.now());
        term.span().in_scope(|| info!(%token, ?within, "draining"));
        self.telemetry().draining();
        self.shared().update(|_| {}); // shows that the term drains
        self.shared().publish(Change::Draining { token, until });
        let callback = self.callbacks.as_ref().and_then(|callbacks| callbacks.drain.clone());
        let Some(callback) = callback else { return };
        let call = async move { call(&callback, notice, "on_drain").await };
        self.tasks().draining = Some(tokio::spawn(call.instrument(term.span())));
    }

    /// The work of the term has ended, and with it a drain.
    pub(super) fn work_ended(&mut self, panicked: bool) {
        let drained = if panicked { Vec::new() } else { self.machine.drain.end() };
        if drained.is_empty() {
            return self.handle(Event::WorkEnded { panicked });
        }
        self.handle_all(drained);
    }

    /// Nobody waits for the drain any longer.
    pub(super) fn end_drain(&mut self) {
        let held = self.machine.drain.end();
        self.handle_all(held);
    }

    pub(super) fn handle_all(&mut self, events: Vec<Event>) {
        for event in events {
            self.handle(event);
        }
    }

    /// Ends all waits for the drain: the term has ended, for whatever cause.
    pub(super) fn drain_is_over(&mut self) {
        if let Some(call) = self.tasks().draining.take() {
            call.abort();
        }
        self.end_drain();
    }

    pub(super) fn end(&mut self, cause: Cause, by: Instant) {
        if self.is_claiming() {
            return self.end_claim();
        }
        let shared = Arc::clone(self.shared());
        let mut ended = None;
        shared.update(|status| {
            shared.leads_until.set(None);
            status.state = State::Candidate;
            // Within the update: who sees by anything that the term is over gets no share of it.
            ended = status.term.take().map(|term| {
                let loss = term.close(cause, by);
                (term, loss)
            });
        });
        if let Some((term, _)) = &ended {
            term.wake_holders();
        }
        self.drain_is_over();
        if let Some(part) = &mut self.set_part {
            part.end();
        }
        let Some((term, loss)) = ended else {
            error!("a term ended that had not begun: please report this");
            shared.inbox.send(Input::Stop);
            return self.nothing_to_stop();
        };
        self.telemetry().lost(&loss.cause);
        let end = TermEnd {
            shared,
            term,
            loss,
            task: self.tasks().work.take(),
            on_lost: self.callbacks.as_ref().and_then(|callbacks| callbacks.lost.clone()),
            grace: self.machine.settings().timing.grace(),
            loss_published: false,
        };
        self.tasks().ending = Some(Box::pin(end.run()));
    }
}

struct TermEnd {
    shared: Arc<Shared>,
    term: Arc<Term>,
    loss: Loss,
    /// The task of `on_won`, then of `on_lost`.
    task: Option<JoinHandle<()>>,
    on_lost: Option<Callback<Loss>>,
    grace: Duration,
    /// Whether the loss has been published.
    loss_published: bool,
}

/// The loss is published, and the user's callbacks end, however the task ends.
impl Drop for TermEnd {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.publish_loss();
    }
}

impl TermEnd {
    /// Returns whether no work of the term is running any more.
    async fn run(mut self) -> bool {
        let stopped = self.stop_work().await;
        self.term.span().in_scope(
            || info!(token = %self.loss.token, cause = %self.loss.cause, "lost leadership"),
        );
        self.publish_loss();
        self.call_on_lost().await;
        stopped
    }

    fn publish_loss(&mut self) {
        if !std::mem::replace(&mut self.loss_published, true) {
            self.term.close_span(&self.loss.cause);
            let (token, cause) = (self.loss.token, self.loss.cause.clone());
            self.shared.publish(Change::Lost { token, cause });
        }
    }

    async fn stop_work(&mut self) -> bool {
        let stop_by = self.loss.stop_by;
        self.until(stop_by, Self::work_done).await;
        if let Some(work) = &self.task
            && !work.is_finished()
        {
            warn!(cause = %self.loss.cause, "the work did not stop within its grace: it is dropped");
            work.abort();
            if !self.until_stopping(Self::joined).await {
                error!("the work blocks its thread and continues without the right to lead");
                return false;
            }
        }
        let deadline = self.term.deadline();
        if !self.until(deadline, Self::work_done).await {
            error!(
                "a Leadership is still held at its deadline: work may continue without the right to lead"
            );
            return false;
        }
        true
    }

    async fn work_done(&mut self) {
        self.joined().await;
        self.term.idle().await;
    }

    async fn joined(&mut self) {
        if let Some(work) = &mut self.task {
            let _ = work.await; // the Leadership that it held reports how it ended
            self.task = None;
        }
    }

    async fn call_on_lost(&mut self) {
        let Some(callback) = self.on_lost.take() else { return };
        let loss = self.loss.clone();
        let call = async move { callback(loss).await };
        let call = self.task.insert(tokio::spawn(call.in_current_span()));
        let clock = &self.shared.clock;
        let gives_up_at = self.term.deadline().max(clock.now() + self.grace);
        let ended = tokio::select! {
            ended = &mut *call => ended,
            () = sleep_until(Arc::clone(clock), gives_up_at) => {
                warn!("on_lost did not return in time: it is dropped");
                call.abort();
                let blocked = clock.now() + self.grace.max(MIN_TIMEOUT);
                tokio::select! {
                    biased;
                    ended = &mut *call => ended,
                    () = sleep_until(Arc::clone(clock), blocked) => {
                        return error!("on_lost blocks its thread: it is not waited for");
                    }
                }
            }
        };
        if ended.is_err_and(|error| error.is_panic()) {
            error!("on_lost panicked");
        }
    }

    /// Does `step` until it is done (true) or `at` has come (false).
    async fn until(&mut self, at: Instant, step: impl AsyncFnOnce(&mut Self)) -> bool {
        let sleep = self.sleep_until(at);
        tokio::select! {
            biased;
            () = step(self) => true,
            () = sleep => false,
        }
    }

    /// Does `step` until it is done (true) or, once the candidate must stop, a further grace has
    /// passed (false).
    async fn until_stopping(&mut self, step: impl AsyncFnOnce(&mut Self)) -> bool {
        let mut status = self.shared.status.subscribe();
        let (clock, grace) = (Arc::clone(&self.shared.clock), self.grace);
        let stopping = async move {
            drop(status.wait_for(|status| status.stopping).await);
            let end = clock.now() + grace;
            sleep_until(clock, end).await;
        };
        tokio::select! {
            biased;
            () = step(self) => true,
            () = stopping => false,
        }
    }

    fn sleep_until(&self, at: Instant) -> Sleep<Arc<dyn Clock>> {
        sleep_until(Arc::clone(&self.shared.clock), at)
    }
}
