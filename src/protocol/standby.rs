//! Standing by: hearing or polling, and asking when the office is vacant.

use std::time::Duration;

use super::backoff::delay_of;
use super::elector::{Campaign, Phase};
use super::requests::{Draft, Kind, Outstanding};
use super::retries::Retries;
use super::stampede;
use super::types::Failure;
use super::vacancy::{Vacancy, Wait};
use crate::lock::{
    Capabilities, Content, Coverage, LockErrorKind, Mark, Reading, Revision, Tombstone,
};
use crate::time::clock::Instant;
use crate::time::timing::with_drift;

/// Over how long stand-bys that hear of a change, but not of each other, spread their looks.
const PARTIAL_SPREAD: Duration = Duration::from_millis(250);
/// The same where they hear each other.
const FULL_SPREAD: Duration = Duration::from_millis(20);
/// How long, at the most, a candidate without evidence lets the others go first.
const GIVE_WAY: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// See who holds the election.
    Look,
    /// Create the entry.
    Ask { expected: Option<Revision> },
}

#[derive(Debug, Clone)]
pub(super) struct Standby {
    pub at: Instant,
    pub plan: Plan,
    /// Asks no earlier than this: a holder that gave up its office lets others go first.
    pub not_before: Instant,
    /// Polls that found the same holder.
    pub polls: u32,
    pub retries: Option<Retries>,
    /// A create in doubt has been looked for at once, since somebody else was last seen to hold the election.
    pub settled: bool,
    /// Hints began while a look was under way: what it saw may be old.
    pub look_again: bool,
}

impl Campaign {
    pub(super) fn stand_by(&mut self, at: Instant, plan: Plan) {
        self.phase = Phase::Standby(Standby {
            at,
            plan,
            not_before: at,
            polls: 0,
            retries: None,
            settled: false,
            look_again: false,
        });
    }

    fn standby(&mut self) -> Option<&mut Standby> {
        match &mut self.phase {
            Phase::Standby(standby) => Some(standby),
            _ => None,
        }
    }

    pub(super) fn proceed_standby(&mut self, now: Instant) {
        let timeout = self.settings.timing.attempt();
        let (reads, stands) = (self.capabilities.can_read, self.settings.stands);
        let Phase::Standby(standby) = &mut self.phase else { return };
        if self.outstanding.is_some() || now < standby.at {
            return;
        }
        match standby.plan {
            Plan::Look if reads => self.request_read(now, timeout),
            Plan::Look if stands => self.ask(now, None),
            Plan::Ask { expected } if stands => self.ask(now, expected),
            Plan::Look | Plan::Ask { .. } => self.rest(now),
        }
    }

    /// A hint suggests looking, or hints have begun or ended.
    pub(super) fn look_soon(&mut self, now: Instant) {
        let spread = match self.coverage {
            Coverage::Full => FULL_SPREAD,
            Coverage::Partial | Coverage::None => PARTIAL_SPREAD,
        };
        let soon = now + spread.mul_f64(self.random.f64());
        let looking = self.outstanding.is_some();
        match &mut self.phase {
            Phase::Standby(standby) if looking => standby.look_again = true,
            // Drawn once: the least of many draws would make a storm of requests from a storm of hints.
            Phase::Standby(standby) if standby.plan == Plan::Look && standby.at > now + spread => {
                standby.at = soon.max(standby.not_before);
            }
            Phase::Office(office) => office.check = true,
            _ => {}
        }
    }

    /// Somebody holds the election: wait until that may have changed.
    pub(super) fn rest(&mut self, now: Instant) {
        let random = self.random.f64();
        let lease = self.settings.timing.lease();
        let outlived_at = self.outlived_at();
        let max_lease = self.capabilities.max_lease;
        let silence_ends = self.last_seen.as_ref().map(|seen| {
            let slack = (lease / 8).clamp(Duration::from_millis(300), Duration::from_secs(2));
            // What lives longer may be a claim that the lock knows nothing of: then no sign tells its end.
            let life = seen.entry.ttl.min(max_lease.saturating_mul(2));
            outlived_at.unwrap_or(seen.at + life + slack.mul_f64(0.5 + random))
        });
        let hears_renewals = self.coverage == Coverage::Full && self.capabilities.can_read;
        let Phase::Standby(standby) = &mut self.phase else { return };
        standby.plan = Plan::Look;
        standby.retries = None;
        standby.settled = false;
        standby.at = match silence_ends {
            _ if standby.look_again => now,
            Some(at) if hears_renewals && at > now => {
                standby.polls = 0;
                at
            }
            None if hears_renewals => now + lease.mul_f64(0.5 + random),
            _ => {
                let policy = &mut *self.settings.backoff;
                let delay = delay_of(policy, standby.polls, random);
                standby.polls = standby.polls.saturating_add(1);
                let at = now + delay.max(Duration::from_millis(10));
                outlived_at
                    .filter(|outlived| *outlived > now)
                    .map_or(at, |outlived| at.min(outlived))
            }
        }
        .max(standby.not_before);
        standby.look_again = false;
    }

    /// On a lock that frees nothing: when the entry last seen is as good as free, if it does not change.
    fn outlived_at(&self) -> Option<Instant> {
        let seen = self.last_seen.as_ref().filter(|_| !self.capabilities.expires_entries)?;
        Some(seen.right_ends(self.capabilities.max_lease, false))
    }

    /// Whether that is so.
    pub(super) fn has_outlived(&self, now: Instant) -> bool {
        self.outlived_at().is_some_and(|outlived| now >= outlived)
    }

    /// Whether the next thing to do is to write.
    pub(super) fn is_about_to_ask(&self) -> bool {
        matches!(&self.phase, Phase::Standby(Standby { plan: Plan::Ask { .. }, .. }))
    }

    /// Nobody holds it: ask after a delay. `woken`: others learned of it at the same moment.
    pub(super) fn plan_to_ask(&mut self, now: Instant, woken: bool) {
        if !self.settings.stands {
            return self.rest(now);
        }
        let Some(vacancy) = &self.vacancy else { return self.rest(now) };
        let uniform = self.random.f64();
        let mut delay = Duration::ZERO;
        if woken {
            delay += stampede::delay(self.hearing.window(), self.settings.priority, uniform);
        }
        let circumstances = self.circumstances(now);
        if vacancy.is_unknown(&circumstances) {
            delay += (circumstances.max_lease / 4).min(GIVE_WAY).mul_f64(0.5 + uniform / 2.0);
        }
        let mut at = now + delay;
        let was_mine =
            self.last_seen.as_ref().is_some_and(|s| s.entry.identity == self.settings.identity);
        if vacancy.is_vanished() && self.last_seen.is_some() && !was_mine {
            at = at.max(vacancy.first_seen + self.settings.takeover_delay + delay);
        }
        let expected = vacancy.tombstone.as_ref().map(|(revision, _)| *revision);
        if let Some(standby) = self.standby() {
            standby.polls = 0;
            standby.at = at.max(standby.not_before);
            standby.plan = Plan::Ask { expected };
        }
    }

    fn ask(&mut self, now: Instant, expected: Option<Revision>) {
        let blind = Vacancy {
            tombstone: None,
            previous: None,
            first_seen: now,
            empty_is_proof: self.capabilities.empty_is_proof,
        };
        let mut wait = self
            .vacancy
            .as_ref()
            .filter(|vacancy| vacancy.tombstone.as_ref().map(|(r, _)| *r) == expected)
            .unwrap_or(&blind)
            .wait(&self.circumstances(now), &self.conceded);
        wait.not_before(self.work_may_last_until);
        let left = wait.until.saturating_since(now).max(wait.after_create);
        let life = self.life(left);
        let timeout = self.settings.timing.attempt();
        self.request_write(
            now,
            Draft { expected, token: None, since: now, life, timeout, wait: Some(wait) },
        );
    }

    /// How long an entry must live whose writer still has to wait this long: at least until it may lead, so that the
    /// expiry of its entry proves the end of everyone before it as well.
    pub(super) fn life(&self, left: Duration) -> Duration {
        let life = self.settings.timing.lease().max(with_drift(left));
        Duration::from_millis(
            u64::try_from(life.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX),
        )
    }

    pub(super) fn create_answered(
        &mut self,
        now: Instant,
        outstanding: Outstanding,
        answer: Result<Revision, Failure>,
    ) {
        let Kind::Write { number } = outstanding.kind else { return };
        let known =
            !matches!(&answer, Err(failure) if failure.kind == LockErrorKind::OutcomeUnknown);
        let wait = self.pending.iter().find(|p| p.number == number);
        let wait = wait.and_then(|p| p.wait.as_deref().copied());
        if known {
            self.pending.retain(|p| p.number != number);
        }
        if let (Err(_), Some(wait)) = (&answer, wait) {
            // A refusal may be wrong: a create that landed can be reported as somebody else's, and one that was sent twice
            // can land after its refusal. Should the entry turn out to be ours, this is still to be waited for.
            self.own_cool_down_ends = self.own_cool_down_ends.max(wait.until);
            self.refused_wait = self.refused_wait.max(wait.after_create);
        }
        let heard_meanwhile = self.learned_at > outstanding.sent;
        if let (Ok(revision), Some(wait)) = (&answer, wait)
            && !(self.learned_at >= outstanding.sent && self.newest_revision() > *revision)
        // deposed before the answer came
        {
            let mut wait = self.blind(wait);
            // Both may have been at one instant.
            if heard_meanwhile || self.rights_seen_end > outstanding.rights_seen_end {
                // An entry that came and went while the create was under way: purged, as it left nothing that refuses us.
                wait.not_before(self.rights_seen_end);
            }
            return self.take_office(now, *revision, outstanding.sent, wait);
        }
        if self.stopping {
            return self.leave_standby(now);
        }
        if heard_meanwhile {
            return; // a hint has told more, and planned
        }
        let kind = answer.map_or_else(|failure| failure.kind, |_| LockErrorKind::OutcomeUnknown);
        let reads = self.capabilities.can_read;
        let random = self.random.f64();
        let settles = !self.pending.is_empty();
        let refused_for_long = self.refusals.failure().is_some();
        let Phase::Standby(standby) = &mut self.phase else { return };
        match kind {
            LockErrorKind::Conflict if !reads => self.rest(now),
            LockErrorKind::Conflict if refused_for_long => {
                self.try_again_later(now, Some(Plan::Look));
            }
            LockErrorKind::Conflict => {
                // The winner's create is on its way to us as a hint; else look. A create of ours in doubt is settled at
                // once, but only once: what refuses us may go on refusing.
                let at_once = settles && !std::mem::replace(&mut standby.settled, true);
                let wait = if at_once { 0.0 } else { 0.25 * (0.5 + random) };
                standby.plan = Plan::Look;
                standby.at = now + Duration::from_secs_f64(wait);
            }
            // The same create again: if the first one was applied, the second one is refused, and a look tells.
            LockErrorKind::OutcomeUnknown => self.try_again_later(now, None),
            _ => self.try_again_later(now, Some(Plan::Look)),
        }
    }

    /// What a wait that was reckoned without reading comes to, now that the lock has told what emptiness shows.
    fn blind(&self, mut wait: Wait) -> Wait {
        let Capabilities { can_read: reads, empty_is_proof, max_lease, .. } = self.capabilities;
        if !reads && !empty_is_proof && self.vacancy.is_none() {
            wait.after_create = wait.after_create.max(with_drift(max_lease));
        }
        wait
    }

    fn try_again_later(&mut self, now: Instant, plan: Option<Plan>) {
        let fresh = self.retries();
        let Some(standby) = self.standby() else { return };
        let delay = standby.retries.get_or_insert(fresh).next().unwrap_or(Duration::from_secs(1));
        standby.at = (now + delay).max(standby.not_before);
        if let Some(plan) = plan {
            standby.plan = plan;
        }
    }

    pub(super) fn standby_read(
        &mut self,
        now: Instant,
        sent: Instant,
        answer: Result<Reading, Failure>,
    ) {
        let heard_meanwhile = self.learned_at > sent;
        let full = self.coverage == Coverage::Full;
        match answer {
            Err(_) if heard_meanwhile => {}
            Err(_) => self.try_again_later(now, Some(Plan::Look)),
            // The hints that came meanwhile are newer than what was read, and have planned.
            Ok(_) if heard_meanwhile => {}
            Ok(Reading::Empty { proof }) => {
                self.learn_vacancy(now, None, None, proof);
                self.plan_to_ask(now, full);
            }
            Ok(Reading::Found(record)) => {
                let revision = record.revision;
                let mine = matches!(&record.content, Content::Held(entry) if self.is_mine(entry));
                let entry = self.learn(now, record, None, false);
                if mine {
                    self.take_up_own(now, revision);
                } else if entry && self.has_outlived(now) {
                    // Unchanged to this day: its holder's right has ended by our own clock.
                    let expired = Some((revision, Tombstone::Expired));
                    self.learn_vacancy(now, expired, Some(Some(revision)), false);
                    self.plan_to_ask(now, full);
                } else if entry {
                    self.rest(now);
                } else {
                    self.plan_to_ask(now, full);
                }
            }
        }
    }

    /// The entry is our own: a write that we had given up was applied after all. Nobody else may lead by it, so it is
    /// as good as released, with what that write had to wait.
    pub(super) fn take_up_own(&mut self, now: Instant, revision: Revision) {
        if let Some(mark) = self.last_seen.as_ref().and_then(|seen| seen.entry.mark.clone()) {
            self.find_own(now, revision, &mark);
        }
        let left = self.own_wait(now);
        // Looked at again, it must not look as if nothing had to be waited for.
        self.own_cool_down_ends = self.own_cool_down_ends.max(now + left);
        self.refused_wait = Duration::ZERO;
        self.pending.clear();
        self.vacancy = Some(Vacancy {
            tombstone: Some((revision, Tombstone::Released { by: self.settings.nonce, left })),
            previous: None,
            first_seen: now,
            empty_is_proof: false,
        });
        if let Some(standby) = self.standby() {
            standby.at = now.max(standby.not_before);
            standby.plan = Plan::Ask { expected: Some(revision) };
        }
    }

    /// Our own entry stands there. A create over nothing may have landed at any time until now, after others came and went
    /// without a trace: then they are waited for from now on.
    pub(super) fn find_own(&mut self, now: Instant, revision: Revision, mark: &Mark) {
        let number = mark.write.number;
        let created = mark.token.is_none() && self.known_create != Some(revision);
        if !created || number > self.last_over_nothing {
            return;
        }
        self.known_create = Some(revision);
        // Where whatever goes leaves a trace, a create in doubt has landed on what it was sent over.
        let in_doubt = self.pending.iter().any(|pending| pending.number == number);
        if !(in_doubt && self.capabilities.empty_is_proof) {
            let full = self.without_evidence(now);
            self.own_cool_down_ends = self.own_cool_down_ends.max(now + full);
        }
        // An entry that came and went meanwhile without a trace: purged.
        self.own_cool_down_ends = self.own_cool_down_ends.max(self.rights_seen_end);
    }

    /// What is waited for where nothing is known about who wrote before.
    fn without_evidence(&self, now: Instant) -> Duration {
        let nothing =
            Vacancy { tombstone: None, previous: None, first_seen: now, empty_is_proof: false };
        nothing.wait(&self.circumstances(now), &self.conceded).after_create
    }

    /// What our own writes so far had to wait for.
    pub(super) fn own_wait(&self, now: Instant) -> Duration {
        let pending = self.pending.iter().filter_map(|p| p.wait.as_deref());
        pending
            .map(|wait| wait.until.saturating_since(now).max(wait.after_create))
            .chain([self.own_cool_down_ends.saturating_since(now), self.refused_wait])
            .max()
            .unwrap_or_default()
    }
}
