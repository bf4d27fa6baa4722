//! The stored entries and their lifetimes. Pure: the time is an argument.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::lock::{Content, Record, Revision, Tombstone};
use crate::time::clock::Instant;

/// The last write to each election.
#[derive(Debug)]
pub(super) struct Bucket {
    max_lease: Duration,
    last: u64,
    slots: HashMap<Arc<str>, Slot>,
    /// The slots by their end.
    due: BTreeSet<(Instant, Arc<str>)>,
}

#[derive(Debug)]
struct Slot {
    record: Record,
    until: Instant,
}

/// A write that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) name: Arc<str>,
    pub(super) record: Record,
    /// The revision that it replaced.
    pub(super) previous: Option<Revision>,
}

impl Bucket {
    pub(super) fn new(max_lease: Duration) -> Self {
        Self { max_lease, last: 0, slots: HashMap::new(), due: BTreeSet::new() }
    }

    /// Returns the last write to an election.
    pub(super) fn last(&self, name: &str) -> Option<Record> {
        self.slots.get(name).map(|slot| slot.record.clone())
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.slots.keys().map(|name| (**name).to_owned()).collect()
    }

    /// Returns the holder of an election.
    pub(super) fn holder(&self, name: &str) -> Option<&str> {
        match &self.slots.get(name)?.record.content {
            Content::Held(entry) => Some(&entry.identity),
            Content::Vacant(_) => None,
        }
    }

    /// Stores a write at the instant `at`. An entry lives for `life`. A tombstone lives for the
    /// longest of `life`, the maximum lease, and the remaining life of what it replaces, so that an
    /// empty slot proves that no earlier holder can still be leading.
    pub(super) fn store(
        &mut self,
        name: &str,
        content: Content,
        at: Instant,
        life: Duration,
    ) -> Stored {
        let (name, before) = match self.slots.remove_entry(name) {
            Some((name, slot)) => (name, Some(slot)),
            None => (Arc::from(name), None),
        };
        let mut until = at + life;
        if let Some(before) = &before {
            self.due.remove(&(before.until, name.clone()));
        }
        if let Content::Vacant(_) = content {
            let replaced = before.as_ref().map_or(at, |before| before.until);
            until = until.max(at + self.max_lease).max(replaced);
        }
        self.last += 1;
        let record = Record { revision: Revision(self.last), content };
        self.due.insert((until, name.clone()));
        self.slots.insert(name.clone(), Slot { record: record.clone(), until });
        Stored { name, record, previous: before.map(|before| before.record.revision) }
    }

    /// Returns when the next slot expires.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Replaces due entries with tombstones, and removes due tombstones, in the order in which they
    /// were due. Returns the new tombstones.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Stored> {
        let mut stored = Vec::new();
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((due, name)) = self.due.pop_first() else { break };
            match self.slots.get(&name).map(|slot| &slot.record.content) {
                Some(Content::Held(_)) => {
                    let expired = Content::Vacant(Tombstone::Expired);
                    stored.push(self.store(&name, expired, due, Duration::ZERO));
                }
                Some(Content::Vacant(_)) | None => {
                    self.slots.remove(&name);
                }
            }
        }
        stored
    }
}
