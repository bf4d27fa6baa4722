//! Standby: receives hints or polls, and acquires the entry when it is vacant.

use std::time::Duration;

use super::COMMON_MIN_LEASE;
use super::acquire;
use super::backoff::delay_of;
use super::context::{
    AcquiredEntry, Context, InFlightRequest, RequestKind, Source, Transition, WriteDraft,
};
use super::types::{LockFailure, Rank};
use crate::lock::{Coverage, LockErrorKind, Reading, Record, Revision, Tombstone};
use crate::time::clock::Instant;
use crate::util::retry::ProtocolRetries;

/// Over how long standbys that receive hints, but do not see each other's creates, spread their
/// reads.
const PARTIAL_SPREAD: Duration = Duration::from_millis(250);
/// Over how long they spread their reads where they see each other's creates.
const FULL_SPREAD: Duration = Duration::from_millis(20);

/// Over how long standbys spread the reads that a hint suggests.
pub(super) fn read_spread(coverage: Coverage) -> Duration {
    match coverage {
        Coverage::Full => FULL_SPREAD,
        Coverage::Partial | Coverage::Sampled | Coverage::None => PARTIAL_SPREAD,
    }
}

/// How long the candidate that asked for an entry waits before it polls again: what it sees leaves
/// it the rest of the time for which the others hold back.
fn handover_poll(lease: Duration) -> Duration {
    acquire::hold(lease) / 3
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// See who holds the election.
    Read,
    /// Create the entry.
    Acquire { expected: Option<Revision> },
}

#[derive(Debug, Clone)]
pub(super) struct Standby {
    pub at: Instant,
    pub plan: Plan,
    /// Acquires no earlier than this: a holder that has stepped down lets others go first.
    pub not_before: Instant,
    /// Since when it has known of no holder, and lets others go first. A tombstone may expire
    /// meanwhile, which is no reason to begin anew.
    pub deferring_since: Option<Instant>,
    /// Polls that found the same holder.
    pub polls: u32,
    pub retries: Option<ProtocolRetries>,
    /// A create in doubt has been looked up at once, since another holder was last seen.
    pub resolved: bool,
    /// Hints began while a read was in flight: what it saw may be old.
    pub read_again: bool,
    /// Hints have begun, or suggest a read, since the entry was last seen: it may be another one.
    pub recheck: bool,
}

impl Standby {
    /// A standby that reads the entry at `at`.
    pub fn new(at: Instant) -> Self {
        Self {
            at,
            plan: Plan::Read,
            not_before: at,
            deferring_since: None,
            polls: 0,
            retries: None,
            resolved: false,
            read_again: false,
            recheck: false,
        }
    }

    /// When there is something to do while no request is in flight. `check_at`: when to ask whether
    /// writes are refused.
    pub fn next_wake(&self, check_at: Option<Instant>) -> Instant {
        match (self.plan, check_at) {
            (Plan::Read, Some(check_at)) => self.at.min(check_at),
            _ => self.at,
        }
    }

    /// Whether the next thing to do is to write.
    pub fn is_about_to_acquire(&self) -> bool {
        matches!(self.plan, Plan::Acquire { .. })
    }

    pub fn advance(&mut self, cx: &mut Context, now: Instant) -> Transition {
        let timeout = cx.settings.timing.request_timeout();
        let reads = cx.capabilities.can_read;
        let eligible = cx.settings.may_acquire();
        if cx.requests.is_busy() {
            return Transition::Stay;
        }
        if self.plan == Plan::Read && cx.health.take_check(now) && eligible {
            cx.check_writes(now);
        }
        if cx.requests.is_busy() || now < self.at {
            return Transition::Stay;
        }
        match self.plan {
            Plan::Read if self.sees_stale(cx, now) => self.overwrite(cx, now, true),
            Plan::Read if reads => cx.read(now, timeout),
            Plan::Read if eligible => create(cx, now, None),
            Plan::Acquire { expected } if eligible => create(cx, now, expected),
            // A create of ours, given up and stored after all, keeps those out who may acquire.
            Plan::Acquire { expected } if is_own(cx, expected) => return Transition::StopStandby,
            Plan::Read | Plan::Acquire { .. } => self.wait_for_change(cx, now),
        }
        Transition::Stay
    }

    /// Whether it has received all renewals, and the last one has not changed for its holder's
    /// lease.
    fn sees_stale(&self, cx: &Context, now: Instant) -> bool {
        let other = cx.observed.last_seen().is_some_and(|seen| !cx.is_mine(&seen.entry));
        let news = cx.observed.vacancy().is_some() || self.read_again || self.retries.is_some();
        let doubt = self.recheck && cx.capabilities.expires_entries;
        other && !news && !doubt && cx.coverage == Coverage::Full && cx.is_stale(now)
    }

    /// Its holder's lease has ended by our own clock: write over it, without a read, which all
    /// standbys would send at this instant. If it has changed unseen, the write is refused.
    fn overwrite(&mut self, cx: &mut Context, now: Instant, woken: bool) {
        let Some(revision) = cx.observed.last_seen().map(|seen| seen.revision) else { return };
        cx.record_vacancy(now, Some((revision, Tombstone::Expired)), Some(revision), false);
        self.schedule_acquire(cx, now, woken);
    }

    /// A hint suggests a read at `soon`, within `spread`, or hints have begun or ended.
    pub fn read_soon(&mut self, cx: &Context, now: Instant, spread: Duration, soon: Instant) {
        self.recheck = true;
        if cx.requests.is_busy() {
            self.read_again = true;
        } else if self.plan == Plan::Read && self.at > now + spread {
            // Drawn once: the least of many draws would make a storm of requests from a storm of
            // hints.
            self.at = soon.max(self.not_before);
        }
    }

    /// It takes part from now on: it reads first, at `at`, as what it knows may be old.
    pub fn becomes_eligible(&mut self, at: Instant) {
        self.plan = Plan::Read;
        self.at = self.at.min(at).max(self.not_before);
    }

    /// Its turn may have come, or be over. While a request is in flight, too: where a hint has
    /// planned meanwhile, the response plans nothing.
    pub fn turn_changes(&mut self, cx: &mut Context, now: Instant) {
        if self.is_about_to_acquire() {
            self.schedule_acquire(cx, now, false);
        } else if !cx.requests.is_busy()
            && cx.settings.rank == Rank::Next
            && cx.coverage != Coverage::Full
        {
            let poll = now + handover_poll(cx.common_lease());
            self.at = self.at.min(poll).max(self.not_before);
        }
    }

    /// Another candidate holds the election: wait until that may have changed.
    fn wait_for_change(&mut self, cx: &mut Context, now: Instant) {
        let random = cx.random.f64();
        let lease = cx.settings.timing.lease();
        let stale_at = cx.stale_at();
        let max_lease = cx.capabilities.max_lease;
        let silence_ends = cx.observed.last_seen().map(|seen| {
            let least = cx.scaled(Duration::from_millis(300));
            let slack = (lease / 8).clamp(least, Duration::from_secs(2));
            // What lives longer may be a claim that the lock knows nothing of: then no sign shows
            // its end.
            let life = seen.entry.ttl.min(max_lease.saturating_mul(2));
            stale_at.unwrap_or(seen.at + life + slack.mul_f64(0.5 + random))
        });
        let receives_renewals = cx.coverage == Coverage::Full && cx.capabilities.can_read;
        cx.plan_check(now);
        self.plan = Plan::Read;
        self.deferring_since = None;
        self.retries = None;
        self.resolved = false;
        self.at = match silence_ends {
            _ if self.read_again => now,
            Some(at) if receives_renewals && at > now => {
                self.polls = 0;
                at
            }
            None if receives_renewals => now + lease.mul_f64(0.5 + random),
            _ => {
                let policy = &*cx.settings.backoff;
                let mut delay = delay_of(policy, self.polls, random);
                self.polls = self.polls.saturating_add(1);
                if let Some(rate) = &cx.hint_rate {
                    delay = delay.max(rate.interval(now).mul_f64(0.5 + random));
                }
                if cx.settings.rank == Rank::Next {
                    delay = delay.min(handover_poll(cx.common_lease()));
                }
                // Whoever only watches tells others that a leader is fresh: it has to see a renewal
                // within each lease, or second.
                if !cx.settings.eligible
                    && let Some(leader) = &cx.leader
                {
                    delay = delay.min(leader.lease.max(COMMON_MIN_LEASE) / 3);
                }
                let at = now + delay.max(Duration::from_millis(10));
                stale_at.filter(|stale_at| *stale_at > now).map_or(at, |stale_at| at.min(stale_at))
            }
        }
        .max(self.not_before);
        self.read_again = false;
    }

    /// The entry is vacant: acquire it after a delay. `woken`: others learned of it at the same
    /// moment.
    fn schedule_acquire(&mut self, cx: &mut Context, now: Instant, woken: bool) {
        let delay = cx.acquire_delay(woken);
        let (Some(delay), Some(vacancy)) = (delay, cx.observed.vacancy()) else {
            return self.wait_for_change(cx, now);
        };
        self.polls = 0;
        let since = &mut self.deferring_since;
        self.at = delay.ends(now, vacancy.first_seen, since, self.not_before);
        self.plan = Plan::Acquire { expected: vacancy.revision() };
    }

    pub fn on_written(
        &mut self,
        cx: &mut Context,
        now: Instant,
        request: &InFlightRequest,
        result: Result<Revision, LockFailure>,
    ) -> Transition {
        let RequestKind::Write { number } = request.kind else { return Transition::Stay };
        let known =
            !matches!(&result, Err(failure) if failure.kind == LockErrorKind::OutcomeUnknown);
        let write = cx.requests.in_doubt(number);
        let wait = write.and_then(|write| write.wait.as_deref().copied());
        if known {
            cx.requests.resolve(number, result.is_ok());
        }
        if let (Err(_), Some(wait)) = (&result, wait) {
            cx.observed.record_refused_create(&wait);
        }
        let learned_at = cx.observed.learned_at;
        let heard_meanwhile = learned_at > request.sent;
        if let (Ok(created), Some(wait)) = (&result, wait)
            && !(learned_at >= request.sent && cx.observed.newest_revision() > *created)
        // superseded before the response came
        {
            let then = (request.sent, request.seen_leases_end);
            let wait = cx.observed.cool_down_of_stored(now, wait, then, &cx.capabilities);
            return Transition::Hold(AcquiredEntry {
                created: *created,
                number,
                sent: request.sent,
                wait,
            });
        }
        if cx.stopping {
            return Transition::StopStandby;
        }
        if heard_meanwhile {
            return Transition::Stay; // a hint has brought more, and planned
        }
        let kind = result.map_or_else(|failure| failure.kind, |_| LockErrorKind::OutcomeUnknown);
        let reads = cx.capabilities.can_read;
        let random = cx.random.f64();
        match kind {
            LockErrorKind::Conflict if !reads => self.wait_for_change(cx, now),
            LockErrorKind::Conflict if cx.health.conflicts_last() => {
                self.try_again_later(cx, now, Some(Plan::Read));
            }
            LockErrorKind::Conflict => {
                // The winner's create is on its way to us as a hint; else read. A create of ours in
                // doubt is resolved at once, but only once: what refuses us may continue refusing.
                let resolves = cx.requests.has_in_doubt();
                let at_once = resolves && !std::mem::replace(&mut self.resolved, true);
                let wait = if at_once { 0.0 } else { 0.25 * (0.5 + random) };
                self.plan = Plan::Read;
                self.at = now + cx.scaled(Duration::from_secs_f64(wait));
            }
            // The lock is slow for the whole fleet, perhaps: each standby has sent one write.
            LockErrorKind::OutcomeUnknown if reads && cx.overwrites_short_lease(request.over) => {
                self.back_off(cx, now);
            }
            // The same create again: if the first one was applied, the second one is refused, and a
            // read shows it.
            LockErrorKind::OutcomeUnknown => self.try_again_later(cx, now, None),
            _ => self.try_again_later(cx, now, Some(Plan::Read)),
        }
        Transition::Stay
    }

    /// The lock has said whether it would accept a write.
    pub fn on_checked(&mut self, cx: &mut Context, now: Instant) {
        cx.plan_check(now);
        if std::mem::take(&mut self.read_again) {
            self.at = self.at.min(now);
        }
        self.turn_changes(cx, now);
    }

    /// After a few quick attempts the policy decides, as for polls: an outage must not make a storm
    /// of a fleet.
    fn try_again_later(&mut self, cx: &mut Context, now: Instant, plan: Option<Plan>) {
        let fresh = cx.retries();
        let retries = self.retries.get_or_insert(fresh);
        let delay = retries.delay();
        let is_write = plan.is_none();
        let mut delay = if is_write { cx.settings.timing.scaled(delay) } else { delay };
        if let Some(attempt) = retries.attempts_at_maximum().checked_sub(1) {
            let random = cx.random.f64();
            delay = delay.max(delay_of(&*cx.settings.backoff, attempt, random));
        }
        self.at = (now + delay).max(self.not_before);
        if let Some(plan) = plan {
            self.plan = plan;
        }
    }

    /// Reads once the policy has a standby poll: for a lease below a second, a few quick attempts
    /// of each standby are a storm at each pause of the lock.
    fn back_off(&mut self, cx: &mut Context, now: Instant) {
        let random = cx.random.f64();
        let delay = delay_of(&*cx.settings.backoff, self.polls, random);
        self.polls = self.polls.saturating_add(1);
        self.at = (now + delay).max(self.not_before);
        self.plan = Plan::Read;
    }

    pub fn on_read(
        &mut self,
        cx: &mut Context,
        now: Instant,
        sent: Instant,
        result: Result<Reading, LockFailure>,
    ) -> Transition {
        let heard_meanwhile = cx.observed.learned_at > sent;
        let full = cx.coverage == Coverage::Full;
        self.recheck &= result.is_err();
        match result {
            Err(_) if heard_meanwhile => {}
            Err(_) if cx.has_overwritten_short_lease() => self.back_off(cx, now),
            Err(_) => self.try_again_later(cx, now, Some(Plan::Read)),
            // The hints that came meanwhile are newer than what was read, and have planned.
            Ok(_) if heard_meanwhile => {}
            Ok(Reading::Empty { proof }) => {
                cx.record_vacancy(now, None, None, proof);
                self.schedule_acquire(cx, now, full);
            }
            Ok(Reading::Found(record)) => {
                let revision = record.revision;
                let mine = cx.own_mark_in(&record).is_some();
                let source = Source { from_hint: false, on_standby: true };
                let held = cx.record(now, record, None, source);
                if mine {
                    self.adopt_own_entry(cx, now, revision);
                } else if held && cx.is_stale(now) {
                    self.overwrite(cx, now, full);
                } else if held {
                    self.wait_for_change(cx, now);
                } else {
                    self.schedule_acquire(cx, now, full);
                }
            }
        }
        Transition::Stay
    }

    /// A write that is newer than all known has been stored.
    pub fn on_stored(
        &mut self,
        cx: &mut Context,
        now: Instant,
        record: Record,
        previous: Option<Revision>,
    ) {
        let revision = record.revision;
        let mine = cx.own_mark_in(&record).is_some();
        let source = Source { from_hint: true, on_standby: true };
        self.recheck = false;
        match (cx.record(now, record, previous, source), mine) {
            (true, true) => self.adopt_own_entry(cx, now, revision),
            (true, false) => {
                cx.repeat_notice(now);
                self.wait_for_change(cx, now);
            }
            (false, _) => self.schedule_acquire(cx, now, true),
        }
    }

    /// The entry is our own: a write that we had given up was applied after all. No other candidate
    /// may lead by it, so it is as good as released, with what that write had to wait.
    fn adopt_own_entry(&mut self, cx: &mut Context, now: Instant, revision: Revision) {
        if let Some(mark) = cx.observed.last_seen().and_then(|seen| seen.entry.mark.clone()) {
            cx.record_own_entry(now, revision, &mark);
            cx.requests.resolve_all(mark.write.number);
        }
        let left = cx.own_cool_down(now);
        cx.observed.adopt_own_entry(now, revision, cx.settings.nonce, left);
        self.at = now.max(self.not_before);
        self.plan = Plan::Acquire { expected: Some(revision) };
    }
}

/// Whether the entry of this revision is our own.
fn is_own(cx: &Context, revision: Option<Revision>) -> bool {
    let seen = cx.observed.last_seen().filter(|seen| Some(seen.revision) == revision);
    seen.is_some_and(|seen| cx.is_mine(&seen.entry))
}

/// Creates the entry over `expected`.
fn create(cx: &mut Context, now: Instant, expected: Option<Revision>) {
    let wait = cx.observed.cool_down(now, expected, &cx.settings, &cx.capabilities);
    let life = cx.entry_life(wait.left(now));
    let timeout = cx.settings.timing.request_timeout();
    let (token, wait, may_be_asked) = (None, Some(wait), false);
    cx.write(now, WriteDraft { expected, token, since: now, life, timeout, wait, may_be_asked });
}
