//! One election key on a server: revisions, per-write lives, tombstones, expiry markers,
//! conditional writes.

use std::collections::VecDeque;
use std::time::Duration;

use incumbent::lock::{
    Capabilities, Content, Entry, LockErrorKind, Reading, Record, Request, Revision, Tombstone,
};
use incumbent::protocol::{LockFailure, MIN_LEASE, Response};

use crate::tampering::is_release;

/// What becomes of an entry without renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// It is gone once its life is over.
    Expires,
    /// It is gone once its life is over, and a marker is left in its place.
    LeavesMarkers,
    /// It stays, and candidates judge for themselves.
    Forever,
    /// A row of a database: it stays, tombstones too, and a read reports whether its life is over
    /// by the server's clock.
    Rows,
    /// An object of a bucket: it stays, and candidates judge for themselves.
    Objects {
        /// Whether the version of a content comes back with it, as S3's ETags do.
        hashed: bool,
    },
}

impl Retention {
    /// Whether nothing under a key can show that there was no write for a bucket's TTL: whatever is
    /// written must leave something behind for as long.
    pub fn vouches(self, per_write_ttl: bool) -> bool {
        match self {
            Self::Expires => !per_write_ttl,
            Self::LeavesMarkers | Self::Rows => true,
            Self::Forever | Self::Objects { .. } => false,
        }
    }

    /// Whether the lock frees an entry by itself.
    pub fn frees(self) -> bool {
        matches!(self, Self::Expires | Self::LeavesMarkers)
    }
}

/// The shortest life of a message.
const MIN_LIFE: Duration = Duration::from_secs(1);

/// Time of the simulated world, since its beginning.
pub type Time = Duration;

#[derive(Debug, Clone)]
pub struct Stored {
    pub record: Record,
    /// What it replaced; `None`: that is not known, as something may have been lost between the
    /// two.
    pub previous: Option<Option<Revision>>,
    pub expires: Time,
    /// The life that its writer requested.
    life: Duration,
    /// Whether it leaves no marker when its time has come: it is of a release, or of a purge.
    unmarked: bool,
    /// On which history of the server its last candidate wrote.
    history: u64,
}

impl Stored {
    /// The stored entry, if its life is over.
    fn as_expired(&self) -> Record {
        match self.record.content {
            Content::Held(_) => {
                let content = Content::Vacant(Tombstone::Expired);
                Record { revision: self.record.revision, content }
            }
            Content::Vacant(_) => self.record.clone(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Server {
    pub bucket_ttl: Duration,
    pub retention: Retention,
    /// Whether a write may have a TTL of its own (from nats-server 2.11 on).
    pub per_write_ttl: bool,
    /// Whether its age can be read.
    pub tells_age: bool,
    /// Whether it knows the time of writes by programs that do not know this library: a SQLite
    /// file does not.
    pub dates_foreign: bool,
    /// How old the bucket was when the world began.
    pub age: Duration,
    /// When it was made, if after that.
    made: Time,
    /// How far the server's wall clock has been stepped, in milliseconds.
    stepped: i64,
    /// Until when it is down.
    pub down_until: Time,
    pub last: Option<Stored>,
    pub revision: u64,
    /// The state before each of the last writes.
    past: VecDeque<(Option<Stored>, u64)>,
    /// How many of them can be forgotten.
    pub remembered: usize,
    /// How often another server has taken over.
    pub history: u64,
    /// Whether a write is acknowledged only once a replica has it.
    pub synchronous: bool,
    /// Until when that replica does not answer.
    replica_away_until: Time,
    /// How many of the last writes it lacks.
    lacking: usize,
    /// What the last holder that released its entry left behind.
    pub last_release: Option<Content>,
}

pub fn failure(kind: LockErrorKind, message: &str) -> LockFailure {
    LockFailure::new(kind, message)
}

/// The answer to `request` where it failed.
pub fn failed(request: &Request, failure: LockFailure) -> Response {
    match request {
        Request::Read { .. } => Response::Read(Err(failure)),
        Request::Write(_) => Response::Written(Err(failure)),
        Request::Release(_) => Response::Released(Err(failure)),
        Request::NotifyStepDown(_) => Response::Notified(Err(failure)),
    }
}

impl Server {
    pub fn new(bucket_ttl: Duration, retention: Retention, age: Duration) -> Self {
        Self {
            bucket_ttl,
            retention,
            per_write_ttl: true,
            tells_age: true,
            dates_foreign: true,
            age,
            made: Time::ZERO,
            stepped: 0,
            down_until: Time::ZERO,
            last: None,
            revision: 0,
            past: VecDeque::new(),
            remembered: 8,
            history: 0,
            synchronous: false,
            replica_away_until: Time::ZERO,
            lacking: 0,
            last_release: None,
        }
    }

    /// Whether there is a bucket.
    pub fn exists(&self, now: Time) -> bool {
        now >= self.made
    }

    pub fn is_up(&self, now: Time) -> bool {
        now >= self.down_until
    }

    pub fn last_revision(&self) -> Option<Revision> {
        self.last.as_ref().map(|stored| stored.record.revision)
    }

    /// Whether nothing under the key shows that there was no write for a bucket's TTL.
    pub fn empty_is_proof(&self, now: Time) -> bool {
        let is_whole = self.history == 0; // a first write can be lost too
        self.vouches() && is_whole && self.until_proof(now).is_zero()
    }

    /// Whether nothing under a key can show that there was no write for a bucket's TTL.
    pub fn vouches(&self) -> bool {
        self.tells_age && self.retention.vouches(self.per_write_ttl)
    }

    /// As a lock on it states them. `old`: whether it was made before the time in which a lease
    /// could have been held.
    pub fn capabilities(&self, old: bool) -> Capabilities {
        let frees = self.retention.frees();
        Capabilities {
            min_lease: MIN_LEASE,
            max_lease: self.bucket_ttl,
            can_read: true,
            empty_is_proof: self.vouches() && frees && old,
            expires_entries: frees,
            reads_are_durable: true,
            max_identity_len: 100,
        }
    }

    /// From when on a read reports the life of the stored entry as over.
    pub fn judged_at(&self) -> Option<Time> {
        let Stored { record, expires, history, .. } = self.last.as_ref()?;
        let Content::Held(entry) = &record.content else { return None };
        let is_dated = self.dates_foreign || entry.mark.is_some();
        // The clock of one server proves nothing about writes by that of another.
        let is_judged = self.retention == Retention::Rows && is_dated && *history == self.history;
        is_judged.then_some(*expires)
    }

    /// For how long the bucket is still younger than its TTL.
    pub fn until_proof(&self, now: Time) -> Duration {
        let age = (self.age + now.saturating_sub(self.made)).as_millis() as i64 + self.stepped;
        let left = self.bucket_ttl.as_millis() as i64 - age;
        Duration::from_millis(left.max(0) as u64)
    }

    /// Executes `request`, as a server does. The second value: whether something was stored.
    pub fn apply(&mut self, now: Time, request: &Request) -> (Response, bool) {
        let conflict = || failure(LockErrorKind::Conflict, "wrong last sequence");
        if !self.exists(now) {
            return (failed(request, failure(LockErrorKind::Unavailable, "no such bucket")), false);
        }
        let lost = !self.synchronous
            && self.last.as_ref().is_some_and(|last| last.history != self.history);
        match request {
            // What was written on another history may not be the last of it: from here on nothing
            // counts.
            Request::Read { .. } if lost => {
                self.revision += 1_000_000 * (self.history + 1);
                self.store(now, Content::Vacant(Tombstone::Deleted), self.bucket_ttl);
                if let Some(last) = &mut self.last {
                    (last.history, last.previous) = (self.history, None);
                }
                let (answer, _) = self.apply(now, request);
                (answer, true)
            }
            Request::Write(_) | Request::Release(_) if lost => (failed(request, conflict()), false),
            Request::Read { .. } => {
                let empty = Reading::Empty { proof: self.empty_is_proof(now) };
                let reading = self.shown(now).map_or(empty, Reading::Found);
                (Response::Read(Ok(reading)), false)
            }
            Request::Write(write) if write.expected == self.last_revision() => {
                let entry = Entry {
                    identity: write.identity.clone(),
                    mark: Some(write.mark.clone()),
                    ttl: self.kept_for(write.ttl),
                    advertisement: write.advertisement.clone(),
                };
                let revision = self.store(now, Content::Held(entry), write.ttl);
                (Response::Written(Ok(revision)), true)
            }
            Request::Release(release) if Some(release.expected) == self.last_revision() => {
                let cause = Some(release.cause.into());
                let tombstone = Tombstone::Released {
                    by: release.by,
                    left: release.left,
                    cause,
                    to: release.to,
                    pause: release.pause,
                };
                self.store(now, Content::Vacant(tombstone), self.bucket_ttl);
                self.leave_no_marker();
                (Response::Released(Ok(())), true)
            }
            Request::Write(_) => (Response::Written(Err(conflict())), false),
            Request::Release(_) => (Response::Released(Err(conflict())), false),
            Request::NotifyStepDown(_) => (Response::Notified(Ok(())), false),
        }
    }

    pub fn store(&mut self, now: Time, content: Content, life: Duration) -> Revision {
        self.remember();
        self.revision += 1;
        self.lacking += usize::from(self.lacks_its_replica(now));
        let mut previous = Some(self.last_revision());
        let mut history = self.last.as_ref().map_or(self.history, |last| last.history);
        if self.synchronous && history != self.history {
            // The server of before may have given out the next revision as well.
            self.revision += 1_000_000 * (self.history + 1);
            (previous, history) = (None, self.history);
        }
        let revision = Revision(self.revision);
        if is_release(&content) {
            self.last_release = Some(content.clone());
        }
        let record = Record { revision, content };
        let expires = now + self.kept_for(life);
        self.last = Some(Stored { record, previous, expires, life, unmarked: false, history });
        revision
    }

    /// An operator changes the bucket's TTL, which counts for what is stored already.
    pub fn change_ttl(&mut self, ttl: Duration) {
        let before = self.last.as_ref().map(|stored| self.kept_for(stored.life));
        self.bucket_ttl = ttl;
        let after = self.last.as_ref().map(|stored| self.kept_for(stored.life));
        if let (Some(stored), Some(before), Some(after)) = (&mut self.last, before, after) {
            stored.expires = (stored.expires + after).saturating_sub(before);
        }
    }

    /// How long a message stays whose writer requests `life`: a bucket keeps none for longer than
    /// its TTL (`max_age`), and all for just that long where a write cannot have a TTL of its
    /// own.
    fn kept_for(&self, life: Duration) -> Duration {
        match self.retention {
            Retention::Expires if !self.per_write_ttl => self.bucket_ttl,
            retention if retention.frees() => life.max(MIN_LIFE).min(self.bucket_ttl),
            _ => life,
        }
    }

    /// What a read shows.
    pub fn shown(&self, now: Time) -> Option<Record> {
        let expired = self.judged_at().is_some_and(|at| now >= at);
        let shown = |stored: &Stored| match expired {
            true => stored.as_expired(),
            false => stored.record.clone(),
        };
        self.last.as_ref().map(shown)
    }

    /// Frees what has outlived its life. Answers whether a marker was stored.
    pub fn expire(&mut self, now: Time) -> bool {
        match &self.last {
            _ if !self.retention.frees() => false,
            Some(stored) if now >= stored.expires => {
                if self.leaves_marker() {
                    self.store_marker(now);
                    return true;
                }
                self.remember();
                self.last = None;
                false
            }
            _ => false,
        }
    }

    /// Whether a marker takes the place of what is stored once its life is over. A deletion leaves
    /// one, too; a marker does not.
    pub fn leaves_marker(&self) -> bool {
        let marker = Content::Vacant(Tombstone::Expired);
        self.retention == Retention::LeavesMarkers
            && self.last.as_ref().is_some_and(|it| !it.unmarked && it.record.content != marker)
    }

    /// Stores a marker, whatever it takes the place of.
    pub fn store_marker(&mut self, now: Time) {
        self.store(now, Content::Vacant(Tombstone::Expired), self.bucket_ttl);
    }

    fn leave_no_marker(&mut self) {
        if let Some(last) = &mut self.last {
            last.unmarked = true;
        }
    }

    pub fn step_clock(&mut self, by_ms: i16) {
        self.stepped += i64::from(by_ms);
        let by = Duration::from_millis(u64::from(by_ms.unsigned_abs()));
        if let Some(stored) = &mut self.last {
            let expires = stored.expires;
            stored.expires = if by_ms < 0 { expires + by } else { expires.saturating_sub(by) };
        }
    }

    /// The bucket is deleted; at `made` there is one again.
    pub fn remake(&mut self, made: Time) {
        self.last = None;
        self.past.clear();
        (self.age, self.made, self.stepped) = (Duration::ZERO, made, 0);
    }

    /// Whatever kept it from serving is over.
    pub fn recover(&mut self, now: Time) {
        self.down_until = self.down_until.min(now);
        self.made = self.made.min(now);
        self.replica_away_until = self.replica_away_until.min(now);
    }

    /// An administrator deletes the entry: a server without tombstones then knows of none, and a
    /// row that is not there leaves none.
    pub fn delete(&mut self, now: Time) {
        match self.retention {
            Retention::Forever => self.last = None,
            Retention::Rows if self.last.is_none() => {}
            _ => drop(self.store(now, Content::Vacant(Tombstone::Deleted), self.bucket_ttl)),
        }
    }

    /// An administrator purges the key, as `nats kv purge` does it.
    pub fn purge(&mut self, now: Time) {
        self.delete(now);
        self.leave_no_marker();
    }

    /// What is stored is removed without a trace.
    pub fn vanish(&mut self) {
        self.last = None;
    }

    /// The last `writes` are lost, though they were acknowledged.
    pub fn forget(&mut self, writes: usize) {
        let kept = self.past.len().saturating_sub(writes);
        if let Some((last, revision)) = self.past.drain(kept..).next() {
            (self.last, self.revision) = (last, revision);
        }
    }

    /// Whether a write that is stored now is not acknowledged.
    pub fn lacks_its_replica(&self, now: Time) -> bool {
        self.synchronous && now < self.replica_away_until
    }

    pub fn lose_replica(&mut self, now: Time, until: Time) {
        if !self.lacks_its_replica(now) {
            self.lacking = 0; // it has caught up
        }
        self.replica_away_until = self.replica_away_until.max(until);
    }

    /// A replica takes over that lacks the last `writes`; a synchronous one lacks those that were
    /// not acknowledged.
    pub fn fail_over(&mut self, now: Time, writes: usize) {
        let lacking = if self.lacks_its_replica(now) { self.lacking } else { 0 };
        self.forget(if self.synchronous { lacking } else { writes });
        self.replica_away_until = now;
        self.past.clear();
        self.history += 1;
        if self.last.is_none() {
            // A first write is numbered by the time.
            self.revision += 1_000_000;
        }
    }

    fn remember(&mut self) {
        if self.remembered == 0 {
            return;
        }
        if self.past.len() == self.remembered {
            self.past.pop_front();
        }
        self.past.push_back((self.last.clone(), self.revision));
    }
}
