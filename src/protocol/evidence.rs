//! What a campaign knows of the entry: who held it last, how it came to be free, who conceded.

use std::sync::Arc;

use super::elector::{At, Campaign, Phase};
use super::requests::{Kind, Outstanding};
use super::types::{Action, Leader};
use super::vacancy::{Circumstances, Conceded, Sighting, Vacancy};
use crate::lock::{Capabilities, Content, Entry, Record, Revision, StepDownNotice, Tombstone};
use crate::time::clock::Instant;
use crate::time::timing::with_drift;

impl Campaign {
    pub(super) fn hear_concession(&mut self, now: Instant, notice: StepDownNotice) {
        let conceded = Conceded {
            by: notice.by,
            token: notice.token,
            revision: notice.revision,
            clear_at: now + with_drift(notice.left),
        };
        self.remember_concession(conceded);
    }

    pub(super) fn remember_concession(&mut self, conceded: Conceded) {
        if self.conceded.len() == Self::REMEMBERED {
            self.conceded.pop_front();
        }
        self.conceded.push_back(conceded);
        if let Phase::Office(office) = &mut self.phase {
            office.hear_concession(&conceded);
        }
    }

    pub(super) fn hear(
        &mut self,
        now: Instant,
        record: Record,
        previous: Option<Option<Revision>>,
    ) {
        // What a tombstone replaced, which a read does not tell. An entry with its revision is the very one that the lock called expired:
        // what that one replaced is not the last write.
        if let Some(known) = &mut self.vacancy
            && known.tombstone.as_ref().is_some_and(|t| t.0 == record.revision)
            && matches!(record.content, Content::Vacant(_))
        {
            known.previous = known.previous.or(previous.flatten());
        }
        if record.revision <= self.newest_revision() || self.office_expects(&record) {
            return;
        }
        let revision = record.revision;
        let mine = matches!(&record.content, Content::Held(entry) if self.is_mine(entry));
        let writing =
            matches!(self.outstanding, Some(Outstanding { kind: Kind::Write { .. }, .. }));
        if mine && writing {
            return; // its answer is on the way
        }
        self.deposed_by_hint(now, &record);
        let held = self.learn(now, record, previous, true);
        if self.phase_kind() == At::Standby {
            match (held, mine) {
                (true, true) => self.take_up_own(now, revision),
                (true, false) => self.rest(now),
                (false, _) => self.plan_to_ask(now, true),
            }
        }
    }

    /// The newest revision known of.
    pub(super) fn newest_revision(&self) -> Revision {
        let seen = self.last_seen.as_ref().map(|seen| seen.revision);
        let tombstone = self.vacancy.as_ref().and_then(|v| v.tombstone.as_ref()).map(|t| t.0);
        seen.max(tombstone).unwrap_or(Revision(0))
    }

    /// Remembers a record. Answers whether it is somebody's entry, rather than a tombstone.
    pub(super) fn learn(
        &mut self,
        at: Instant,
        record: Record,
        previous: Option<Option<Revision>>,
        heard: bool,
    ) -> bool {
        self.learned_at = self.learned_at.max(at);
        match record.content {
            Content::Held(entry) => {
                self.refusals.seen(record.revision);
                let is_me = self.is_mine(&entry);
                let sighting = match self.last_seen.take() {
                    // Of one write: two histories of a store may give out one revision.
                    Some(seen) if seen.revision == record.revision && seen.is_of(&entry) => seen,
                    _ => Sighting { revision: record.revision, entry, at, heard },
                };
                if !is_me {
                    let Capabilities { max_lease, expires_entries: expires, .. } =
                        self.capabilities;
                    let ends = sighting.right_ends(max_lease, expires);
                    self.rights_seen_end = self.rights_seen_end.max(ends);
                }
                self.vacancy = None;
                let Entry { identity, mark, ttl: life, advertisement } = &sighting.entry;
                let lease = mark.as_ref().map_or(*life, |mark| mark.lease);
                let leader = Leader {
                    identity: Arc::clone(identity),
                    token: sighting.term().map(|(_, token)| token),
                    since_unix_ms: mark.as_ref().map(|mark| mark.since_unix_ms),
                    advertisement: advertisement.clone(),
                    seen: sighting.at,
                    lease: lease.min(self.capabilities.max_lease),
                    is_me,
                };
                self.last_seen = Some(sighting);
                // An entry that was judged to be as good as free stays so until it changes, however often it is read.
                if is_me || self.phase_kind() != At::Standby || !self.has_outlived(at) {
                    self.tell_leader(Some(leader));
                }
                true
            }
            Content::Vacant(tombstone) => {
                // The entry itself, which the lock calls expired: nothing has followed it.
                let itself = tombstone == Tombstone::Expired
                    && self.last_seen.as_ref().is_some_and(|s| s.revision == record.revision);
                let previous = if itself { Some(Some(record.revision)) } else { previous };
                self.learn_vacancy(at, Some((record.revision, tombstone)), previous, false);
                false
            }
        }
    }

    pub(super) fn learn_vacancy(
        &mut self,
        at: Instant,
        tombstone: Option<(Revision, Tombstone)>,
        previous: Option<Option<Revision>>,
        empty_is_proof: bool,
    ) {
        self.learned_at = self.learned_at.max(at);
        let same = |known: &Vacancy| {
            known.tombstone.as_ref().map(|t| t.0) == tombstone.as_ref().map(|t| t.0)
        };
        match &mut self.vacancy {
            Some(known) if same(known) => {
                known.previous = known.previous.or(previous.flatten());
                known.empty_is_proof = empty_is_proof;
            }
            // A tombstone in the place of another: there was no holder between them, so it says nothing that the first did not.
            Some(known) if known.is_followed_by(previous.flatten()) => {
                let revision = tombstone.map(|(revision, _)| revision);
                if let (Some(known), Some(revision)) = (&mut known.tombstone, revision) {
                    known.0 = revision;
                }
            }
            _ => {
                self.vacancy = Some(Vacancy {
                    tombstone,
                    previous: previous.flatten(),
                    first_seen: at,
                    empty_is_proof,
                });
            }
        }
        self.tell_leader(None);
    }

    pub(super) fn tell_leader(&mut self, leader: Option<Leader>) {
        let changed = match (&self.leader, &leader) {
            (Some(known), Some(leader)) => !known.is_told_as(leader),
            (known, leader) => known.is_some() != leader.is_some(),
        };
        self.leader = leader;
        if changed {
            self.act(Action::Leader(self.leader.clone()));
        }
    }

    pub(super) fn is_mine(&self, entry: &Entry) -> bool {
        entry.mark.as_ref().is_some_and(|mark| mark.write.nonce == self.settings.nonce)
    }

    pub(super) fn circumstances(&self, now: Instant) -> Circumstances<'_> {
        Circumstances {
            now,
            max_lease: self.capabilities.max_lease,
            lease: self.settings.timing.lease(),
            policy: self.settings.cool_down,
            choria_peers: self.settings.choria_peers,
            lock_expires: self.capabilities.expires_entries,
            last_seen: self.last_seen.as_ref(),
            rights_seen_end: self.rights_seen_end,
        }
    }
}
