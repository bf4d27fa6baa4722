//! What a candidate has observed: entries, vacancies, step-downs, and what its own writes had to
//! wait for.

use std::sync::Arc;
use std::time::Duration;

use super::cool_down::{
    CoolDownWait, KnownStepDown, NotBefore, Observed, SeenEntry, Vacancy, WaitReason,
    max_tenure_of_choria,
};
use super::crash_release::CRASHED;
use super::requests::InFlightRequest;
use super::types::{Leader, Settings};
use crate::lock::{
    Capabilities, Content, Entry, Mark, Nonce, Record, Revision, Tombstone, WriteId,
};
use crate::time::clock::Instant;
use crate::time::timing::{whole_millis, with_drift};

/// What a candidate knows of the entry, in any phase.
#[derive(Debug, Clone)]
pub(super) struct Observations {
    pub last_seen: Option<SeenEntry>,
    /// When the leases of all entries of others that were seen are over.
    pub seen_leases_end: Instant,
    /// No create of ours leads before this, whatever a vacancy shows.
    pub barrier: NotBefore,
    pub vacancy: Option<Box<Vacancy>>,
    /// When what is known about the entry was last learned.
    pub learned_at: Instant,
    pub step_downs: Box<[KnownStepDown]>,
    /// When no holder before us can be leading any more, by what our last entry had to wait.
    pub own_cool_down_ends: Instant,
    /// What a create that was refused had to wait for, should it turn out to be in the lock.
    pub refused_from_create: Duration,
    /// The number of our last create over nothing: no create over something before it is under way.
    pub last_over_nothing: u64,
    /// Where a create of ours is known to have landed; the two above are what it had to wait for.
    pub known_create: Option<Revision>,
    /// Until when an entry of ours may be in the lock, whether we know of it or not.
    pub entry_may_stand_until: Instant,
}

impl Observations {
    /// How many step-downs are remembered.
    const MAX_STEP_DOWNS: usize = 16;

    pub fn new() -> Self {
        Self {
            last_seen: None,
            seen_leases_end: Instant::ORIGIN,
            barrier: NotBefore::new(Instant::ORIGIN, WaitReason::NothingToWaitFor),
            vacancy: None,
            learned_at: Instant::ORIGIN,
            step_downs: Box::default(),
            own_cool_down_ends: Instant::ORIGIN,
            refused_from_create: Duration::ZERO,
            last_over_nothing: 0,
            known_create: None,
            entry_may_stand_until: Instant::ORIGIN,
        }
    }

    pub fn last_seen(&self) -> Option<&SeenEntry> {
        self.last_seen.as_ref()
    }

    pub fn seen_leases_end(&self) -> Instant {
        self.seen_leases_end
    }

    pub fn vacancy(&self) -> Option<&Vacancy> {
        self.vacancy.as_deref()
    }

    pub fn learned_at(&self) -> Instant {
        self.learned_at
    }

    /// The newest revision known of.
    pub fn newest_revision(&self) -> Revision {
        let seen = self.last_seen.as_ref().map(|seen| seen.revision);
        seen.max(self.vacancy().and_then(Vacancy::revision)).unwrap_or(Revision(0))
    }

    /// What comes is older than what is known, or the entry of `own`, a write from before another's
    /// entry was seen: a backup was restored or put back, or it is late. Or what is known was
    /// forged, as anybody may state a lease in a hint: where the lock has a longest lease, none
    /// counts for longer.
    pub fn notice_set_back(
        &mut self,
        at: Instant,
        revision: Revision,
        own: Option<WriteId>,
        capabilities: &Capabilities,
    ) {
        let Capabilities { max_lease, expires_entries, .. } = *capabilities;
        let is_before = |WriteId { nonce, number }| {
            let seen = self.last_seen.as_ref();
            let other = seen.filter(|seen| seen.term().is_none_or(|(holder, _)| holder != nonce));
            other.is_some_and(|seen| seen.at.as_nanos() > number)
        };
        if revision < self.newest_revision() || own.is_some_and(is_before) {
            let longest = with_drift(max_lease).max(max_tenure_of_choria(max_lease));
            let ends = self.seen_leases_end;
            let ends = if expires_entries { ends.min(at + longest) } else { ends };
            self.barrier = self.barrier.max(NotBefore::new(ends, WaitReason::SeenLease));
        }
    }

    /// Adds what a tombstone replaced, which a read does not show. An entry with its revision is
    /// the very one that the lock called expired: what that one replaced is not the last write.
    pub fn record_previous(&mut self, record: &Record, previous: Option<Revision>) {
        if let Some(known) = &mut self.vacancy
            && known.tombstone.as_ref().is_some_and(|t| t.0 == record.revision)
            && matches!(record.content, Content::Vacant(_))
        {
            known.previous = known.previous.or(previous);
        }
    }

    /// Remembers an entry, and returns its holder.
    pub fn record_entry(
        &mut self,
        at: Instant,
        revision: Revision,
        entry: Entry,
        from_hint: bool,
        is_me: bool,
        capabilities: &Capabilities,
    ) -> Leader {
        self.learned_at = self.learned_at.max(at);
        let Capabilities { max_lease, expires_entries: expires, .. } = *capabilities;
        let seen = match self.last_seen.take() {
            // Of one write: two histories of a store may give out one revision.
            Some(seen) if seen.revision == revision && seen.is_of(&entry) => seen,
            before => {
                let max_lease_ms = whole_millis(max_lease);
                let seen = SeenEntry { revision, entry, at, from_hint, max_lease_ms };
                SeenEntry::after(before, seen)
            }
        };
        if !is_me {
            let ends = seen.lease_ends(max_lease, expires);
            self.seen_leases_end = self.seen_leases_end.max(ends);
        }
        self.vacancy = None;
        let Entry { identity, mark, ttl: life, advertisement } = &seen.entry;
        let lease = mark.as_ref().map_or((*life).min(max_lease), |mark| mark.lease);
        let leader = Leader {
            identity: Arc::clone(identity),
            token: seen.term().map(|(_, token)| token),
            since_unix_ms: mark.as_ref().map(|mark| mark.since_unix_ms),
            advertisement: advertisement.clone(),
            last_seen: seen.at,
            lease,
            is_me,
            priority: mark.as_ref().and_then(|mark| mark.moves.priority),
        };
        self.last_seen = Some(seen);
        leader
    }

    /// Remembers a tombstone, and what it replaced as far as the lock states it.
    pub fn record_tombstone(
        &mut self,
        at: Instant,
        revision: Revision,
        tombstone: Tombstone,
        previous: Option<Revision>,
    ) {
        // The entry itself, which the lock calls expired: nothing has followed it.
        let itself = tombstone == Tombstone::Expired
            && self.last_seen.as_ref().is_some_and(|s| s.revision == revision);
        let previous = if itself { Some(revision) } else { previous };
        self.record_vacancy(at, Some((revision, tombstone)), previous, false);
    }

    /// Remembers that the entry is vacant.
    pub fn record_vacancy(
        &mut self,
        at: Instant,
        tombstone: Option<(Revision, Tombstone)>,
        previous: Option<Revision>,
        empty_is_proof: bool,
    ) {
        self.learned_at = self.learned_at.max(at);
        // A lock may read less into a tombstone than before, as PostgreSQL does after its start.
        let same = |known: &Vacancy| known.tombstone == tombstone;
        match &mut self.vacancy {
            Some(known) if same(known) => {
                known.previous = known.previous.or(previous);
                known.empty_is_proof = empty_is_proof;
            }
            // A tombstone in the place of another: there was no holder between them, so it shows
            // nothing that the first did not.
            Some(known) if known.is_followed_by(previous) => {
                let revision = tombstone.map(|(revision, _)| revision);
                if let (Some(known), Some(revision)) = (&mut known.tombstone, revision) {
                    known.0 = revision;
                }
            }
            _ => {
                self.vacancy =
                    Some(Box::new(Vacancy { tombstone, previous, first_seen: at, empty_is_proof }));
            }
        }
    }

    /// Remembers the step-down of a holder.
    pub fn record_step_down(&mut self, step_down: KnownStepDown) {
        let mut known = std::mem::take(&mut self.step_downs).into_vec();
        if known.len() == Self::MAX_STEP_DOWNS {
            known.remove(0);
        }
        known.push(step_down);
        self.step_downs = known.into();
    }

    /// What the wait of a create depends on.
    fn observed(
        &self,
        now: Instant,
        settings: &Settings,
        capabilities: &Capabilities,
    ) -> Observed<'_> {
        Observed {
            now,
            nonce: settings.nonce,
            max_lease: capabilities.max_lease,
            policy: settings.cool_down,
            with_choria: settings.with_choria,
            expires: capabilities.expires_entries,
            last_seen: self.last_seen.as_ref(),
            seen_leases_end: self.seen_leases_end,
            step_downs: &self.step_downs,
            barrier: self.barrier,
        }
    }

    /// The wait of a create over `expected` that is sent now.
    pub fn cool_down(
        &self,
        now: Instant,
        expected: Option<Revision>,
        settings: &Settings,
        capabilities: &Capabilities,
    ) -> CoolDownWait {
        let blind = Vacancy::empty(now, capabilities.empty_is_proof);
        let known = self.vacancy().filter(|vacancy| vacancy.revision() == expected);
        self.observed(now, settings, capabilities).cool_down(known.unwrap_or(&blind))
    }

    /// What `wait` comes to now that `request`, its create, is known to be stored.
    pub fn cool_down_of_stored(
        &self,
        now: Instant,
        request: &InFlightRequest,
        mut wait: CoolDownWait,
        capabilities: &Capabilities,
    ) -> CoolDownWait {
        // What was reckoned without reading, now that the lock has stated what emptiness shows.
        let Capabilities { can_read: reads, empty_is_proof, max_lease, .. } = *capabilities;
        let is_blind = !reads && !empty_is_proof && self.vacancy.is_none();
        // A longer lease may have been allowed before this create was sent.
        if is_blind || max_lease > wait.max_lease {
            wait.from_create = wait.from_create.max(with_drift(max_lease));
        }
        // Both may have been at one instant.
        if self.learned_at > request.sent || self.seen_leases_end > request.seen_leases_end {
            // An entry that came and went while the create was under way: purged, as it left
            // nothing that refuses us.
            wait = wait.at_least(NotBefore::new(self.seen_leases_end, WaitReason::SeenLease));
        }
        wait.begins(now);
        for step_down in &self.step_downs {
            wait.on_step_down(step_down);
        }
        wait
    }

    /// What our own writes so far had to wait for, with those in doubt.
    pub fn own_cool_down<'a>(
        &self,
        now: Instant,
        in_doubt: impl Iterator<Item = &'a CoolDownWait>,
    ) -> Duration {
        in_doubt
            .map(|wait| wait.left(now))
            .chain([self.own_cool_down_ends.saturating_since(now), self.refused_from_create])
            .max()
            .unwrap_or_default()
    }

    /// When no holder before us can be leading any more, by what our last entry had to wait.
    pub fn own_cool_down_ends(&self) -> Instant {
        self.own_cool_down_ends
    }

    /// The cool-down of the entry that we hold ends then.
    pub fn set_own_cool_down(&mut self, ends: Instant) {
        self.own_cool_down_ends = ends;
    }

    fn extend_own_cool_down(&mut self, ends: Instant) {
        self.own_cool_down_ends = self.own_cool_down_ends.max(ends);
    }

    /// A write was sent whose entry lives for `life`. `over_nothing`: the number of such a create.
    pub fn record_write(&mut self, now: Instant, life: Duration, over_nothing: Option<u64>) {
        if let Some(number) = over_nothing {
            self.last_over_nothing = number;
        }
        self.entry_may_stand_until = self.entry_may_stand_until.max(now + life);
    }

    /// A refusal may be wrong: a create that landed can be reported as another candidate's, and one
    /// that was sent twice can land after its refusal. If the entry is ours, this must be waited.
    pub fn record_refused_create(&mut self, wait: &CoolDownWait) {
        self.extend_own_cool_down(wait.not_before.at);
        self.refused_from_create = self.refused_from_create.max(wait.from_create);
    }

    /// Our create was stored: the entry is ours, until the cool-down ends without leading.
    pub fn record_held(&mut self, created: Revision, cool_down_ends: Instant) {
        self.known_create = Some(created);
        self.vacancy = None;
        // A later revision is one of a store that is gone. What follows is newer.
        self.last_seen.take_if(|seen| seen.revision > created);
        self.own_cool_down_ends = cool_down_ends;
        self.refused_from_create = Duration::ZERO;
    }

    /// No other candidate leads before the entry has expired; nor do we, beside our own work.
    pub fn record_running_work(&mut self, deadline: Instant) {
        self.extend_own_cool_down(deadline);
        self.barrier = self.barrier.max(NotBefore::new(deadline, WaitReason::OwnEarlierTerm));
    }

    /// Whether an entry of ours may be in the lock.
    pub fn entry_may_stand(&self, now: Instant) -> bool {
        now < self.entry_may_stand_until
    }

    /// No entry of ours is in the lock any more.
    pub fn record_no_own_entry(&mut self, now: Instant) {
        self.entry_may_stand_until = now;
    }

    /// The entry in the lock is our own. A create over nothing may have landed at any time until
    /// now, after others came and went without a trace: then they are waited for from now on.
    /// `in_doubt`: the outcome of its write is not known.
    pub fn record_own_entry(
        &mut self,
        now: Instant,
        revision: Revision,
        mark: &Mark,
        in_doubt: bool,
        settings: &Settings,
        capabilities: &Capabilities,
    ) {
        let created = mark.token.is_none() && self.known_create != Some(revision);
        if !created || mark.write.number > self.last_over_nothing {
            return;
        }
        self.known_create = Some(revision);
        // Where whatever goes leaves a trace, a create in doubt has landed on what it was sent
        // over.
        if !(in_doubt && capabilities.empty_is_proof) {
            let full = self.observed(now, settings, capabilities).max_tenure_of_unknown();
            self.extend_own_cool_down(now + full);
        }
        // An entry that came and went meanwhile without a trace: purged.
        self.extend_own_cool_down(self.seen_leases_end);
    }

    /// Our own entry counts as released, with what its write still had to wait.
    pub fn adopt_own_entry(&mut self, now: Instant, revision: Revision, by: Nonce, left: Duration) {
        // Read again, it must not seem that nothing had to be waited for.
        self.extend_own_cool_down(now + left);
        self.refused_from_create = Duration::ZERO;
        let released = Tombstone::Released { by, left, cause: None, to: None, pause: None };
        let tombstone = Some((revision, released));
        self.vacancy = Some(Box::new(Vacancy { tombstone, ..Vacancy::empty(now, false) }));
    }
}

/// How the term before ended, as the winner of the next one saw it. Only reported: no decision
/// depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreviousTerm {
    /// Its holder released the entry, after its work had stopped.
    Released,
    /// Its holder released the entry in favour of a successor that it named.
    HandedOver,
    /// A sentinel released the entry of a crashed holder.
    Crashed,
    /// The entry was not renewed.
    Expired,
    /// The holder was evicted, or the entry deleted, or nothing is left of it.
    Deleted,
}

impl PreviousTerm {
    /// The meaning of what is left of its entry.
    pub(super) fn of(tombstone: Option<&Tombstone>) -> Self {
        match tombstone {
            Some(Tombstone::Released { by: Nonce::NOBODY, cause: Some(_), .. }) => Self::Deleted,
            Some(Tombstone::Released { cause, .. }) if cause.as_deref() == Some(CRASHED) => {
                Self::Crashed
            }
            Some(Tombstone::Released { to: Some(_), .. }) => Self::HandedOver,
            Some(Tombstone::Released { .. }) => Self::Released,
            Some(Tombstone::Expired) => Self::Expired,
            Some(Tombstone::Deleted) | None => Self::Deleted,
        }
    }

    /// The value of a label, and of a field of a span.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::HandedOver => "handed_over",
            Self::Crashed => "crashed",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
        }
    }
}
