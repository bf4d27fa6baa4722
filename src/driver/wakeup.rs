//! What a driver waits for.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Driver;
use crate::driver::requests::{Settled, poll_response};
use crate::election::inbox::Input;
use crate::lock::{CandidateInfo, LockError};
use crate::protocol::Event;

/// Something that wakes a driver.
pub(super) enum Wakeup {
    Input(Input),
    /// From this lock.
    Response(usize, Settled),
    TermEnded {
        work_stopped: bool,
    },
    /// The call of `on_campaign` ended.
    Campaigned {
        panicked: bool,
    },
    /// To the call of the candidates that is under way.
    Answers(Result<Vec<CandidateInfo>, LockError>),
    /// The time for which it slept.
    Timer,
}

impl Driver {
    pub(super) fn on_wakeup(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Input(input) => self.take(input),
            Wakeup::Response(lock, settled) => self.on_response(lock, settled),
            Wakeup::TermEnded { work_stopped } => self.handle(Event::TermEnded { work_stopped }),
            Wakeup::Campaigned { panicked } => {
                if panicked {
                    self.handle(Event::WorkEnded { panicked });
                }
            }
            Wakeup::Answers(answers) => self.on_move_answers(answers),
            Wakeup::Timer => self.wake(),
        }
    }

    /// Whatever comes first.
    pub(super) fn poll_wakeup(&mut self, cx: &mut Context<'_>) -> Poll<Wakeup> {
        if let Poll::Ready((lock, settled)) = poll_response(&mut self.requests_of, cx) {
            return Poll::Ready(Wakeup::Response(lock, settled));
        }
        if let Some(tasks) = &mut self.tasks
            && let Some(ending) = &mut tasks.ending
            && let Poll::Ready(work_stopped) = ending.as_mut().poll(cx)
        {
            tasks.ending = None;
            return Poll::Ready(Wakeup::TermEnded { work_stopped });
        }
        if let Some(task) = &mut self.campaigning
            && let Poll::Ready(end) = Pin::new(task).poll(cx)
        {
            self.campaigning = None;
            let panicked = end.is_err_and(|error| error.is_panic());
            return Poll::Ready(Wakeup::Campaigned { panicked });
        }
        if let Some(call) = self.moves.as_mut().and_then(|moves| moves.call.as_mut())
            && let Poll::Ready(answers) = call.answers.as_mut().poll(cx)
        {
            return Poll::Ready(Wakeup::Answers(answers));
        }
        // Either may be ready again and again: neither is always asked first.
        self.timer_first = !self.timer_first;
        if self.timer_first && self.is_due(cx) {
            return Poll::Ready(Wakeup::Timer);
        }
        if let Poll::Ready(input) = self.shared().inbox.poll(cx) {
            return Poll::Ready(Wakeup::Input(input));
        }
        if !self.timer_first && self.is_due(cx) {
            return Poll::Ready(Wakeup::Timer);
        }
        Poll::Pending
    }

    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        self.sleeps && Pin::new(&mut self.sleep).poll(cx).is_ready()
    }
}
