//! The cool-down: how long a winner waits before it leads, by what it can prove about earlier
//! holders.
//!
//! A winner must not lead while an earlier holder still may. How long that is depends on what the
//! winner knows: a release states that the holder's work has stopped; an expiry shows that its
//! lease has passed; a delete by another process shows nothing.

use std::fmt;
use std::time::Duration;

use super::choria;
#[cfg(feature = "_model")]
use super::fingerprint::FingerprintWriter;
use super::vacancy::{KnownStepDown, Predecessor, SeenEntry, Vacancy};
use crate::lock::{Entry, Nonce, Tombstone};
use crate::time::clock::Instant;
use crate::time::timing::with_drift;

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
    /// The same without trusting the lock's clock: an expiry that the winner has not watched earns
    /// a full lease.
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
pub(super) struct Until {
    pub at: Instant,
    /// Only logged: no decision depends on it.
    pub reason: WaitReason,
}

impl Until {
    pub fn new(at: Instant, reason: WaitReason) -> Self {
        Self { at, reason }
    }

    /// The later of the two; this one if they are equal.
    pub fn max(self, other: Self) -> Self {
        if other.at > self.at { other } else { self }
    }

    /// The earlier of the two; this one if they are equal.
    pub fn min(self, other: Self) -> Self {
        if other.at < self.at { other } else { self }
    }

    #[cfg(feature = "_model")]
    pub fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { at, reason: _ } = self;
        writer.until(*at);
    }
}

/// What else the wait depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoolDownInputs<'a> {
    pub now: Instant,
    pub nonce: Nonce,
    pub max_lease: Duration,
    pub policy: CoolDown,
    pub with_choria: bool,
    /// Whether the lock frees entries by its own clock.
    pub lock_expires: bool,
    pub last_seen: Option<&'a SeenEntry>,
    /// The latest [`SeenEntry::lease_ends`] of all.
    pub seen_leases_end: Instant,
    pub step_downs: &'a [KnownStepDown],
}

impl CoolDownInputs<'_> {
    /// For how long a holder may lead of which nothing is known. It may be the one that was last
    /// seen, with a lease that is longer than those of the lock as this candidate knows it.
    fn unknown_holder_leads_for(&self) -> Duration {
        let others = self.last_seen.filter(|seen| seen.term().is_none_or(|t| t.0 != self.nonce));
        let seen = others.map(|seen| seen.entry.lease(self.max_lease, self.lock_expires));
        let full = with_drift(self.max_lease).max(seen.unwrap_or_default());
        // A holder of ours may itself have been waiting for one of Choria's.
        if self.with_choria { full.max(choria::may_lead_for(self.max_lease)) } else { full }
    }
}

/// How long a winner has to wait, as known when it sends its create.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoolDownWait {
    /// Not before this.
    pub until: Until,
    /// Nor before this long after the create was stored: where nothing is known about who wrote
    /// before it.
    pub after_create: Duration,
    /// What a step-down notice cannot shorten.
    pub floor: Until,
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
    /// Has it last until `until`, whatever is received.
    pub fn not_before(&mut self, until: Until) {
        self.floor = self.floor.max(until);
        self.until = self.until.max(until);
    }

    /// When the winner may lead, if its create was stored no later than `created`.
    pub fn ends(&self, created: Instant) -> Until {
        let unknown = Until::new(created + self.after_create, WaitReason::UnknownHolder);
        let ends = self.until.max(unknown);
        if ends.at > created { ends } else { Until::new(ends.at, WaitReason::NothingToWaitFor) }
    }

    /// What is left of it at `now`, before its create is stored.
    pub fn left(&self, now: Instant) -> Duration {
        self.until.at.saturating_since(now).max(self.after_create)
    }

    #[cfg(feature = "_model")]
    pub fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { until, after_create, floor, predecessor, confirm, max_lease: _ } = self; // it stays
        writer.flags(&[*confirm]);
        until.fingerprint(writer);
        writer.to.word(FingerprintWriter::nanos(*after_create));
        floor.fingerprint(writer);
        writer.each(predecessor, |writer, predecessor| predecessor.fingerprint(writer));
    }
}

impl Vacancy {
    /// Whether a create now would earn a long wait because there is no evidence: then candidates
    /// that know more go first.
    pub fn is_unknown(&self, c: &CoolDownInputs<'_>) -> bool {
        match &self.tombstone {
            None => !self.empty_is_proof,
            Some((_, Tombstone::Deleted)) => self.watched(c).is_none(),
            Some(_) => false,
        }
    }

    /// The last write before the tombstone, if we saw it and the tombstone shows that none
    /// followed.
    fn watched<'a>(&self, c: &CoolDownInputs<'a>) -> Option<&'a SeenEntry> {
        c.last_seen.filter(|seen| self.previous == Some(seen.revision))
    }

    /// The wait of a create over this vacancy.
    pub fn wait(&self, c: &CoolDownInputs<'_>) -> CoolDownWait {
        let mut wait = self.proven(c);
        let policy = match c.policy {
            CoolDown::Proven | CoolDown::Strict => Duration::ZERO,
            CoolDown::For(duration) => duration,
        };
        wait.floor = wait.floor.max(Until::new(c.now + policy, WaitReason::Policy));
        wait.until = wait.until.max(wait.floor);
        wait
    }

    fn proven(&self, c: &CoolDownInputs<'_>) -> CoolDownWait {
        use WaitReason::{
            ChoriaCandidate, NothingToWaitFor, OwnEarlierTerm, PassedOn, SeenLease, UnknownHolder,
        };
        let at_once = Until::new(c.now, NothingToWaitFor);
        let none = CoolDownWait {
            until: at_once,
            after_create: Duration::ZERO,
            floor: at_once,
            predecessor: None,
            confirm: false,
            max_lease: c.max_lease,
        };
        let watched = self.watched(c);
        let choria = choria::may_lead_for(c.max_lease);
        // A mark that is not of the holder whose entry is gone, as we saw it, proves nothing.
        let its_own =
            |by| watched.is_none_or(|seen| seen.term().is_some_and(|(holder, _)| holder == by));
        match &self.tombstone {
            // What the holder vouches for counts from its release, which we saw no earlier.
            Some((_, Tombstone::Released { by, left, cause: _, to: _, pause: _ }))
                if *by != Nonce::NOBODY && its_own(*by) =>
            {
                let reason = if *by == c.nonce { OwnEarlierTerm } else { PassedOn };
                let until = Until::new(self.first_seen + with_drift(*left), reason);
                CoolDownWait { until, ..none }
            }
            Some((_, Tombstone::Expired)) => {
                let until = self.expiry_proves_until(c, watched);
                CoolDownWait { until, floor: until, ..none }
            }
            Some((_, gone @ (Tombstone::Deleted | Tombstone::Released { .. }))) => {
                let foreign = match watched {
                    Some(SeenEntry { entry: Entry { mark: Some(_), .. }, .. }) => c.now,
                    Some(_) if !c.lock_expires => c.now, // it stated how long to wait
                    Some(seen) => seen.at + choria,
                    None if c.with_choria => self.first_seen + choria,
                    None => c.now,
                };
                let foreign = Until::new(foreign, ChoriaCandidate);
                let mut until = match (watched, gone) {
                    // By the lease that the entry states, which may be longer than the lock allowed
                    // when this candidate last learned of that.
                    (Some(seen), _) => {
                        Until::new(seen.lease_ends(c.max_lease, c.lock_expires), SeenLease)
                    }
                    // Who releases in the place of the holder states how long it may lead.
                    (None, Tombstone::Released { by: Nonce::NOBODY, left, .. }) => {
                        Until::new(self.first_seen + with_drift(*left), SeenLease)
                    }
                    (None, _) => {
                        Until::new(self.first_seen + c.unknown_holder_leads_for(), UnknownHolder)
                    }
                };
                let predecessor = self.previous.map(|revision| Predecessor {
                    revision,
                    term: watched.and_then(SeenEntry::term),
                });
                if let Some(predecessor) = &predecessor {
                    for known in c.step_downs.iter().filter(|known| predecessor.is(known)) {
                        until = until.min(Until::new(known.clear_at, PassedOn));
                    }
                }
                let is_ours = watched.is_some_and(|seen| seen.entry.mark.is_some());
                CoolDownWait {
                    until: foreign.max(until),
                    floor: foreign,
                    predecessor,
                    confirm: !c.lock_expires && !is_ours,
                    ..none
                }
            }
            None => {
                let seen = Until::new(c.seen_leases_end, SeenLease);
                let mut wait = CoolDownWait { until: seen.max(at_once), ..none };
                if !self.empty_is_proof || c.policy == CoolDown::Strict {
                    wait.after_create = c.unknown_holder_leads_for();
                    wait.confirm = !c.lock_expires;
                } else if c.with_choria {
                    let at = c.now + (choria - c.max_lease.min(choria));
                    wait.until = wait.until.max(Until::new(at, ChoriaCandidate));
                }
                wait.floor = wait.until;
                wait
            }
        }
    }

    /// Until when a candidate may lead whose lease is not over although the entry has expired.
    ///
    /// No lock keeps an entry for longer than its longest lease, which may be changed while the
    /// entry stands. So an expiry proves that a lease has ended which was allowed both when the
    /// entry was seen and now. A longer one is waited for by one's own clock.
    fn expiry_proves_until(&self, c: &CoolDownInputs<'_>, watched: Option<&SeenEntry>) -> Until {
        use WaitReason::{ChoriaCandidate, NothingToWaitFor, SeenLease, UnknownHolder};
        let strict = c.policy == CoolDown::Strict;
        let (until, reason) = match watched {
            // One's own clock as a second witness: a lock whose clock was stepped expires entries
            // early.
            Some(seen)
                if strict || seen.from_hint || !c.lock_expires || !seen.is_allowed(c.max_lease) =>
            {
                (seen.lease_ends(c.max_lease, c.lock_expires), SeenLease)
            }
            None if strict => (self.first_seen + c.unknown_holder_leads_for(), UnknownHolder),
            // The margin for drift need not be added: each right to lead ends that much before its
            // lease.
            None if c.with_choria => {
                let choria = choria::may_lead_for(c.max_lease);
                (self.first_seen + choria.saturating_sub(c.max_lease), ChoriaCandidate)
            }
            Some(_) | None => (c.now, NothingToWaitFor),
        };
        Until::new(until, reason)
    }
}
