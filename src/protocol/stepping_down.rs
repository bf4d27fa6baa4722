//! Stepping down: the work stops first, then the loss is reported, then the entry is released or
//! the others notified.

use std::time::Duration;

use super::backoff::{Backoff, BackoffPolicy};
use super::context::{Context, EndedTerm, Source, Transition};
use super::observations::KnownStepDown;
use super::types::{Action, Cause, Response};
use crate::lock::{
    Coverage, LockErrorKind, Nonce, Reading, Release, Revision, StepDownNotice, Token,
};
use crate::time::clock::Instant;
use crate::time::timing::with_drift;
use crate::util::retry::ProtocolRetries;

#[derive(Debug, Clone)]
pub(super) struct SteppingDown {
    pub cause: Cause,
    pub step: Step,
    /// The entry as last known: `None` before a read has shown whether there is one of ours at
    /// all.
    pub revision: Option<Revision>,
    pub token: Option<Token>,
    pub began: bool,
    pub notify: bool,
    pub release: bool,
    /// The candidate that the entry is handed over to.
    pub to: Option<Nonce>,
    /// Whether no work of the term is running any more.
    pub work_stopped: bool,
    /// When the right to lead of this term ends, whatever its work does.
    pub deadline: Instant,
    /// Not before this.
    pub at: Instant,
    /// When to stop trying: the entry then expires by itself.
    pub tries_end: Instant,
    pub retries: Option<ProtocolRetries>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Waiting for the work to stop.
    StopWork,
    Notify,
    Release,
    /// Reading whether the entry is ours.
    Verify,
    Done,
}

impl SteppingDown {
    /// Ends the time in which this candidate held the entry.
    pub fn after_term(cx: &mut Context, now: Instant, term: EndedTerm) -> Self {
        let EndedTerm { cause, verified, token, revision, deadline, lead_at, began, to } = term;
        let superseded = matches!(cause, Cause::Superseded { .. } | Cause::Evicted);
        let stepping_down = Self {
            cause: cause.clone(),
            step: if began { Step::StopWork } else { Step::Notify },
            revision: Some(revision),
            token: Some(token),
            began,
            notify: superseded,
            // A hint may be wrong: then the entry is still there, and must not keep others out.
            release: !(superseded && verified),
            to,
            work_stopped: true,
            deadline,
            at: now,
            tries_end: tries_end(cx, now, &cause),
            retries: None,
        };
        if began {
            let by = (now + cx.settings.timing.grace()).min(deadline).max(now);
            cx.act(Action::End { cause, by });
        } else {
            cx.observed.own_cool_down_ends = lead_at;
        }
        cx.requests.drop_in_flight();
        stepping_down
    }

    /// Stops a standby, which may have created an entry without knowing.
    pub fn after_standby(cx: &mut Context, now: Instant) -> Self {
        cx.requests.drop_in_flight();
        let verify = cx.capabilities.can_read && cx.observed.entry_may_stand(now);
        Self {
            cause: Cause::Stopped,
            step: if verify { Step::Verify } else { Step::Done },
            revision: None,
            token: None,
            began: false,
            notify: false,
            release: true,
            to: None,
            work_stopped: true,
            deadline: now,
            at: now,
            tries_end: tries_end(cx, now, &Cause::Stopped),
            retries: None,
        }
    }

    /// When there is something to do while no request is in flight; `None` while the work stops.
    pub fn next_wake(&self) -> Option<Instant> {
        (self.step != Step::StopWork).then_some(self.at)
    }

    /// The token, while the entry of a term that began may have to be released. What follows a term
    /// that began has no cool-down left.
    pub fn releasable(&self) -> Option<Token> {
        self.token.filter(|_| self.began && self.step != Step::Done)
    }

    /// The work has stopped, or would not.
    pub fn on_term_ended(&mut self, cx: &mut Context, now: Instant, work_stopped: bool) {
        if self.step != Step::StopWork {
            return;
        }
        self.step = Step::Notify;
        self.at = now;
        self.tries_end = tries_end(cx, now, &self.cause);
        self.work_stopped = work_stopped;
        self.notify &= work_stopped;
        self.release &= work_stopped;
        if !work_stopped {
            cx.observed.record_running_work(self.deadline);
        }
    }

    pub fn advance(&mut self, cx: &mut Context, now: Instant) -> Transition {
        let timeout = cx.settings.timing.request_timeout();
        let left = with_drift(cx.own_cool_down(now));
        // Choria's candidates do not read what is left: the entry must keep them out, and expires
        // by itself.
        let must_stay = cx.settings.with_choria && !left.is_zero();
        if cx.requests.is_busy() || now < self.at {
            return Transition::Stay;
        }
        match (self.step, self.revision, self.token) {
            (Step::StopWork, ..) => {}
            (Step::Notify, Some(revision), Some(token)) if self.notify => {
                self.notify = false;
                let by = cx.settings.nonce;
                cx.notify(now, StepDownNotice { by, token, revision, left });
            }
            (Step::Notify, ..) => {
                self.step = if self.release { Step::Release } else { Step::Done };
                return self.advance(cx, now);
            }
            (Step::Release, Some(_), _) if must_stay => {
                self.step = Step::Done;
                return self.advance(cx, now);
            }
            (Step::Release, Some(expected), _) => {
                let (by, cause, to) = (cx.settings.nonce, self.cause.as_str(), self.to);
                let pause = cx.pause(now);
                cx.release(now, Release { expected, by, left, cause, to, pause, timeout });
            }
            (Step::Verify | Step::Release, ..) => cx.read(now, timeout),
            (Step::Done, ..) => return self.done(cx, now),
        }
        Transition::Stay
    }

    pub fn on_response(
        &mut self,
        cx: &mut Context,
        now: Instant,
        sent: Instant,
        response: Response,
    ) {
        let (fresh, timing) = (cx.retries(), cx.settings.timing);
        let reads = cx.capabilities.can_read;
        // A hint that came meanwhile may be newer than what was read.
        let learned_at = cx.observed.learned_at;
        let failed = match response {
            Response::Notified(_) => return,
            Response::Released(Ok(())) => {
                cx.observed.record_no_own_entry(now);
                self.step = Step::Done;
                return;
            }
            Response::Released(Err(failure)) if failure.kind == LockErrorKind::Conflict => {
                self.step = if reads { Step::Verify } else { Step::Done };
                // At once, but only once: what refuses us may continue refusing.
                let delay = match self.retries.replace(fresh) {
                    None => Duration::ZERO,
                    Some(mut retries) => {
                        let delay = timing.scaled(retries.delay());
                        self.retries = Some(retries);
                        delay
                    }
                };
                self.at = now + delay;
                self.at > self.tries_end
            }
            Response::Read(Ok(Reading::Found(record))) => {
                if let Some(mark) = cx.own_mark_in(&record) {
                    self.revision = Some(record.revision);
                    self.step = Step::Release;
                    cx.record_own_entry(now, record.revision, mark);
                } else {
                    // It is not ours to release: the revision stays that of our own last write.
                    cx.observed.record_no_own_entry(now);
                    self.step = Step::Done;
                    let is_older = record.revision < cx.observed.newest_revision();
                    if !(is_older && learned_at >= sent) {
                        let source = Source { from_hint: false, on_standby: false };
                        cx.record(now, record, None, source);
                    }
                }
                return;
            }
            Response::Read(Ok(Reading::Empty { proof })) => {
                self.step = Step::Done;
                if learned_at <= sent {
                    cx.record_vacancy(now, None, None, proof);
                }
                return;
            }
            Response::Released(Err(_)) | Response::Read(Err(_)) | Response::Written(_) => {
                let delay = timing.scaled(self.retries.get_or_insert(fresh).delay());
                self.at = now + delay;
                self.at > self.tries_end
            }
        };
        if failed {
            self.step = Step::Done;
            self.at = now;
        }
    }

    fn done(&self, cx: &mut Context, now: Instant) -> Transition {
        if let (true, Some(revision), Some(token)) = (self.work_stopped, self.revision, self.token)
        {
            let clear_at = cx.observed.own_cool_down_ends.max(now);
            let by = cx.settings.nonce;
            cx.observed.record_step_down(KnownStepDown { by, token, revision, clear_at });
        }
        if cx.stopping {
            return Transition::Finish;
        }
        let others_first = match self.cause {
            Cause::Superseded { .. } | Cause::Expired { .. } | Cause::Denied { .. } => {
                Duration::ZERO
            }
            _ => yield_delay(cx),
        };
        if cx.leader.as_ref().is_some_and(|leader| leader.is_me) {
            cx.set_leader(None);
        }
        Transition::StandBy { at: now + others_first }
    }
}

/// How long others go first. Where no hints arrive they poll, so for as long as they may wait
/// between two polls with the default policy: on a lock whose entries never expire that is a lease
/// at most, with its drift.
fn yield_delay(cx: &Context) -> Duration {
    let timing = cx.settings.timing;
    let delay = timing.yield_delay();
    if cx.coverage != Coverage::None {
        return delay;
    }
    let longest_poll = Backoff::FIVE_SEC.delay(u32::MAX, 1.0);
    delay.max(longest_poll.min(timing.lease() + timing.lease() / 4))
}

/// How long to try to release: once where the lock has been out of reach for a lease already.
fn tries_end(cx: &Context, now: Instant, cause: &Cause) -> Instant {
    match cause {
        Cause::Expired { .. } | Cause::Denied { .. } => now,
        _ => {
            let timing = cx.settings.timing;
            let least = timing.scaled(Duration::from_millis(500));
            now + (timing.lease() / 3).clamp(least, Duration::from_secs(5))
        }
    }
}
