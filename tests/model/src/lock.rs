//! The lock as the model has it: one entry, conditional writes, lives, tombstones and expiry markers.

use std::time::Duration;

use incumbent::lock::{
    Content, Entry, LockErrorKind, Reading, Record, Request, Revision, Tombstone,
};
use incumbent::protocol::{Answer, Failure};

use crate::key::Key;

/// The time of the model, since its beginning.
pub type Time = Duration;

/// The last write.
#[derive(Debug, Clone)]
pub struct Stored {
    pub record: Record,
    pub previous: Option<Revision>,
    pub expires: Time,
}

/// One election's entry on a server.
#[derive(Debug, Clone)]
pub struct Entrance {
    /// How long an entry may live at the most, and a tombstone lives.
    pub ttl: Duration,
    /// Whether the expiry of an entry leaves a marker.
    pub markers: bool,
    /// From when on nothing under the name shows that nobody wrote for a lease.
    pub proof_from: Time,
    pub last: Option<Stored>,
    revision: u64,
}

/// The answer to `request` where it failed.
pub fn failed(request: &Request, kind: LockErrorKind) -> Answer {
    let failure = Failure { kind, message: "".into() };
    match request {
        Request::Read { .. } => Answer::Read(Err(failure)),
        Request::Write(_) => Answer::Written(Err(failure)),
        Request::Release(_) => Answer::Released(Err(failure)),
        Request::Concede(_) => Answer::Conceded(Err(failure)),
    }
}

impl Entrance {
    pub fn new(ttl: Duration, markers: bool, proof_from: Time) -> Self {
        Self { ttl, markers, proof_from, last: None, revision: 0 }
    }

    fn last_revision(&self) -> Option<Revision> {
        self.last.as_ref().map(|stored| stored.record.revision)
    }

    pub fn holds_entry(&self) -> bool {
        self.last.as_ref().is_some_and(|last| matches!(last.record.content, Content::Held(_)))
    }

    /// Does what `request` asks. The second answer: whether something was stored.
    pub fn apply(&mut self, now: Time, request: &Request) -> (Answer, bool) {
        let last = self.last_revision();
        match request {
            Request::Read { .. } => {
                let reading = match &self.last {
                    Some(stored) => Reading::Found(stored.record.clone()),
                    None => Reading::Empty { proof: self.markers && now >= self.proof_from },
                };
                (Answer::Read(Ok(reading)), false)
            }
            Request::Write(write) if write.expected == last => {
                let (identity, mark) = (write.identity.clone(), Some(write.mark.clone()));
                let entry = Entry {
                    identity,
                    mark,
                    life: write.life,
                    advertisement: write.advertisement.clone(),
                };
                let revision = self.store(now, Content::Held(entry), write.life);
                (Answer::Written(Ok(revision)), true)
            }
            Request::Release(release) if Some(release.expected) == last => {
                let tombstone = Tombstone::Released { by: release.by, left: release.left };
                self.store(now, Content::Vacant(tombstone), self.ttl);
                (Answer::Released(Ok(())), true)
            }
            Request::Concede(_) => (Answer::Conceded(Ok(())), false),
            _ => (failed(request, LockErrorKind::Conflict), false),
        }
    }

    fn store(&mut self, now: Time, content: Content, life: Duration) -> Revision {
        self.revision += 1;
        let revision = Revision(self.revision);
        let previous = self.last_revision();
        let record = Record { revision, content };
        self.last = Some(Stored { record, previous, expires: now + life });
        revision
    }

    /// Somebody deletes the entry, whoever's it is.
    pub fn delete(&mut self, now: Time) {
        self.store(now, Content::Vacant(Tombstone::Deleted), self.ttl);
    }

    /// Nothing is left under the name.
    pub fn vanish(&mut self) {
        self.last = None;
    }

    pub fn expires(&self) -> Option<Time> {
        self.last.as_ref().map(|last| last.expires)
    }

    /// Frees what has outlived its life. Answers whether a marker was stored.
    pub fn expire(&mut self, now: Time) -> bool {
        let marked = self.markers && self.holds_entry();
        if marked {
            self.store(now, Content::Vacant(Tombstone::Expired), self.ttl);
        } else {
            self.last = None;
        }
        marked
    }

    pub fn sketch(&self, now: Time, key: &mut Key) {
        let Self { ttl: _, markers: _, proof_from, last, revision: _ } = self;
        key.duration(proof_from.saturating_sub(now));
        if let Some(Stored { record, previous, expires }) = last {
            key.record(record);
            key.maybe_revision(*previous);
            key.duration(expires.saturating_sub(now));
        }
    }
}
