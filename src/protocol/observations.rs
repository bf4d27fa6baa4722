//! What a candidate has observed: entries, vacancies and step-downs.

use std::sync::Arc;
use std::time::Duration;

use super::crash_release::CRASHED;
use super::types::{Leader, NotBefore, WaitReason};
use crate::lock::{Capabilities, Content, Entry, Nonce, Record, Revision, Token, Tombstone};
use crate::time::clock::Instant;
use crate::time::timing::{three_quarters, whole_millis, with_drift};

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
    /// Where a create of ours is known to have landed, which had to wait until `own_cool_down_ends`
    /// and for `refused_from_create`.
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

    pub fn vacancy(&self) -> Option<&Vacancy> {
        self.vacancy.as_deref()
    }

    /// The newest revision known of.
    pub fn newest_revision(&self) -> Revision {
        let seen = self.last_seen.as_ref().map(|seen| seen.revision);
        seen.max(self.vacancy().and_then(Vacancy::revision)).unwrap_or(Revision(0))
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
        from_hint: bool,
    ) {
        let may_be_old = match tombstone {
            Tombstone::Deleted => true,
            Tombstone::Released { .. } => !from_hint,
            Tombstone::Expired => false,
        };
        // The entry itself, which the lock calls expired: nothing has followed it.
        let itself = tombstone == Tombstone::Expired
            && self.last_seen.as_ref().is_some_and(|s| s.revision == revision);
        let previous = if itself { Some(revision) } else { previous };
        let was_known = self.vacancy().is_some_and(|known| known.revision() == Some(revision));
        self.record_vacancy(at, Some((revision, tombstone)), previous, false);
        if let Some(known) = &mut self.vacancy {
            known.may_be_old = may_be_old && (known.may_be_old || !was_known);
        }
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
                let vacancy = Vacancy { tombstone, previous, ..Vacancy::empty(at, empty_is_proof) };
                self.vacancy = Some(Box::new(vacancy));
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

    /// A write was sent whose entry lives for `life`. `over_nothing`: the number of such a create.
    pub fn record_write(&mut self, now: Instant, life: Duration, over_nothing: Option<u64>) {
        if let Some(number) = over_nothing {
            self.last_over_nothing = number;
        }
        self.entry_may_stand_until = self.entry_may_stand_until.max(now + life);
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

    /// Whether an entry of ours may be in the lock.
    pub fn entry_may_stand(&self, now: Instant) -> bool {
        now < self.entry_may_stand_until
    }

    /// No entry of ours is in the lock any more.
    pub fn record_no_own_entry(&mut self, now: Instant) {
        self.entry_may_stand_until = now;
    }
}

/// The last write of a holder that this candidate knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenEntry {
    pub revision: Revision,
    pub entry: Entry,
    /// No earlier than the lock stored it.
    pub at: Instant,
    /// Received as it was stored, not read some time later.
    pub from_hint: bool,
    /// The lock's longest lease, as known then, in whole milliseconds: it stands in each standby.
    pub max_lease_ms: u64,
}

impl SeenEntry {
    /// `seen`, with the text of the entry before where that is equal: what is kept for long does
    /// not move with each renewal to memory between what is not.
    pub fn after(before: Option<Self>, mut seen: Self) -> Self {
        if let Some(before) = before {
            let (old, new) = (before.entry, &mut seen.entry);
            if old.identity == new.identity {
                new.identity = old.identity;
            }
            if old.advertisement == new.advertisement {
                new.advertisement = old.advertisement;
            }
        }
        seen
    }

    /// The term it belongs to, where its mark states it.
    pub fn term(&self) -> Option<(Nonce, Token)> {
        let mark = self.entry.mark.as_ref()?;
        Some((mark.write.nonce, mark.token.unwrap_or(self.revision.into())))
    }

    /// Whether `entry` is the same write.
    pub fn is_of(&self, entry: &Entry) -> bool {
        let Entry { identity, mark, ttl: life, advertisement: _ } = entry;
        (identity, mark, life) == (&self.entry.identity, &self.entry.mark, &self.entry.ttl)
    }

    /// For how long after its write its writer, and everyone its writer waited for, may lead at
    /// most.
    pub fn lease(&self, max_lease: Duration, lock_expires: bool) -> Duration {
        let lease = self.entry.lease(max_lease, lock_expires);
        let may_be_of_choria = self.entry.mark.is_none() && lock_expires;
        if may_be_of_choria { max_tenure_of_choria(max_lease).max(lease) } else { lease }
    }

    /// Whether the entry lived for that lease on a lock that expires entries: it was no longer than
    /// the longest one of the lock, and is no longer now.
    pub fn lived_its_lease(&self, max_lease: Duration) -> bool {
        self.lease(max_lease, true) <= Duration::from_millis(self.max_lease_ms).min(max_lease)
    }

    /// Until when they may lead, by the local clock.
    pub fn lease_ends(&self, max_lease: Duration, lock_expires: bool) -> Instant {
        self.at + self.lease(max_lease, lock_expires)
    }
}

/// A vacancy as this candidate knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vacancy {
    /// The tombstone's revision and kind; `None` where nothing is left under the name.
    pub tombstone: Option<(Revision, Tombstone)>,
    /// The revision that the tombstone replaced, where known.
    pub previous: Option<Revision>,
    /// No earlier than the lock stored the tombstone.
    pub first_seen: Instant,
    /// Without a tombstone: whether the lock vouches that no write was stored for as long as any
    /// lease lasts.
    pub empty_is_proof: bool,
    /// Whether the newest tombstone is of another program, or a release that was not received as a
    /// hint: its age is unknown.
    pub may_be_old: bool,
}

impl Vacancy {
    /// Nothing is left under the name.
    pub fn empty(first_seen: Instant, is_proof: bool) -> Self {
        let (tombstone, previous, may_be_old) = (None, None, false);
        Self { tombstone, previous, first_seen, empty_is_proof: is_proof, may_be_old }
    }

    /// The last write before the tombstone, if `last_seen` is it: the tombstone shows that none
    /// followed.
    pub fn watched<'a>(&self, last_seen: Option<&'a SeenEntry>) -> Option<&'a SeenEntry> {
        last_seen.filter(|seen| self.previous == Some(seen.revision))
    }

    /// Whether a create now would earn a long wait because nothing is known: then candidates that
    /// know more go first.
    pub fn is_unknown(&self, last_seen: Option<&SeenEntry>) -> bool {
        match &self.tombstone {
            None => !self.empty_is_proof,
            Some((_, Tombstone::Deleted)) => self.watched(last_seen).is_none(),
            Some(_) => false,
        }
    }

    /// The revision of the tombstone, if there is one.
    pub fn revision(&self) -> Option<Revision> {
        self.tombstone.as_ref().map(|(revision, _)| *revision)
    }

    /// Whether the lock may be about to store a marker in the place of the tombstone, as its life
    /// may be over. nats-server 2.11.6 and earlier leave one after a release, too.
    pub fn may_be_marked(&self, now: Instant, max_lease: Duration) -> bool {
        let is_release = matches!(self.tombstone, Some((_, Tombstone::Released { .. })));
        self.may_be_old || (is_release && now >= self.first_seen + max_lease / 2)
    }

    /// The candidate that the last holder handed over to.
    pub fn successor(&self) -> Option<Nonce> {
        match self.tombstone {
            Some((_, Tombstone::Released { to, .. })) => to,
            _ => None,
        }
    }

    /// Whether a tombstone that replaced `previous` has taken the place of this one.
    pub fn is_followed_by(&self, previous: Option<Revision>) -> bool {
        previous.is_some() && previous == self.revision()
    }

    /// Whether the last holder went silent, rather than released its entry or was deleted.
    pub fn is_vanished(&self) -> bool {
        self.tombstone.is_none() || self.is_expired()
    }

    /// Whether the last holder's entry has expired, or has not changed for its lease.
    pub fn is_expired(&self) -> bool {
        matches!(self.tombstone, Some((_, Tombstone::Expired)))
    }
}

/// The step-down of a holder that lost its entry: from its notice, or this candidate's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownStepDown {
    pub by: Nonce,
    pub token: Token,
    pub revision: Revision,
    /// When no holder before that one can be leading any more.
    pub clear_at: Instant,
}

/// How long a request of Choria's candidates may hang: nats.go's default.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that one with a back-off waits between a renewal's response and the next renewal.
const MAX_BACK_OFF: Duration = Duration::from_millis(750);

/// How long after its last write one of Choria's candidates may lead at most.
///
/// They renew every 0.75 of the bucket's TTL, but not before the last response, which may come
/// late; with a back-off they renew soon after it. Then the renewal that fails may hang as well.
pub(super) fn max_tenure_of_choria(bucket_ttl: Duration) -> Duration {
    let next_renewal = three_quarters(bucket_ttl).max(REQUEST_TIMEOUT + MAX_BACK_OFF);
    with_drift(next_renewal.saturating_add(REQUEST_TIMEOUT))
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
