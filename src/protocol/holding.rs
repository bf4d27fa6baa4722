//! Holding the entry: cooling down, leading, renewing.

use std::sync::Arc;
use std::time::Duration;

use super::context::{
    AcquiredEntry, Context, EndedTerm, InFlightRequest, RequestKind, Source, Transition, WriteDraft,
};
use super::cool_down::{CoolDownWait, Doubt};
use super::observations::KnownStepDown;
use super::types::{Action, Cause, Leader, LockFailure, NotBefore, WaitReason};
use crate::lock::{Content, LockErrorKind, Nonce, Reading, Record, Revision, Token, Tombstone};
use crate::time::clock::Instant;
use crate::util::retry::ProtocolRetries;

#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub token: Token,
    pub revision: Revision,
    pub since: Instant,
    /// When the right to lead ends: from before the sending of the last write that succeeded.
    pub deadline: Instant,
    pub wait: CoolDownWait,
    /// When the last write was sent.
    pub sent: Instant,
    /// Whether [`Action::Begin`] has been returned.
    pub began: bool,
    pub renew_at: Instant,
    pub retries: Option<ProtocolRetries>,
    pub last_failure: Option<LockFailure>,
    /// Read the entry.
    pub check: bool,
    /// No earlier than this.
    pub check_from: Instant,
    /// Whether its work comes to its end, so that nobody need ask it to hand over.
    pub drains: bool,
}

/// A holder states a new pause within this time.
const STATES_WITHIN: Duration = Duration::from_secs(1);

impl Holding {
    pub fn new(cx: &mut Context, now: Instant, stored: AcquiredEntry) -> Self {
        let AcquiredEntry { created, number, sent, wait } = stored;
        cx.requests.begin_term(number);
        // Each further renewal is due an interval after the one before: the elections that a
        // process acquires at one moment would be renewed at one moment forever. Not at once:
        // some object stores refuse a second write to an object within a second.
        let first = cx.settings.timing.renewal().mul_f64(0.25 + 0.75 * cx.random.f64());
        // What is in doubt by then is settled at once.
        let renew_at = match wait.doubt {
            Some(Doubt::Expiry) => wait.not_before.at.min(sent + first),
            _ => sent + first,
        };
        let holding = Self {
            token: created.into(),
            revision: created,
            since: sent,
            deadline: sent + cx.settings.timing.validity(),
            wait,
            sent,
            began: false,
            renew_at,
            retries: None,
            last_failure: None,
            check: false,
            check_from: now,
            drains: false,
        };
        cx.observed.record_held(created, wait.not_before.at);
        let since_unix_ms = cx.by_wall_clock(holding.since);
        cx.set_leader(Some(Leader {
            identity: Arc::clone(&cx.settings.identity),
            token: Some(holding.token),
            since_unix_ms: Some(since_unix_ms),
            advertisement: cx.settings.advertisement.clone(),
            last_seen: now,
            lease: cx.settings.timing.lease(),
            is_me: true,
            priority: None,
        }));
        holding
    }

    /// `busy`: a request is in flight.
    pub fn next_wake(&self, grace: Duration, busy: bool) -> Instant {
        let mut at = self.deadline - grace;
        let lead_at = self.wait.not_before.at;
        if !self.began && (self.wait.doubt.is_none() || !busy && self.sent < lead_at) {
            at = at.min(lead_at);
        }
        if !busy {
            at = at.min(self.renew_at);
            if self.check {
                at = at.min(self.check_from);
            }
        }
        at
    }

    /// The token and the deadline, while it leads.
    pub fn term(&self) -> Option<(Token, Instant)> {
        self.began.then_some((self.token, self.deadline))
    }

    /// When it leads, and what it waits for until then; `None` once it leads.
    pub fn cool_down(&self) -> Option<(Instant, WaitReason)> {
        let NotBefore { at, reason } = self.wait.not_before;
        (!self.began).then_some((at, reason))
    }

    /// The end of the term. `verified`: the cause is known from a response of the lock, not from a
    /// hint.
    pub fn ends(&self, cause: Cause, verified: bool) -> Transition {
        Transition::StepDown(self.ended(cause, verified, None))
    }

    /// The end of the term in favour of a successor.
    pub fn hand_over(&self, to: Nonce, identity: Arc<str>) -> Transition {
        Transition::StepDown(self.ended(Cause::HandedOver { to: identity }, true, Some(to)))
    }

    fn ended(&self, cause: Cause, verified: bool, to: Option<Nonce>) -> EndedTerm {
        let &Self { token, revision, deadline, wait, began, .. } = self;
        let lead_at = wait.not_before.at;
        EndedTerm { cause, verified, token, revision, deadline, lead_at, began, to }
    }

    /// A right that has ended is never revived: whatever is still in flight comes too late.
    pub fn expire_if_due(&self, now: Instant) -> Transition {
        if now >= self.deadline { self.ends(self.expired(), true) } else { Transition::Stay }
    }

    /// A holder has stepped down.
    pub fn on_step_down(&mut self, step_down: &KnownStepDown) {
        self.wait.on_step_down(step_down);
    }

    /// The pause of the election has changed.
    pub fn state_soon(&mut self, now: Instant) {
        self.renew_at = self.renew_at.min(now + STATES_WITHIN);
    }

    /// The work of the term comes to its end.
    pub fn drains(&mut self) {
        self.drains = true;
    }

    /// A hint suggests a read, or hints have begun or ended.
    pub fn read_soon(&mut self) {
        self.check = true;
    }

    fn expired(&self) -> Cause {
        match &self.last_failure {
            Some(LockFailure { kind: LockErrorKind::Denied, message }) => {
                Cause::Denied { error: Arc::clone(message) }
            }
            failure => {
                Cause::Expired { last_error: failure.as_ref().map(|f| Arc::clone(&f.message)) }
            }
        }
    }

    pub fn advance(&mut self, cx: &mut Context, now: Instant) -> Transition {
        let timing = cx.settings.timing;
        let stop_at = self.deadline - timing.grace();
        if now >= stop_at {
            return self.ends(self.expired(), true);
        }
        let lead_at = self.wait.not_before.at;
        if !self.began && now >= lead_at {
            if self.wait.doubt.is_none() {
                self.began = true;
                cx.observed.own_cool_down_ends = now;
                cx.act(Action::Begin { token: self.token, deadline: self.deadline });
            } else if self.sent < lead_at {
                self.renew_at = self.renew_at.min(now);
            }
        }
        if cx.requests.is_busy() {
            return Transition::Stay;
        }
        let timeout = timing.request_timeout().min(stop_at.saturating_since(now));
        if now >= self.renew_at {
            let (expected, token, since) = (Some(self.revision), Some(self.token), self.since);
            let left = if self.began { Duration::ZERO } else { lead_at.saturating_since(now) };
            let life = cx.entry_life(left);
            // One that asked a holder that cools down or drains would be refused.
            let may_be_asked = self.began && !self.drains;
            let wait = None;
            self.sent = now;
            cx.write(now, WriteDraft { expected, token, since, life, timeout, wait, may_be_asked });
            return Transition::Stay;
        }
        // After the renewal, which shows as much: reads that fail must not keep renewals from being
        // sent.
        self.check &= cx.capabilities.can_read;
        if self.check && now >= self.check_from {
            self.check = false;
            self.check_from = now + timing.renewal() / 8;
            cx.read(now, timeout);
        }
        Transition::Stay
    }

    pub fn on_written(
        &mut self,
        cx: &mut Context,
        now: Instant,
        request: &InFlightRequest,
        result: Result<Revision, LockFailure>,
    ) -> Transition {
        let RequestKind::Write { number } = request.kind else { return Transition::Stay };
        let (fresh, timing) = (cx.retries(), cx.settings.timing);
        let reads = cx.capabilities.can_read;
        match result {
            Ok(revision) => {
                self.revision = revision;
                self.renewed(cx, request.sent, number);
            }
            // Ours, applied and reported lost, or another candidate's: a read shows which.
            Err(failure) if failure.kind == LockErrorKind::Conflict && reads => {
                cx.requests.resolve(number, false);
                self.last_failure = Some(failure);
                self.check = true;
                self.check_from = now;
                // A cluster also refuses for another write that is still in flight: not again
                // without a delay.
                let delay = timing.scaled(self.retries.get_or_insert(fresh).delay());
                self.renew_at = now + delay;
            }
            // It cannot be read. If a write of ours is in doubt, this may be the lease we hold:
            // leave it to expire.
            Err(failure) if failure.kind == LockErrorKind::Conflict => {
                let ambiguous = cx.requests.has_other_in_doubt(number);
                return self.ends(Cause::Superseded { by: None }, !ambiguous);
            }
            Err(failure) => {
                if failure.kind != LockErrorKind::OutcomeUnknown {
                    cx.requests.resolve(number, false);
                }
                self.last_failure = Some(failure);
                let delay = timing.scaled(self.retries.get_or_insert(fresh).delay());
                self.renew_at = now + delay;
            }
        }
        Transition::Stay
    }

    /// A write of the holder's, with this number, that was sent at `sent` has been applied.
    fn renewed(&mut self, cx: &mut Context, sent: Instant, number: u64) {
        let timing = cx.settings.timing;
        self.deadline = self.deadline.max(sent + timing.validity());
        self.renew_at = sent + timing.renewal();
        self.retries = None;
        self.last_failure = None;
        let is_early = sent < self.wait.not_before.at;
        self.wait.doubt.take_if(|doubt| *doubt == Doubt::Expiry || !is_early);
        cx.requests.resolve_all(number);
        if let Some(me) = &mut cx.leader {
            me.last_seen = sent;
        }
        if self.began {
            cx.act(Action::Extend { deadline: self.deadline });
        }
    }

    pub fn on_read(
        &mut self,
        cx: &mut Context,
        now: Instant,
        result: Result<Reading, LockFailure>,
    ) -> Transition {
        let (fresh, timing) = (cx.retries(), cx.settings.timing);
        let durable = cx.capabilities.reads_are_durable;
        match result {
            Err(failure) => {
                self.last_failure = Some(failure);
                self.check = true;
                let delay = timing.scaled(self.retries.get_or_insert(fresh).delay());
                self.check_from = now + delay;
            }
            Ok(Reading::Empty { proof }) => {
                cx.record_vacancy(now, None, None, proof);
                return self.ends(Cause::Evicted, true);
            }
            Ok(Reading::Found(record)) => {
                let Some(mark) = cx.own_mark_in(&record) else {
                    let cause = self.superseded_by(&record);
                    // Older than our own write: a lock that was created anew, or a read that went
                    // back in time. Then our entry may still be there, and must
                    // not keep others out.
                    let verified = record.revision > self.revision;
                    cx.record(now, record, None, Source { from_hint: false, on_standby: false });
                    return self.ends(cause, verified);
                };
                if record.revision > self.revision {
                    if mark.token.is_none() {
                        // A create of before that landed late: what we held is gone, and others may
                        // have held it since.
                        return self.ends(Cause::Evicted, true);
                    }
                    // A renewal whose reply was lost. It counts from when *it* was sent.
                    self.revision = record.revision;
                    let number = mark.write.number;
                    match cx.requests.in_doubt(number).map(|write| write.sent) {
                        Some(sent) if durable => self.renewed(cx, sent, number),
                        // It may still be lost. The next renewal is due already, and its
                        // acknowledgement covers both.
                        Some(_) => {}
                        None => self.renew_at = now,
                    }
                }
            }
        }
        Transition::Stay
    }

    /// Whether a stored write is no news to a holder: it is older than the holder's last one, or
    /// the holder's own, whose response is on the way.
    pub fn expects(&self, record: &Record, mine: bool) -> bool {
        record.revision <= self.revision || mine
    }

    /// A stored write that is newer than ours and is not ours: the term is over.
    pub fn superseded_by_hint(&self, record: &Record) -> Transition {
        self.ends(self.superseded_by(record), false)
    }

    fn superseded_by(&self, record: &Record) -> Cause {
        match &record.content {
            Content::Held(entry) => Cause::Superseded { by: Some(Arc::clone(&entry.identity)) },
            Content::Vacant(Tombstone::Expired) => self.expired(),
            Content::Vacant(_) => Cause::Evicted,
        }
    }
}
