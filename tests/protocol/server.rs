//! One election key on a server: revisions, per-write lives, tombstones, expiry markers, conditional writes.

use std::time::Duration;

use incumbent::lock::{
    Content, Entry, LockErrorKind, Reading, Record, Request, Revision, Tombstone,
};
use incumbent::protocol::{Answer, Failure};

/// Time of the simulated world, since its beginning.
pub type Time = Duration;

#[derive(Debug, Clone)]
pub struct Stored {
    pub record: Record,
    pub previous: Option<Revision>,
    pub expires: Time,
}

#[derive(Debug)]
pub struct Server {
    pub bucket_ttl: Duration,
    /// Whether the expiry of an entry leaves a marker.
    pub markers: bool,
    /// How old the bucket was when the world began.
    pub age: Duration,
    /// How far the server's clock has been stepped forward.
    pub stepped: Duration,
    /// Until when it is down.
    pub down_until: Time,
    pub last: Option<Stored>,
    pub revision: u64,
}

pub fn failure(kind: LockErrorKind, message: &str) -> Failure {
    Failure { kind, message: message.into() }
}

/// The answer to `request` where it failed.
pub fn failed(request: &Request, failure: Failure) -> Answer {
    match request {
        Request::Read { .. } => Answer::Read(Err(failure)),
        Request::Write(_) => Answer::Written(Err(failure)),
        Request::Release(_) => Answer::Released(Err(failure)),
        Request::Concede(_) => Answer::Conceded(Err(failure)),
    }
}

impl Server {
    pub fn new(bucket_ttl: Duration, markers: bool, age: Duration) -> Self {
        Self {
            bucket_ttl,
            markers,
            age,
            stepped: Duration::ZERO,
            down_until: Time::ZERO,
            last: None,
            revision: 0,
        }
    }

    pub fn is_up(&self, now: Time) -> bool {
        now >= self.down_until
    }

    pub fn last_revision(&self) -> Option<Revision> {
        self.last.as_ref().map(|stored| stored.record.revision)
    }

    /// Whether nothing under the key shows that nobody wrote for a bucket's TTL.
    pub fn empty_is_proof(&self, now: Time) -> bool {
        self.markers && self.age + now + self.stepped > self.bucket_ttl
    }

    /// Does what `request` asks, as a server does. The second answer: whether something was stored.
    pub fn apply(&mut self, now: Time, request: &Request) -> (Answer, bool) {
        let conflict = || failure(LockErrorKind::Conflict, "wrong last sequence");
        match request {
            Request::Read { .. } => {
                let reading = match &self.last {
                    Some(stored) => Reading::Found(stored.record.clone()),
                    None => Reading::Empty { proof: self.empty_is_proof(now) },
                };
                (Answer::Read(Ok(reading)), false)
            }
            Request::Write(write) if write.expected == self.last_revision() => {
                let entry = Entry {
                    identity: write.identity.clone(),
                    mark: Some(write.mark.clone()),
                    life: write.life,
                };
                let revision = self.store(now, Content::Held(entry), write.life);
                (Answer::Written(Ok(revision)), true)
            }
            Request::Release(release) if Some(release.expected) == self.last_revision() => {
                let tombstone = Tombstone::Released { by: release.by, left: release.left };
                self.store(now, Content::Vacant(tombstone), self.bucket_ttl);
                (Answer::Released(Ok(())), true)
            }
            Request::Write(_) => (Answer::Written(Err(conflict())), false),
            Request::Release(_) => (Answer::Released(Err(conflict())), false),
            Request::Concede(_) => (Answer::Conceded(Ok(())), false),
        }
    }

    pub fn store(&mut self, now: Time, content: Content, life: Duration) -> Revision {
        self.revision += 1;
        let revision = Revision(self.revision);
        let previous = self.last_revision();
        let record = Record { revision, content };
        self.last = Some(Stored { record, previous, expires: now + life });
        revision
    }

    /// Frees what has outlived its life. Answers whether a marker was stored.
    pub fn expire(&mut self, now: Time) -> bool {
        match &self.last {
            Some(stored) if now >= stored.expires => {
                if self.markers && matches!(stored.record.content, Content::Held(_)) {
                    self.store(now, Content::Vacant(Tombstone::Expired), self.bucket_ttl);
                    return true;
                }
                self.last = None;
                false
            }
            _ => false,
        }
    }

    pub fn step_clock(&mut self, by: Duration) {
        self.stepped += by;
        if let Some(stored) = &mut self.last {
            stored.expires = stored.expires.saturating_sub(by);
        }
    }
}
