//! Holding the entry: cooling down, leading, renewing.

use std::sync::Arc;
use std::time::Duration;

use super::cause::Cause;
use super::elector::{Campaign, Phase};
use super::requests::{Draft, Kind, Outstanding};
use super::retries::Retries;
use super::types::{Action, Failure, Leader};
use super::vacancy::{Conceded, Predecessor, Wait};
use crate::lock::{Content, LockErrorKind, Reading, Record, Revision, Token, Tombstone};
use crate::time::clock::Instant;

#[derive(Debug, Clone)]
pub(super) struct Office {
    pub token: Token,
    pub revision: Revision,
    pub since: Instant,
    /// When the right to lead ends: from before the sending of the last write that succeeded.
    pub deadline: Instant,
    /// When the cool-down is over.
    pub lead_at: Instant,
    /// What no notice can bring forward.
    pub floor: Instant,
    pub concedes: Option<Predecessor>,
    /// Whether [`Action::Begin`] has been said.
    pub began: bool,
    pub renew_at: Instant,
    pub retries: Option<Retries>,
    pub last_failure: Option<Failure>,
    /// Look at the entry.
    pub check: bool,
    /// No earlier than this.
    pub check_from: Instant,
}

impl Office {
    pub(super) fn next_wake(&self, grace: Duration, busy: bool) -> Instant {
        let mut at = self.deadline - grace;
        if !self.began {
            at = at.min(self.lead_at);
        }
        if !busy {
            at = at.min(self.renew_at);
            if self.check {
                at = at.min(self.check_from);
            }
        }
        at
    }

    pub(super) fn hear_concession(&mut self, conceded: &Conceded) {
        if self.concedes.is_some_and(|predecessor| predecessor.is(conceded)) {
            self.lead_at = self.lead_at.min(conceded.clear_at.max(self.floor));
        }
    }

    fn expired(&self) -> Cause {
        match &self.last_failure {
            Some(Failure { kind: LockErrorKind::Denied, message }) => {
                Cause::Denied { error: Arc::clone(message) }
            }
            failure => {
                Cause::Expired { last_error: failure.as_ref().map(|f| Arc::clone(&f.message)) }
            }
        }
    }
}

impl Campaign {
    pub(super) fn take_office(
        &mut self,
        now: Instant,
        created: Revision,
        sent: Instant,
        wait: Wait,
    ) {
        self.pending.clear();
        self.known_create = Some(created);
        self.vacancy = None;
        let mut office = Office {
            token: created.into(),
            revision: created,
            since: sent,
            deadline: sent + self.settings.timing.tenure(),
            lead_at: wait.ends(now),
            floor: wait.floor,
            concedes: wait.concedes,
            began: false,
            renew_at: sent + self.settings.timing.renewal(),
            retries: None,
            last_failure: None,
            check: false,
            check_from: now,
        };
        for conceded in &self.conceded {
            office.hear_concession(conceded);
        }
        self.own_cool_down_ends = office.lead_at;
        let since_unix_ms = self.by_wall_clock(office.since);
        self.refused_wait = Duration::ZERO;
        self.tell_leader(Some(Leader {
            identity: Arc::clone(&self.settings.identity),
            token: Some(office.token),
            since_unix_ms: Some(since_unix_ms),
            advertisement: self.settings.advertisement.clone(),
            seen: now,
            lease: self.settings.timing.lease(),
            is_me: true,
        }));
        self.phase = Phase::Office(office);
        if self.stopping {
            self.leave_office(now, Cause::Stopped, true);
        }
    }

    /// A right that has ended is never revived: whatever is still under way comes too late.
    pub(super) fn end_what_has_expired(&mut self, now: Instant) {
        if let Phase::Office(office) = &self.phase
            && now >= office.deadline
        {
            let cause = office.expired();
            self.leave_office(now, cause, true);
        }
    }

    pub(super) fn proceed_office(&mut self, now: Instant) {
        let timing = self.settings.timing;
        let Phase::Office(office) = &mut self.phase else { return };
        let stop_at = office.deadline - timing.grace();
        if now >= stop_at {
            let cause = office.expired();
            return self.leave_office(now, cause, true);
        }
        if !office.began && now >= office.lead_at {
            office.began = true;
            let (token, deadline) = (office.token, office.deadline);
            self.own_cool_down_ends = now;
            self.act(Action::Begin { token, deadline });
        }
        if self.outstanding.is_some() {
            return;
        }
        let Phase::Office(office) = &mut self.phase else { return };
        let timeout = timing.attempt().min(stop_at.saturating_since(now));
        if now >= office.renew_at {
            let (expected, token, since) = (office.revision, office.token, office.since);
            let left =
                if office.began { Duration::ZERO } else { office.lead_at.saturating_since(now) };
            let life = self.life(left);
            let (expected, token) = (Some(expected), Some(token));
            let draft = Draft { expected, token, since, life, timeout, wait: None };
            return self.request_write(now, draft);
        }
        // After the renewal, which tells as much: looks that fail must not keep renewals from being sent.
        office.check &= self.capabilities.can_read;
        if office.check && now >= office.check_from {
            office.check = false;
            office.check_from = now + timing.renewal() / 8;
            self.request_read(now, timeout);
        }
    }

    pub(super) fn renewal_answered(
        &mut self,
        now: Instant,
        outstanding: Outstanding,
        answer: Result<Revision, Failure>,
    ) {
        let Kind::Write { number } = outstanding.kind else { return };
        let fresh = self.retries();
        let reads = self.capabilities.can_read;
        let ambiguous = self.pending.iter().any(|p| p.number != number);
        let Phase::Office(office) = &mut self.phase else { return };
        match answer {
            Ok(revision) => {
                office.revision = revision;
                self.renewed(outstanding.sent);
            }
            // Ours, applied and reported lost, or somebody else's: a look tells.
            Err(failure) if failure.kind == LockErrorKind::Conflict && reads => {
                self.pending.retain(|p| p.number != number);
                office.last_failure = Some(failure);
                office.check = true;
                office.check_from = now;
                // A cluster also refuses for another write that is still in flight: not again without a delay.
                let delay = office.retries.get_or_insert(fresh).next();
                office.renew_at = now + delay.unwrap_or(Duration::from_secs(1));
            }
            // It cannot be told. If a write of ours is in doubt, this may be the lease we hold: leave it to expire.
            Err(failure) if failure.kind == LockErrorKind::Conflict => {
                self.leave_office(now, Cause::Usurped { by: None }, !ambiguous);
            }
            Err(failure) => {
                if failure.kind != LockErrorKind::OutcomeUnknown {
                    self.pending.retain(|p| p.number != number);
                }
                office.last_failure = Some(failure);
                let delay = office.retries.get_or_insert(fresh).next();
                office.renew_at = now + delay.unwrap_or(Duration::from_secs(1));
            }
        }
    }

    /// A write of the holder's that was sent at `sent` has been applied.
    fn renewed(&mut self, sent: Instant) {
        let timing = self.settings.timing;
        let Phase::Office(office) = &mut self.phase else { return };
        office.deadline = office.deadline.max(sent + timing.tenure());
        office.renew_at = sent + timing.renewal();
        office.retries = None;
        office.last_failure = None;
        let (began, deadline) = (office.began, office.deadline);
        self.pending.clear();
        if let Some(me) = &mut self.leader {
            me.seen = sent;
        }
        if began {
            self.act(Action::Extend { deadline });
        }
    }

    pub(super) fn office_read(&mut self, now: Instant, answer: Result<Reading, Failure>) {
        let fresh = self.retries();
        let nonce = self.settings.nonce;
        let durable = self.capabilities.reads_are_durable;
        let Phase::Office(office) = &mut self.phase else { return };
        match answer {
            Err(failure) => {
                office.last_failure = Some(failure);
                office.check = true;
                let delay = office.retries.get_or_insert(fresh).next();
                office.check_from = now + delay.unwrap_or(Duration::from_secs(1));
            }
            Ok(Reading::Empty { proof }) => {
                self.learn_vacancy(now, None, None, proof);
                self.leave_office(now, Cause::Evicted, true);
            }
            Ok(Reading::Found(record)) => {
                let mine = match &record.content {
                    Content::Held(entry) => entry.mark.as_ref().filter(|m| m.write.nonce == nonce),
                    Content::Vacant(_) => None,
                };
                let Some(mark) = mine else {
                    let cause = deposed_by(&record, office);
                    // Older than our own write: a lock that was made anew, or a read that went back in time. Then our
                    // entry may still be there, and must not keep others out.
                    let verified = record.revision > office.revision;
                    self.learn(now, record, None, false);
                    return self.leave_office(now, cause, verified);
                };
                if record.revision > office.revision {
                    if mark.token.is_none() {
                        // A create of before that landed late: what we held is gone, and others may have held it since.
                        return self.leave_office(now, Cause::Evicted, true);
                    }
                    // A renewal whose reply was lost. It counts from when *it* was sent.
                    office.revision = record.revision;
                    let write = self.pending.iter().find(|p| p.number == mark.write.number);
                    match write.map(|write| write.sent) {
                        Some(sent) if durable => self.renewed(sent),
                        // It may still be lost. The next renewal is due already, and its acknowledgement covers both.
                        Some(_) => {}
                        None => office.renew_at = now,
                    }
                }
            }
        }
    }

    /// Whether a stored write is no news to a holder: it is older than the holder's last one, or the holder's own,
    /// whose answer is on the way.
    pub(super) fn office_expects(&self, record: &Record) -> bool {
        let Phase::Office(office) = &self.phase else { return false };
        record.revision <= office.revision
            || matches!(&record.content, Content::Held(entry) if self.is_mine(entry))
    }

    /// A stored write that is newer than ours and is not ours: the term is over.
    pub(super) fn deposed_by_hint(&mut self, now: Instant, record: &Record) {
        if let Phase::Office(office) = &self.phase {
            let cause = deposed_by(record, office);
            self.leave_office(now, cause, false);
        }
    }
}

fn deposed_by(record: &Record, office: &Office) -> Cause {
    match &record.content {
        Content::Held(entry) => Cause::Usurped { by: Some(Arc::clone(&entry.identity)) },
        Content::Vacant(Tombstone::Expired) => office.expired(),
        Content::Vacant(_) => Cause::Evicted,
    }
}
