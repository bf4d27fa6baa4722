//! The cool-down: how long a winner waits before it leads, by what it has observed of earlier
//! holders.
//!
//! A winner must not lead while an earlier holder still may. How long that is depends on what the
//! winner knows: a release states that the holder's work has stopped; an expiry shows that its
//! lease has passed; a delete by another process shows nothing. [`Observed::cool_down`] is the
//! table of `docs/protocol.md`, row by row. The spans, on the winner's clock:
//!
//! ```text
//!  last write seen     tombstone seen        create sent     stored
//!        |                   |                    |             |
//!  ------+-------------------+--------------------+-------------+---------------------> time
//!        |                   |                    |             |
//!        |--- lease of the entry: watched, expired but not allowed ---|
//!        |--- tenure of a Choria candidate: foreign ----------------------|
//!                            |--- left: released, stepped down, evicted --|
//!                            |--- tenure of an unknown holder: deleted ------|
//!                                                 |--- policy ---|
//!                                                               |--- from_create: unknown ---|
//!  --- barrier: own work, leases seen before the lock was set back ---|
//!
//!  not_before: the latest end of the spans that begin before the create is stored
//!  minimum:    the latest end of those that no step-down notice shortens: foreign, policy, barrier
//!  leads:      at not_before, and not before from_create has passed since the create was stored
//! ```

use std::fmt;
use std::time::Duration;

use crate::lock::{Entry, Nonce, Revision, Token, Tombstone};
use crate::time::clock::Instant;
use crate::time::timing::{three_quarters, with_drift};

/// How much a winner waits between creating the entry and leading.
///
/// Each policy waits at least as long as [`Proven`](Self::Proven) does: none of them gives the
/// promise away.
///
/// ```
/// use incumbent::{CoolDown, memory::MemoryLock, new_election};
///
/// let builder = new_election("my_app", MemoryLock::new()).cool_down(CoolDown::Strict);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum CoolDown {
    /// Until no earlier holder can still be leading, by what the winner can prove. The default.
    #[default]
    Proven,
    /// As `Proven`, without trusting the lock's clock: an expiry that the winner has not watched
    /// earns a full lease.
    Strict,
    /// At least this long.
    For(Duration),
}

/// Why a winner does not lead before the end of its cool-down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// No earlier holder can still be leading.
    NothingToWaitFor,
    /// The lease of an entry that this candidate has seen.
    SeenLease,
    /// Too little is known of an earlier holder to rule out that it still leads.
    UnknownHolder,
    /// One of Choria's candidates may still lead.
    ChoriaCandidate,
    /// What the last holder still had to wait for when it released its entry or stepped down.
    PassedOn,
    /// The wait of an earlier write of this candidate, or work of its last term that does not stop.
    OwnEarlierTerm,
    /// The configured [`CoolDown`].
    Policy,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingToWaitFor => "no earlier holder can still be leading",
            Self::SeenLease => "the lease of an earlier holder that was seen",
            Self::UnknownHolder => "an earlier holder of which too little is known",
            Self::ChoriaCandidate => "a candidate of Choria's that may still lead",
            Self::PassedOn => "the rest of the wait of the last holder",
            Self::OwnEarlierTerm => "an earlier write or term of this candidate",
            Self::Policy => "the configured cool-down",
        })
    }
}

/// An instant before which a winner must not lead, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotBefore {
    pub at: Instant,
    /// Only reported: no decision depends on it.
    pub reason: WaitReason,
}

impl NotBefore {
    pub fn new(at: Instant, reason: WaitReason) -> Self {
        Self { at, reason }
    }

    /// The later of the two; this one if they are equal.
    pub fn max(self, other: Self) -> Self {
        if other.at > self.at { other } else { self }
    }
}

/// How long a winner has to wait: reckoned when its create is sent, and again when the lock has
/// stored it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoolDownWait {
    pub not_before: NotBefore,
    /// What a step-down notice cannot shorten.
    pub minimum: NotBefore,
    /// Nor before this long after the create was stored: where nothing is known about who wrote
    /// before it.
    pub from_create: Duration,
    /// Whose step-down ends the wait.
    pub predecessor: Option<Predecessor>,
    /// Whether the holder that is waited for may be of another program and write over the entry
    /// until its work has ended: client-go's release does not check whose record it empties. Then
    /// only a write that was sent after the wait shows that the entry still stands.
    pub confirm: bool,
    /// The lock's longest lease, as known when this was reckoned.
    pub max_lease: Duration,
}

impl CoolDownWait {
    /// Has it last until `other`, whatever is received.
    pub fn at_least(mut self, other: NotBefore) -> Self {
        self.minimum = self.minimum.max(other);
        self.not_before = self.not_before.max(other);
        self
    }

    /// A holder has stepped down: if it is the one waited for, the wait is what that one still
    /// waited for.
    pub fn on_step_down(&mut self, step_down: &KnownStepDown) {
        if self.predecessor.is_some_and(|predecessor| predecessor.is(step_down)) {
            let clear = NotBefore::new(step_down.clear_at, WaitReason::PassedOn);
            let clear = self.minimum.max(clear);
            if clear.at < self.not_before.at {
                self.not_before = clear;
            }
            self.confirm = false; // it is of this library, and writes over nobody's entry
        }
    }

    /// What is left of it at `now`, before its create is stored.
    pub fn left(&self, now: Instant) -> Duration {
        self.not_before.at.saturating_since(now).max(self.from_create)
    }

    /// The create was stored no later than `created`.
    pub fn begins(&mut self, created: Instant) {
        let unknown = NotBefore::new(created + self.from_create, WaitReason::UnknownHolder);
        self.not_before = self.not_before.max(unknown);
        self.from_create = Duration::ZERO;
        if self.not_before.at <= created {
            self.not_before.reason = WaitReason::NothingToWaitFor;
        }
    }
}

/// What a candidate has observed by the time it sends a create, and its settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed<'a> {
    pub now: Instant,
    pub nonce: Nonce,
    pub max_lease: Duration,
    pub policy: CoolDown,
    pub with_choria: bool,
    /// Whether the lock frees entries by its own clock.
    pub expires: bool,
    pub last_seen: Option<&'a SeenEntry>,
    /// The latest [`SeenEntry::lease_ends`] of all.
    pub seen_leases_end: Instant,
    pub step_downs: &'a [KnownStepDown],
    /// No create leads before this, whatever the vacancy shows.
    pub barrier: NotBefore,
}

impl Observed<'_> {
    /// The wait of a create over `vacancy` that is sent now.
    pub fn cool_down(&self, vacancy: &Vacancy) -> CoolDownWait {
        use Tombstone::{Deleted, Expired, Released};
        use WaitReason::{
            ChoriaCandidate, NothingToWaitFor, OwnEarlierTerm, PassedOn, Policy, SeenLease,
            UnknownHolder,
        };
        let Self { now, max_lease, with_choria, expires, .. } = *self;
        let strict = self.policy == CoolDown::Strict;
        let choria = max_tenure_of_choria(max_lease);
        let unknown = self.max_tenure_of_unknown();
        let seen_at = vacancy.first_seen;
        let watched = vacancy.watched(self.last_seen);
        // A mark that is not of the holder whose entry is gone, as we saw it, proves nothing.
        let mark_is_holders =
            |by| watched.is_none_or(|seen| seen.term().is_some_and(|(holder, _)| holder == by));

        let row = |at, reason| {
            let not_before = NotBefore::new(at, reason);
            let (minimum, from_create) = (not_before, Duration::ZERO);
            let (predecessor, confirm) = (None, false);
            CoolDownWait { not_before, minimum, from_create, predecessor, confirm, max_lease }
        };
        // Where nothing vouches for the holder, its step-down still may.
        let until_step_down = |at, reason| {
            // Foreign.
            let foreign = match watched {
                Some(SeenEntry { entry, .. }) if entry.mark.is_some() => now,
                Some(_) if !expires => now, // it stated how long to wait
                Some(seen) => seen.at + choria,
                None if with_choria => seen_at + choria,
                None => now,
            };
            let mut wait = row(foreign, ChoriaCandidate);
            wait.not_before = wait.minimum.max(NotBefore::new(at, reason));
            wait.predecessor = vacancy
                .previous
                .map(|revision| Predecessor { revision, term: watched.and_then(SeenEntry::term) });
            let is_ours = watched.is_some_and(|seen| seen.entry.mark.is_some());
            wait.confirm = !expires && !is_ours;
            // Stepped down.
            for step_down in self.step_downs {
                wait.on_step_down(step_down);
            }
            wait
        };

        let wait = match (vacancy.tombstone.as_ref().map(|(_, tombstone)| tombstone), watched) {
            // Released: what the holder vouches for counts from its release, which we saw no
            // earlier.
            (Some(Released { by, left, .. }), _)
                if *by != Nonce::NOBODY && mark_is_holders(*by) =>
            {
                let own = *by == self.nonce;
                row(seen_at + with_drift(*left), if own { OwnEarlierTerm } else { PassedOn })
            }
            // Watched: by the lease that the entry states, which may be longer than the lock
            // allowed when this candidate last learned of that.
            (Some(Deleted | Released { .. }), Some(seen)) => {
                until_step_down(seen.lease_ends(max_lease, expires), SeenLease)
            }
            // Expired, but watched: no lock keeps an entry for longer than its longest lease, which
            // may be changed while the entry stands. So an expiry proves that a lease has ended
            // which was allowed both when the entry was seen and now. A longer one is waited for by
            // one's own clock; so is any where that is a second witness: a lock whose clock was
            // stepped expires entries early.
            (Some(Expired), Some(seen))
                if strict || seen.from_hint || !expires || !seen.is_allowed(max_lease) =>
            {
                row(seen.lease_ends(max_lease, expires), SeenLease)
            }
            (Some(Expired), None) if strict => row(seen_at + unknown, UnknownHolder),
            // The margin for drift need not be added: each right to lead ends that much before its
            // lease.
            (Some(Expired), None) if with_choria => {
                row(seen_at + choria.saturating_sub(max_lease), ChoriaCandidate)
            }
            (Some(Expired), _) => row(now, NothingToWaitFor),
            // Expired, as the lock vouches that there was no write for as long as any lease lasts.
            (None, _) if vacancy.empty_is_proof && !strict => {
                let choria =
                    if with_choria { choria.saturating_sub(max_lease) } else { Duration::ZERO };
                row(self.seen_leases_end, SeenLease)
                    .at_least(NotBefore::new(now + choria, ChoriaCandidate))
            }
            // Evicted: who releases in the place of the holder states how long it may lead.
            (Some(Released { by: Nonce::NOBODY, left, .. }), None) => {
                until_step_down(seen_at + with_drift(*left), SeenLease)
            }
            // Deleted.
            (Some(Deleted | Released { .. }), None) => {
                until_step_down(seen_at + unknown, UnknownHolder)
            }
            // Unknown.
            (None, _) => CoolDownWait {
                from_create: unknown,
                confirm: !expires,
                ..row(self.seen_leases_end, SeenLease)
            },
        };
        let policy = match self.policy {
            CoolDown::Proven | CoolDown::Strict => Duration::ZERO,
            CoolDown::For(duration) => duration,
        };
        wait.at_least(NotBefore::new(now + policy, Policy)).at_least(self.barrier)
    }

    /// For how long a holder may lead of which nothing is known. It may be the one that was last
    /// seen, with a lease that is longer than those of the lock as this candidate knows it.
    pub fn max_tenure_of_unknown(&self) -> Duration {
        let Self { max_lease, expires, .. } = *self;
        let is_other = |seen: &&SeenEntry| seen.term().is_none_or(|(by, _)| by != self.nonce);
        let seen = self.last_seen.filter(is_other).map(|seen| seen.entry.lease(max_lease, expires));
        let full = with_drift(max_lease).max(seen.unwrap_or_default());
        // A holder of ours may itself have been waiting for one of Choria's.
        if self.with_choria { full.max(max_tenure_of_choria(max_lease)) } else { full }
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

    /// On a lock that expires entries, whether that lease was no longer than its longest one, and
    /// is not now: then the entry lived as long.
    pub fn is_allowed(&self, max_lease: Duration) -> bool {
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
}

impl Vacancy {
    /// Nothing is left under the name.
    pub fn empty(first_seen: Instant, is_proof: bool) -> Self {
        Self { tombstone: None, previous: None, first_seen, empty_is_proof: is_proof }
    }

    /// The last write before the tombstone, if `last_seen` is it: the tombstone shows that none
    /// followed.
    fn watched<'a>(&self, last_seen: Option<&'a SeenEntry>) -> Option<&'a SeenEntry> {
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

/// The holder whose entry was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Predecessor {
    pub revision: Revision,
    pub term: Option<(Nonce, Token)>,
}

impl Predecessor {
    /// Whether `step_down` is that holder's. A store that was restored gives out revisions again:
    /// the term counts where it was seen.
    pub fn is(&self, step_down: &KnownStepDown) -> bool {
        let of_term = |term| term == (step_down.by, step_down.token);
        self.term.map_or(self.revision == step_down.revision, of_term)
    }
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
