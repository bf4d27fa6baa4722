//! Records of what a candidate has seen: entries, vacancies and step-downs.

use std::time::Duration;

use super::choria;
#[cfg(feature = "_model")]
use super::fingerprint::FingerprintWriter;
use crate::lock::{Entry, Nonce, Revision, Token, Tombstone};
use crate::time::clock::Instant;
#[cfg(feature = "_model")]
use crate::time::timing::with_drift;

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

    /// For how long after its write its writer, and everyone its writer waited for, may lead at the
    /// most.
    pub fn lease(&self, max_lease: Duration, lock_expires: bool) -> Duration {
        let lease = self.entry.lease(max_lease, lock_expires);
        let may_be_of_choria = self.entry.mark.is_none() && lock_expires;
        if may_be_of_choria { choria::may_lead_for(max_lease).max(lease) } else { lease }
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

    #[cfg(feature = "_model")]
    pub fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { revision, entry, at, from_hint, max_lease_ms: _ } = self; // it stays
        writer.revision(revision);
        // What the machine compares: whose it is, when its lease ends, and when silence means
        // something.
        writer.each(&entry.mark, |writer, mark| {
            writer.to.nonce(mark.write.nonce);
            writer.each(&mark.token, |writer, token| writer.token(*token));
            writer.since(*at, mark.lease);
            let longer = mark.lease.saturating_sub(writer.longest);
            writer.to.word(FingerprintWriter::nanos(longer));
        });
        let silence = writer.timing.lease() / 4 + Duration::from_millis(500);
        writer.since(*at, entry.ttl + silence);
        writer.flags(&[*from_hint]);
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

    #[cfg(feature = "_model")]
    pub fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { tombstone, previous, first_seen, empty_is_proof } = self;
        let mut reach = with_drift(writer.longest);
        writer.each(tombstone, |writer, (revision, kind)| {
            writer.revision(revision);
            writer.to.word(match kind {
                Tombstone::Released { by, left, cause: _, to: _, pause: _ } => {
                    FingerprintWriter::nanos(*left) << 1 | u64::from(*by == Nonce::NOBODY)
                }
                Tombstone::Expired => u64::MAX,
                Tombstone::Deleted => u64::MAX - 1,
            });
        });
        if let Some((_, Tombstone::Released { left, .. })) = tombstone {
            reach = reach.max(with_drift(*left));
        }
        writer.each(&self.successor(), |writer, to| writer.to.nonce(*to));
        writer.each(previous, FingerprintWriter::revision);
        writer.since(*first_seen, reach);
        writer.flags(&[*empty_is_proof]);
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

impl KnownStepDown {
    #[cfg(feature = "_model")]
    pub fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { by, token, revision, clear_at } = self;
        writer.to.nonce(*by);
        writer.token(*token);
        writer.to.revision(*revision);
        writer.until(*clear_at);
    }
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

    #[cfg(feature = "_model")]
    pub fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { revision, term } = self;
        writer.revision(revision);
        writer.each(term, |writer, (nonce, token)| {
            writer.to.nonce(*nonce);
            writer.token(*token);
        });
    }
}
