//! What was done to an election, and what the model makes of it.

use std::time::Duration;

use incumbent::lock::{Content, LockErrorKind, Reading, Release, Request, Revision, Write};
use incumbent::protocol::Response;
use incumbent_sim::{Retention, Time};

use crate::branch::Branch;
use crate::store::Deed;

/// The identity of a writer that does not know this library.
pub const FOREIGN: &str = "junk";

/// What was done to an election.
#[derive(Debug, Clone)]
pub enum Act {
    /// A read.
    Read,
    /// A conditional write.
    Write(Write),
    /// A conditional delete by the holder.
    Release(Release),
    /// An eviction by an operator.
    Evict(Revision),
    /// A delete by an administrator.
    Delete,
    /// The same, by a purge of the key.
    Purge,
    /// What is stored was removed without a trace.
    Vanish,
    /// A write by another program, over a given revision if it has one.
    Put(Content, Option<Revision>),
    /// A write that changes nothing of the entry.
    Touch,
    /// A write that the store must refuse.
    Invalid,
    /// An operation of another program on an object.
    ToObject(Deed),
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// What a read found.
    Read(Result<Reading, LockErrorKind>),
    /// Whether something was stored, and as which revision, where that was returned.
    Stored(Result<Option<Revision>, LockErrorKind>),
}

impl Branch {
    pub fn apply(&mut self, at: Time, request: &Request) -> (Response, bool) {
        match &mut self.object {
            Some(object) => object.apply(at, request),
            None => self.server.apply(at, request),
        }
    }

    /// Answers whether something was stored.
    pub fn act(&mut self, at: Time, act: &Act) -> Result<bool, LockErrorKind> {
        let request = match act {
            Act::Read => return Ok(false),
            Act::Write(write) => {
                let expected = write.expected.map(|real| self.known(real));
                Request::Write(Write { expected, ..write.clone() })
            }
            Act::Release(release) => {
                let expected = self.known(release.expected);
                Request::Release(Release { expected, ..release.clone() })
            }
            Act::Evict(expected) => match self.eviction(at, self.known(*expected))? {
                Some(eviction) => Request::Release(eviction),
                None => return Ok(false),
            },
            _ if self.object.is_some() => return self.act_on_object(at, act),
            _ if !self.server.exists(at) => return Err(LockErrorKind::Unavailable),
            Act::Put(_, Some(expected))
                if self.server.last_revision() != Some(self.known(*expected)) =>
            {
                return Err(LockErrorKind::Conflict);
            }
            Act::Delete | Act::Purge => {
                let before = self.server.last_revision();
                match act {
                    Act::Purge => self.server.purge(at),
                    _ => self.server.delete(at),
                }
                let stored = self.server.last_revision() != before;
                if stored {
                    self.will_deliver();
                }
                return Ok(stored);
            }
            Act::Vanish => {
                self.server.vanish();
                return Ok(false);
            }
            Act::Touch => return Ok(false),
            Act::Invalid | Act::ToObject(_) => return Err(LockErrorKind::Misconfigured),
            // Who updates a row that is not there writes nothing.
            Act::Put(..)
                if self.server.retention == Retention::Rows && self.server.last.is_none() =>
            {
                return Err(LockErrorKind::Conflict);
            }
            Act::Put(content, _) => {
                let life = self.server.bucket_ttl;
                self.server.store(at, content.clone(), life);
                self.will_deliver();
                return Ok(true);
            }
        };
        let (answer, stored) = self.apply(at, &request);
        if stored {
            self.will_deliver();
        }
        match answer {
            Response::Written(Err(failure)) | Response::Released(Err(failure)) => Err(failure.kind),
            _ => Ok(stored),
        }
    }

    /// What an eviction stores; `None`: there is no holder.
    fn eviction(&mut self, at: Time, expected: Revision) -> Result<Option<Release>, LockErrorKind> {
        let (found, _) = self.apply(at, &Request::Read { timeout: Duration::ZERO });
        let record = match found {
            Response::Read(Ok(Reading::Found(record))) if record.revision == expected => record,
            Response::Read(Err(failure)) => return Err(failure.kind),
            _ => return Err(LockErrorKind::Conflict),
        };
        let expires = self.object.is_none() && self.server.retention.frees();
        Ok(Release::evicting(&record, self.server.bucket_ttl, expires, Duration::ZERO))
    }

    fn act_on_object(&mut self, at: Time, act: &Act) -> Result<bool, LockErrorKind> {
        let Some(object) = &mut self.object else { return Ok(false) };
        let term = self.server.bucket_ttl;
        match act {
            Act::Delete => object.delete(),
            Act::ToObject(Deed::PutNumbered(number)) => {
                object.overwrite(at, *number, FOREIGN, term);
            }
            Act::ToObject(Deed::Spoil) => object.spoil(),
            Act::ToObject(Deed::Save) => object.save(),
            Act::ToObject(Deed::PutBack) => object.put_back(),
            Act::ToObject(Deed::Restore) if !object.restore() => {
                return Err(LockErrorKind::Conflict);
            }
            _ => {}
        }
        Ok(true)
    }
}
