//! Requests of the lock: what is under way, and what an answer, or none, shows of the lock.

use std::sync::Arc;
use std::time::Duration;

use super::elector::{At, Campaign};
use super::types::{Action, Answer, Event, Failure};
use super::vacancy::Wait;
use crate::lock::{LockErrorKind, Mark, Reading, Request, Revision, Token, Write, WriteId};
use crate::time::clock::Instant;

/// The request under way.
#[derive(Debug, Clone)]
pub(super) struct Outstanding {
    pub id: u64,
    pub sent: Instant,
    pub kind: Kind,
    /// What a write is to replace.
    pub over: Option<Revision>,
    /// Until when those might lead who had been seen by then.
    pub rights_seen_end: Instant,
    /// When to take it for unanswered, whatever the lock promised.
    pub gives_up_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write { number: u64 },
    Release,
    Concede,
}

/// Writes that were refused one after the other, all over the same revision.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals {
    over: Option<Revision>,
    count: u8,
}

impl Refusals {
    /// A cluster refuses a write while another is in flight, and an object store may: that passes.
    const PASSING: u8 = 4;

    fn add(&mut self, over: Option<Revision>) {
        if self.over != over {
            *self = Self { over, count: 0 };
        }
        self.count = self.count.saturating_add(1).min(Self::PASSING + 1);
    }

    /// All that later decisions depend on.
    #[cfg(feature = "_model")]
    pub fn parts(&self) -> (u8, Option<Revision>) {
        (self.count, self.over)
    }

    /// An entry was seen.
    pub fn seen(&mut self, revision: Revision) {
        if self.over != Some(revision) {
            *self = Self::default();
        }
    }

    /// What to report once it has lasted for too long.
    pub fn failure(&self) -> Option<Failure> {
        (self.count > Self::PASSING).then(|| Failure {
            kind: LockErrorKind::Conflict,
            message: "the lock refuses every write as a conflict, though nothing else was written"
                .into(),
        })
    }
}

/// A write whose outcome is not known yet.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub number: u64,
    pub sent: Instant,
    /// For a create: the wait it earns.
    pub wait: Option<Box<Wait>>,
}

/// A write to be.
pub(super) struct Draft {
    pub expected: Option<Revision>,
    /// `None`: it begins a term.
    pub token: Option<Token>,
    pub since: Instant,
    pub life: Duration,
    pub timeout: Duration,
    /// Of a create: what it earns.
    pub wait: Option<Wait>,
}

impl Campaign {
    pub(super) fn request(&mut self, now: Instant, kind: Kind, request: Request) {
        self.next_request += 1;
        let id = self.next_request;
        let timeout = match &request {
            Request::Read { timeout } => *timeout,
            Request::Write(write) => write.timeout,
            Request::Release(release) => release.timeout,
            Request::NotifyStepDown(_) => self.settings.timing.attempt(),
        };
        let over = match &request {
            Request::Write(write) => write.expected,
            Request::Release(release) => Some(release.expected),
            Request::Read { .. } | Request::NotifyStepDown(_) => None,
        };
        // Later than the lock's own timeout, which says more of why.
        let gives_up_at = now + timeout + timeout / 2 + Duration::from_millis(100);
        let rights_seen_end = self.rights_seen_end;
        self.outstanding =
            Some(Outstanding { id, sent: now, kind, over, rights_seen_end, gives_up_at });
        self.act(Action::Request { id, request });
    }

    pub(super) fn request_read(&mut self, now: Instant, timeout: Duration) {
        self.request(now, Kind::Read, Request::Read { timeout });
    }

    pub(super) fn request_write(&mut self, now: Instant, draft: Draft) {
        self.next_write += 1;
        let number = self.next_write;
        if self.pending.len() == Self::REMEMBERED {
            self.pending.pop_front();
        }
        if draft.token.is_none() && draft.expected.is_none() {
            self.last_over_nothing = number;
        }
        let wait = draft.wait.map(Box::new);
        self.pending.push_back(Pending { number, sent: now, wait });
        self.entry_may_stand_until = self.entry_may_stand_until.max(now + draft.life);
        let write = Write {
            expected: draft.expected,
            identity: Arc::clone(&self.settings.identity),
            mark: Mark {
                write: WriteId { nonce: self.settings.nonce, number },
                lease: draft.life,
                token: draft.token,
                since_unix_ms: self.by_wall_clock(draft.since),
            },
            ttl: draft.life,
            advertisement: self.settings.advertisement.clone(),
            timeout: draft.timeout,
        };
        self.request(now, Kind::Write { number }, Request::Write(write));
    }

    /// A lock should answer within the timeout that it is given. One that hangs must not hang the campaign.
    pub(super) fn give_up_on_what_hangs(&mut self, now: Instant, event: &Event) {
        let Some(Outstanding { id, kind, gives_up_at, .. }) = &self.outstanding else { return };
        let (id, answered) = (*id, matches!(event, Event::Answered { id: of, .. } if of == id));
        if answered || now < *gives_up_at {
            return;
        }
        let hung = Failure {
            kind: LockErrorKind::OutcomeUnknown,
            message: "the lock has not answered within the timeout it was given".into(),
        };
        let answer = match kind {
            Kind::Read => Answer::Read(Err(hung)),
            Kind::Write { .. } => Answer::Written(Err(hung)),
            Kind::Release => Answer::Released(Err(hung)),
            Kind::Concede => Answer::Conceded(Err(hung)),
        };
        self.take_answer(now, id, answer);
    }

    pub(super) fn take_answer(&mut self, now: Instant, id: u64, answer: Answer) {
        let Some(outstanding) = self.outstanding.take_if(|o| o.id == id) else {
            return; // of a request that was given up
        };
        let failure = match &answer {
            Answer::Read(Err(f)) | Answer::Written(Err(f)) | Answer::Released(Err(f)) => Some(f),
            _ => None,
        };
        match failure {
            Some(failure) if failure.kind != LockErrorKind::Conflict => {
                self.fails(failure.clone(), outstanding.kind == Kind::Read);
            }
            _ if outstanding.kind == Kind::Concede => {}
            _ => {
                self.heard_from_lock = true;
                // A lock that frees nothing may look for evidence when it finds nothing, which takes its time.
                let searched = matches!(&answer, Answer::Read(Ok(Reading::Empty { .. })));
                if self.capabilities.expires_entries || !searched {
                    self.hearing.answered(now.saturating_since(outstanding.sent));
                }
                match failure {
                    _ if outstanding.kind == Kind::Read => {}
                    None => {
                        self.refusals = Refusals::default();
                        self.succeeds(false);
                    }
                    Some(_) => {
                        self.refusals.add(outstanding.over);
                        match self.refusals.failure() {
                            Some(failure) => self.fails(failure, false),
                            None => self.succeeds(false),
                        }
                    }
                }
            }
        }
        let read = matches!(&answer, Answer::Read(Ok(_)));
        match (self.phase_kind(), answer) {
            (At::Standby, Answer::Read(answer)) => self.standby_read(now, outstanding.sent, answer),
            (At::Standby, Answer::Written(answer)) => {
                self.create_answered(now, outstanding, answer)
            }
            (At::Office, Answer::Read(answer)) => self.office_read(now, answer),
            (At::Office, Answer::Written(answer)) => {
                self.renewal_answered(now, outstanding, answer)
            }
            (At::Leaving, answer) => self.leaving_answered(now, answer),
            _ => {}
        }
        if read {
            self.succeeds(true);
        }
    }

    fn fails(&mut self, failure: Failure, reading: bool) {
        if self.trouble.as_ref().map(|trouble| trouble.kind) != Some(failure.kind) {
            self.act(Action::Trouble(failure.clone()));
        }
        self.trouble = Some(failure);
        self.only_reading_fails = reading;
    }

    /// A standby that hears renewals reads no more: what it hears shows that the lock is in reach.
    pub(super) fn hears_though_it_cannot_read(&mut self) {
        use LockErrorKind::{OutcomeUnknown, Unavailable};
        let passes = |trouble: &Failure| matches!(trouble.kind, Unavailable | OutcomeUnknown);
        let rests = self.phase_kind() == At::Standby && !self.is_about_to_ask();
        if rests && self.only_reading_fails && self.trouble.take_if(|t| passes(t)).is_some() {
            self.act(Action::Recovered);
        }
    }

    /// A read that succeeds does not show that a write which was refused would now be accepted; nor that one which failed
    /// would succeed, where that write is the next thing to do.
    fn succeeds(&mut self, reading: bool) {
        let asks = self.is_about_to_ask();
        let refused = |trouble: &Failure| {
            use LockErrorKind::{Conflict, Denied, Misconfigured};
            asks || matches!(trouble.kind, Denied | Misconfigured | Conflict)
        };
        let stays =
            reading && !self.only_reading_fails && self.trouble.as_ref().is_some_and(refused);
        if !stays && self.trouble.take().is_some() {
            self.act(Action::Recovered);
        }
    }
}
