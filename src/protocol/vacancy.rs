//! What a candidate can prove about how the entry came to be free, and the cool-down that it earns.
//!
//! A winner must not lead while an earlier holder still may. How long that is depends on what the winner knows: a
//! release says that the holder's work has stopped; an expiry says that its lease has passed; a delete by somebody else
//! says nothing.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lock::{Entry, Nonce, Revision, Token, Tombstone};
use crate::time::clock::Instant;
use crate::time::timing::{three_quarters, with_drift};

/// How much a winner waits between creating the entry and leading.
///
/// Each policy waits at least as long as [`Proven`](Self::Proven) does: none of them gives the promise away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum CoolDown {
    /// Until no earlier holder can still be leading, by what the winner can prove. The default.
    #[default]
    Proven,
    /// The same without trusting the lock's clock: an expiry that the winner has not watched earns a full lease.
    Strict,
    /// At least one campaign interval, 0.75 of the lease and 200 ms, as Choria's campaigners wait.
    Campaign,
    /// At least this long.
    For(Duration),
}

/// How long a request of Choria's campaigners may hang: nats.go's default.
const CHORIA_HANGS: Duration = Duration::from_secs(5);
/// The longest that one with a back-off waits between a renewal's answer and the next renewal.
const CHORIA_BACKS_OFF: Duration = Duration::from_millis(750);

/// Choria's campaigners renew every 0.75 of the bucket's TTL, but not before the last answer, which may come late; with a
/// back-off they renew soon after it. Then the renewal that fails may hang as well.
fn choria_learns_of_its_loss_after(max_lease: Duration) -> Duration {
    let next_renewal = three_quarters(max_lease).max(CHORIA_HANGS + CHORIA_BACKS_OFF);
    with_drift(next_renewal.saturating_add(CHORIA_HANGS))
}

/// The last write of a holder that this campaigner knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sighting {
    pub revision: Revision,
    pub entry: Entry,
    /// No earlier than the lock stored it.
    pub at: Instant,
    /// Heard as it was stored, not read some time later.
    pub heard: bool,
}

impl Sighting {
    /// The term it belongs to, where its writer says so.
    pub fn term(&self) -> Option<(Nonce, Token)> {
        let mark = self.entry.mark.as_ref()?;
        Some((mark.write.nonce, mark.token.unwrap_or(self.revision.into())))
    }

    /// Whether `entry` is the same write.
    pub fn is_of(&self, entry: &Entry) -> bool {
        let Entry { identity, mark, ttl: life, advertisement: _ } = entry;
        (identity, mark, life) == (&self.entry.identity, &self.entry.mark, &self.entry.ttl)
    }

    /// For how long after its write its writer, and everyone its writer waited for, may lead at the most.
    pub fn right(&self, max_lease: Duration, lock_expires: bool) -> Duration {
        match &self.entry.mark {
            Some(mark) => mark.lease,
            // Where the lock frees nothing, every holder says for how long it must be waited.
            None if !lock_expires => self.entry.ttl,
            None => choria_learns_of_its_loss_after(max_lease).max(max_lease),
        }
    }

    /// Until when they may lead, by one's own clock.
    pub fn right_ends(&self, max_lease: Duration, lock_expires: bool) -> Instant {
        self.at + self.right(max_lease, lock_expires)
    }
}

/// A vacancy as this campaigner knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vacancy {
    /// The tombstone's revision and kind; `None` where nothing is left under the name.
    pub tombstone: Option<(Revision, Tombstone)>,
    /// The revision that the tombstone replaced, where known.
    pub previous: Option<Revision>,
    /// No earlier than the lock stored the tombstone.
    pub first_seen: Instant,
    /// Without a tombstone: whether the lock vouches that nobody wrote for as long as any lease lasts.
    pub empty_is_proof: bool,
}

/// A notice as heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Conceded {
    pub by: Nonce,
    pub token: Token,
    pub revision: Revision,
    /// When nobody before that holder can be leading any more.
    pub clear_at: Instant,
}

/// What else the wait depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub now: Instant,
    pub max_lease: Duration,
    pub lease: Duration,
    pub policy: CoolDown,
    pub choria_peers: bool,
    /// Whether the lock frees entries by its own clock.
    pub lock_expires: bool,
    pub last_seen: Option<&'a Sighting>,
    /// The latest [`Sighting::right_ends`] of all.
    pub rights_seen_end: Instant,
}

/// How long a winner has to wait, as known when it sends its create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    /// Not before this.
    pub until: Instant,
    /// Nor before this long after the create was stored: where nothing is known about who wrote before it.
    pub after_create: Duration,
    /// What a notice cannot shorten.
    pub floor: Instant,
    /// Whose notice ends the wait.
    pub concedes: Option<Predecessor>,
}

impl Wait {
    /// Has it last until `instant`, whatever anybody says.
    pub fn not_before(&mut self, instant: Instant) {
        self.floor = self.floor.max(instant);
        self.until = self.until.max(instant);
    }

    /// When the winner may lead, if its create was stored no later than `created`.
    pub fn ends(&self, created: Instant) -> Instant {
        self.until.max(created + self.after_create)
    }
}

/// The holder whose entry was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Predecessor {
    pub revision: Revision,
    pub term: Option<(Nonce, Token)>,
}

impl Predecessor {
    pub fn is(&self, conceded: &Conceded) -> bool {
        self.revision == conceded.revision || self.term == Some((conceded.by, conceded.token))
    }
}

impl Vacancy {
    /// Whether asking now would earn a long wait for want of any evidence: then candidates that know more go first.
    pub fn is_unknown(&self, c: &Circumstances<'_>) -> bool {
        match &self.tombstone {
            None => !self.empty_is_proof,
            Some((_, Tombstone::Deleted)) => self.watched(c).is_none(),
            Some(_) => false,
        }
    }

    /// Whether a tombstone that replaced `previous` has taken the place of this one.
    pub fn is_followed_by(&self, previous: Option<Revision>) -> bool {
        previous.is_some() && previous == self.tombstone.as_ref().map(|(revision, _)| *revision)
    }

    /// Whether the last holder went silent, rather than released its entry or was deleted.
    pub fn is_vanished(&self) -> bool {
        matches!(self.tombstone, None | Some((_, Tombstone::Expired)))
    }

    /// The last write before the tombstone, if we saw it and the tombstone shows that none followed.
    fn watched<'a>(&self, c: &Circumstances<'a>) -> Option<&'a Sighting> {
        c.last_seen.filter(|seen| self.previous == Some(seen.revision))
    }

    pub fn wait(&self, c: &Circumstances<'_>, conceded: &VecDeque<Conceded>) -> Wait {
        let mut wait = self.proven(c, conceded);
        let policy = match c.policy {
            CoolDown::Proven | CoolDown::Strict => Duration::ZERO,
            CoolDown::Campaign => three_quarters(c.lease) + Duration::from_millis(200),
            CoolDown::For(duration) => duration,
        };
        wait.floor = wait.floor.max(c.now + policy);
        wait.until = wait.until.max(wait.floor);
        wait
    }

    fn proven(&self, c: &Circumstances<'_>, conceded: &VecDeque<Conceded>) -> Wait {
        let none =
            Wait { until: c.now, after_create: Duration::ZERO, floor: c.now, concedes: None };
        let watched = self.watched(c);
        let full = with_drift(c.max_lease);
        let choria = choria_learns_of_its_loss_after(c.max_lease);
        // A mark that is not of the holder whose entry is gone, as we saw it, proves nothing.
        let its_own =
            |by| watched.is_none_or(|seen| seen.term().is_some_and(|(holder, _)| holder == by));
        match &self.tombstone {
            // What the holder vouches for counts from its release, which we saw no earlier.
            Some((_, Tombstone::Released { by, left })) if its_own(*by) => {
                Wait { until: self.first_seen + with_drift(*left), ..none }
            }
            Some((_, Tombstone::Expired)) => {
                let until = self.expiry_proves_until(c, watched, full, choria);
                Wait { until, floor: until, ..none }
            }
            Some((_, Tombstone::Deleted | Tombstone::Released { .. })) => {
                let foreign = match watched {
                    Some(Sighting { entry: Entry { mark: Some(_), .. }, .. }) => c.now,
                    Some(_) if !c.lock_expires => c.now, // has said how long it must be waited for
                    Some(seen) => seen.at + choria,
                    None if c.choria_peers => self.first_seen + choria,
                    None => c.now,
                };
                // A holder of ours may itself have been waiting for one of Choria's.
                let longest = if c.choria_peers { full.max(choria) } else { full };
                let mut until = self.first_seen + longest;
                if let Some(seen) = watched {
                    until = until.min(seen.right_ends(c.max_lease, c.lock_expires));
                }
                let concedes = self.previous.map(|revision| Predecessor {
                    revision,
                    term: watched.and_then(Sighting::term),
                });
                if let Some(predecessor) = &concedes {
                    for said in conceded.iter().filter(|said| predecessor.is(said)) {
                        until = until.min(said.clear_at);
                    }
                }
                Wait { until: until.max(foreign), floor: foreign, concedes, ..none }
            }
            None => {
                let mut wait = Wait { until: c.rights_seen_end.max(c.now), ..none };
                if !self.empty_is_proof || c.policy == CoolDown::Strict {
                    wait.after_create = if c.choria_peers { full.max(choria) } else { full };
                } else if c.choria_peers {
                    wait.until = wait.until.max(c.now + (choria - c.max_lease.min(choria)));
                }
                wait.floor = wait.until;
                wait
            }
        }
    }

    /// Until when somebody may lead whose right is not over although the entry has expired.
    ///
    /// No lock keeps an entry for longer than its longest lease. An expired entry so proves the end of those rights alone that were no
    /// longer than that, and of a longer one what it could outlive: what is left is waited for.
    fn expiry_proves_until(
        &self,
        c: &Circumstances<'_>,
        watched: Option<&Sighting>,
        full: Duration,
        choria: Duration,
    ) -> Instant {
        // Of an entry that was written as long before its marker as the lock may keep it.
        let outlived = |right: Duration| right.saturating_sub(c.max_lease);
        let strict = c.policy == CoolDown::Strict;
        let unknown = if c.choria_peers { full.max(choria) } else { full };
        match watched {
            // One's own clock as a second witness: a lock whose clock was stepped expires entries early.
            Some(seen) if strict || seen.heard || !c.lock_expires => {
                seen.right_ends(c.max_lease, c.lock_expires)
            }
            Some(seen) => {
                let right = seen.right(c.max_lease, c.lock_expires);
                (seen.at + right).min(self.first_seen + outlived(right))
            }
            None if strict => self.first_seen + unknown,
            // The margin for drift need not be added: each right to lead ends that much before its lease.
            None if c.choria_peers => self.first_seen + outlived(choria),
            None => c.now,
        }
    }
}
