//! The end of a term: the work stops, the loss is told, in this order and once.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::{Instrument, error, info, warn};

use crate::clock::Instant;
use crate::driver::Callback;
use crate::election::Change;
use crate::leadership::{Loss, Term};
use crate::shared::Shared;

pub(crate) struct TermEnd {
    pub shared: Arc<Shared>,
    pub term: Arc<Term>,
    pub loss: Loss,
    /// The task of `on_won`.
    pub work: Option<JoinHandle<()>>,
    pub on_lost: Option<Callback<Loss>>,
    pub grace: Duration,
}

impl TermEnd {
    /// Answers whether no work of the term is running any more.
    pub async fn run(mut self) -> bool {
        let stopped = self.stop_work().await;
        let (token, cause) = (self.loss.token, self.loss.cause.clone());
        info!(%token, %cause, "lost: this campaigner leads no more");
        self.shared.tell(Change::Lost { token, cause });
        self.tell_loss().await;
        stopped
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
            let _ = work.await; // how it ended is told by the Leadership it held
            self.work = None;
        }
    }

    async fn tell_loss(&mut self) {
        let Some(callback) = self.on_lost.take() else { return };
        let loss = self.loss.clone();
        let call = async move { callback(loss).await };
        let mut call = tokio::spawn(call.in_current_span());
        let patience = self.term.deadline().max(self.shared.clock.now() + self.grace);
        let told = tokio::select! {
            told = &mut call => told,
            () = sleep_until(&self.shared, patience) => {
                warn!("on_lost did not return in time: it is dropped");
                call.abort();
                call.await
            }
        };
        if told.is_err_and(|error| error.is_panic()) {
            error!("on_lost panicked");
        }
    }

    /// Does `step` until it is done (true) or `at` has come (false).
    async fn until(&mut self, at: Instant, step: impl AsyncFnOnce(&mut Self)) -> bool {
        let shared = Arc::clone(&self.shared);
        tokio::select! {
            biased;
            () = step(self) => true,
            () = sleep_until(&shared, at) => false,
        }
    }

    /// Does `step` until it is done (true) or, once the campaign is to stop, a further grace has passed (false).
    async fn until_stopping(&mut self, step: impl AsyncFnOnce(&mut Self)) -> bool {
        let mut status = self.shared.status.subscribe();
        let grace = self.grace;
        let stopping = async move {
            let _ = status.wait_for(|status| status.stopping).await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            biased;
            () = step(self) => true,
            () = stopping => false,
        }
    }
}

/// Sleeps in pieces, as tokio's timers stand still while the machine is suspended.
async fn sleep_until(shared: &Shared, at: Instant) {
    loop {
        let left = at.saturating_since(shared.clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_millis(500))).await;
    }
}
