//! The end of a term: the work stops, then the loss is reported, once.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::{Instrument, error, info, warn};

use crate::driver::callbacks::Callback;
use crate::election::change::Change;
use crate::election::loss::Loss;
use crate::election::shared::Shared;
use crate::election::term::Term;
use crate::time::clock::{Clock, Instant, Sleep, sleep_until};

/// How long a callback that is dropped has at least to come to an await point.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

pub(crate) struct TermEnd {
    pub shared: Arc<Shared>,
    pub term: Arc<Term>,
    pub loss: Loss,
    /// The task of `on_won`.
    pub work: Option<JoinHandle<()>>,
    pub on_lost: Option<Callback<Loss>>,
    pub grace: Duration,
    /// Whether the loss has been published.
    pub loss_published: bool,
}

/// The loss is published however the task ends.
impl Drop for TermEnd {
    fn drop(&mut self) {
        self.publish_loss();
    }
}

impl TermEnd {
    /// Returns whether no work of the term is running any more.
    pub async fn run(mut self) -> bool {
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
        if let Some(work) = &mut self.work
            && !work.is_finished()
        {
            warn!(cause = %self.loss.cause, "the work did not stop within its grace: it is dropped");
            work.abort();
            if !self.until_stopping(Self::joined).await {
                error!("the work blocks its thread and goes on without the right to lead");
                return false;
            }
        }
        let deadline = self.term.deadline();
        if !self.until(deadline, Self::work_done).await {
            error!(
                "a Leadership is still held at its deadline: work may go on without the right to lead"
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
        if let Some(work) = &mut self.work {
            let _ = work.await; // the Leadership that it held reports how it ended
            self.work = None;
        }
    }

    async fn call_on_lost(&mut self) {
        let Some(callback) = self.on_lost.take() else { return };
        let loss = self.loss.clone();
        let call = async move { callback(loss).await };
        let mut call = tokio::spawn(call.in_current_span());
        let gives_up_at = self.term.deadline().max(self.shared.clock.now() + self.grace);
        let ended = tokio::select! {
            ended = &mut call => ended,
            () = self.sleep_until(gives_up_at) => {
                warn!("on_lost did not return in time: it is dropped");
                call.abort();
                let blocked = self.shared.clock.now() + self.grace.max(MIN_TIMEOUT);
                tokio::select! {
                    biased;
                    ended = &mut call => ended,
                    () = self.sleep_until(blocked) => {
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
