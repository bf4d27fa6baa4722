//! Leaving office: the work stops first, then the loss is told, then the entry is released or conceded.

use std::time::Duration;

use super::cause::Cause;
use super::elector::{Campaign, Phase};
#[cfg(feature = "_model")]
use super::fingerprint::Pen;
use super::requests::{Kind, Outstanding};
use super::retries::Retries;
use super::standby::Plan;
use super::types::{Action, Answer};
use super::vacancy::Conceded;
use crate::lock::{
    Content, LockErrorKind, Reading, Release, Request, Revision, StepDownNotice, Token,
};
use crate::time::clock::Instant;
use crate::time::timing::with_drift;

#[derive(Debug, Clone)]
pub(super) struct Leaving {
    cause: Cause,
    step: Step,
    /// The entry as last known: `None` before a look has told whether there is one of ours at all.
    revision: Option<Revision>,
    token: Option<Token>,
    concede: bool,
    release: bool,
    /// Whether no work of the term is running any more.
    work_stopped: bool,
    /// When the right to lead of this term ends, whatever its work does.
    deadline: Instant,
    /// Not before this.
    at: Instant,
    /// When to stop trying: the entry then expires by itself.
    tries_end: Instant,
    retries: Option<Retries>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Waiting for the work to stop.
    Work,
    Concede,
    Release,
    /// Looking whether the entry is ours.
    Settle,
    Done,
}

impl Leaving {
    pub(super) fn next_wake(&self) -> Option<Instant> {
        (self.step != Step::Work).then_some(self.at)
    }

    #[cfg(feature = "_model")]
    pub(super) fn sketch(&self, pen: &mut Pen<'_>) {
        let Self {
            cause,
            step,
            revision,
            token,
            concede,
            release,
            work_stopped,
            deadline,
            at,
            tries_end,
            retries,
        } = self;
        pen.to.word(4);
        pen.to.word(match cause {
            Cause::Usurped { .. } => 0,
            Cause::Expired { .. } | Cause::Denied { .. } => 1,
            _ => 2, // are left alike
        });
        pen.to.word(*step as u64);
        pen.each(revision, Pen::revision);
        pen.each(token, |pen, token| pen.token(*token));
        pen.flags(&[*concede, *release, *work_stopped]);
        for instant in [deadline, at, tries_end] {
            pen.until(*instant);
        }
        pen.each(retries, Pen::retries);
    }
}

impl Campaign {
    /// Ends the time in office. `verified`: the cause is known from an answer of the lock, not from a hint.
    pub(super) fn leave_office(&mut self, now: Instant, cause: Cause, verified: bool) {
        let Phase::Office(office) = &self.phase else { return };
        let deposed = matches!(cause, Cause::Usurped { .. } | Cause::Evicted);
        let leaving = Leaving {
            cause: cause.clone(),
            step: if office.began { Step::Work } else { Step::Concede },
            revision: Some(office.revision),
            token: Some(office.token),
            concede: deposed,
            // A hint may be wrong: then the entry is still there, and must not keep others out.
            release: !(deposed && verified),
            work_stopped: true,
            deadline: office.deadline,
            at: now,
            tries_end: self.tries_end(now, &cause),
            retries: None,
        };
        if office.began {
            let by = (now + self.settings.timing.grace()).min(office.deadline).max(now);
            self.act(Action::End { cause, by });
        } else {
            self.own_cool_down_ends = office.lead_at;
        }
        self.outstanding = None;
        self.phase = Phase::Leaving(leaving);
    }

    /// Ends the campaign of a stand-by, which may have created an entry without knowing.
    pub(super) fn leave_standby(&mut self, now: Instant) {
        self.outstanding = None;
        let settle = self.capabilities.can_read && now < self.entry_may_stand_until;
        self.phase = Phase::Leaving(Leaving {
            cause: Cause::Stopped,
            step: if settle { Step::Settle } else { Step::Done },
            revision: None,
            token: None,
            concede: false,
            release: true,
            work_stopped: true,
            deadline: now,
            at: now,
            tries_end: self.tries_end(now, &Cause::Stopped),
            retries: None,
        });
    }

    pub(super) fn give_up_office(&mut self, now: Instant, cause: Cause) {
        self.leave_office(now, cause, true);
    }

    pub(super) fn stop(&mut self, now: Instant) {
        self.stopping = true;
        match &self.phase {
            Phase::Idle => self.finish(),
            // A create is under way: its answer tells whether there is something to release.
            Phase::Standby(_)
                if matches!(
                    self.outstanding,
                    Some(Outstanding { kind: Kind::Write { .. }, .. })
                ) => {}
            Phase::Standby(_) => self.leave_standby(now),
            Phase::Office(_) => self.leave_office(now, Cause::Stopped, true),
            Phase::Leaving(_) | Phase::Finished => {}
        }
    }

    pub(super) fn term_ended(&mut self, now: Instant, work_stopped: bool) {
        let cause = match &self.phase {
            Phase::Leaving(leaving) if leaving.step == Step::Work => leaving.cause.clone(),
            _ => return,
        };
        let tries_end = self.tries_end(now, &cause);
        let Phase::Leaving(leaving) = &mut self.phase else { return };
        leaving.step = Step::Concede;
        leaving.at = now;
        leaving.tries_end = tries_end;
        leaving.work_stopped = work_stopped;
        leaving.concede &= work_stopped;
        leaving.release &= work_stopped;
        if !work_stopped {
            // Nobody else leads before the entry has expired; nor do we, beside what still runs.
            self.own_cool_down_ends = self.own_cool_down_ends.max(leaving.deadline);
            self.work_may_last_until = self.work_may_last_until.max(leaving.deadline);
        }
    }

    /// How long to try to release: not at all where the lock has been out of reach for a lease already.
    fn tries_end(&self, now: Instant, cause: &Cause) -> Instant {
        match cause {
            Cause::Expired { .. } | Cause::Denied { .. } => now,
            _ => {
                let third = self.settings.timing.lease() / 3;
                now + third.clamp(Duration::from_millis(500), Duration::from_secs(5))
            }
        }
    }

    pub(super) fn proceed_leaving(&mut self, now: Instant) {
        let timeout = self.settings.timing.attempt();
        let left = with_drift(self.own_wait(now));
        // Choria's campaigners do not read what is left: the entry must keep them out, and expires by itself.
        let must_stay = self.settings.choria_peers && !left.is_zero();
        let Phase::Leaving(leaving) = &mut self.phase else { return };
        if self.outstanding.is_some() || now < leaving.at {
            return;
        }
        match (leaving.step, leaving.revision, leaving.token) {
            (Step::Work, ..) => {}
            (Step::Concede, Some(revision), Some(token)) if leaving.concede => {
                leaving.concede = false;
                let by = self.settings.nonce;
                let notice = StepDownNotice { by, token, revision, left };
                self.request(now, Kind::Concede, Request::NotifyStepDown(notice));
            }
            (Step::Concede, ..) => {
                leaving.step = if leaving.release { Step::Release } else { Step::Done };
                self.proceed_leaving(now);
            }
            (Step::Release, Some(_), _) if must_stay => {
                leaving.step = Step::Done;
                self.proceed_leaving(now);
            }
            (Step::Release, Some(expected), _) => {
                let (by, cause) = (self.settings.nonce, leaving.cause.word());
                let release = Release { expected, by, left, cause, timeout };
                self.request(now, Kind::Release, Request::Release(release));
            }
            (Step::Settle | Step::Release, ..) => self.request_read(now, timeout),
            (Step::Done, ..) => self.left(now),
        }
    }

    pub(super) fn leaving_answered(&mut self, now: Instant, answer: Answer) {
        let fresh = self.retries();
        let reads = self.capabilities.can_read;
        let nonce = self.settings.nonce;
        let Phase::Leaving(leaving) = &mut self.phase else { return };
        let failed = match answer {
            Answer::Conceded(_) => return,
            Answer::Released(Ok(())) => {
                self.entry_may_stand_until = now;
                leaving.step = Step::Done;
                return;
            }
            Answer::Released(Err(failure)) if failure.kind == LockErrorKind::Conflict => {
                leaving.step = if reads { Step::Settle } else { Step::Done };
                // At once, but only once: what refuses us may go on refusing.
                let delay = match leaving.retries.replace(fresh) {
                    None => Some(Duration::ZERO),
                    Some(mut retries) => {
                        let delay = retries.next();
                        leaving.retries = Some(retries);
                        delay
                    }
                };
                leaving.at = now + delay.unwrap_or(Duration::from_secs(1));
                leaving.at > leaving.tries_end
            }
            Answer::Read(Ok(Reading::Found(record))) => {
                let mine = match &record.content {
                    Content::Held(entry) => entry.mark.as_ref().filter(|m| m.write.nonce == nonce),
                    Content::Vacant(_) => None,
                };
                if let Some(mark) = mine {
                    leaving.revision = Some(record.revision);
                    leaving.step = Step::Release;
                    self.find_own(now, record.revision, mark);
                } else {
                    // It is not ours to give up: the revision stays that of our own last write.
                    self.entry_may_stand_until = now;
                    leaving.step = Step::Done;
                    self.learn(now, record, None, false);
                }
                return;
            }
            Answer::Read(Ok(Reading::Empty { proof })) => {
                leaving.step = Step::Done;
                self.learn_vacancy(now, None, None, proof);
                return;
            }
            Answer::Released(Err(_)) | Answer::Read(Err(_)) | Answer::Written(_) => {
                let delay = leaving.retries.get_or_insert(fresh).next();
                leaving.at = now + delay.unwrap_or(Duration::from_secs(1));
                leaving.at > leaving.tries_end
            }
        };
        if failed {
            leaving.step = Step::Done;
            leaving.at = now;
        }
    }

    fn left(&mut self, now: Instant) {
        let Phase::Leaving(leaving) = &self.phase else { return };
        if let (true, Some(revision), Some(token)) =
            (leaving.work_stopped, leaving.revision, leaving.token)
        {
            let clear_at = self.own_cool_down_ends.max(now);
            self.remember_concession(Conceded {
                by: self.settings.nonce,
                token,
                revision,
                clear_at,
            });
        }
        if self.stopping {
            return self.finish();
        }
        let Phase::Leaving(leaving) = &self.phase else { return };
        let others_first = match leaving.cause {
            Cause::Usurped { .. } | Cause::Expired { .. } | Cause::Denied { .. } => Duration::ZERO,
            _ => self.settings.timing.stand_aside(),
        };
        if self.leader().is_some_and(|leader| leader.is_me) {
            self.tell_leader(None);
        }
        self.stand_by(now + others_first, Plan::Look);
    }

    fn finish(&mut self) {
        self.outstanding = None;
        self.phase = Phase::Finished;
        self.act(Action::Finished);
    }
}
