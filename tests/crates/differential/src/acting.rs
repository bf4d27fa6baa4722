//! What was done to an election, and what the model makes of it.

use std::time::Duration;

use incumbent::lock::{Content, Entry, LockErrorKind, Reading, Release, Request, Revision, Write};
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
    /// An operation of another program, over a given revision if it has one.
    Deed(Deed, Option<Revision>),
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
            Act::Deed(deed, expected) => return self.commit(at, *deed, *expected),
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

    /// Answers whether another program's operation stored something.
    fn commit(
        &mut self,
        at: Time,
        deed: Deed,
        expected: Option<Revision>,
    ) -> Result<bool, LockErrorKind> {
        if self.object.is_some() {
            return self.commit_to_object(at, deed);
        }
        if !self.server.exists(at) {
            return Err(LockErrorKind::Unavailable);
        }
        let before = self.server.last_revision();
        let expected = expected.filter(|_| deed == Deed::PutOver).map(|real| self.known(real));
        match deed {
            Deed::Delete => self.server.delete(at),
            Deed::Purge => self.server.purge(at),
            Deed::Vanish => {
                self.server.vanish();
                return Ok(false);
            }
            Deed::Touch => {}
            Deed::Put | Deed::PutOver => {
                // Who updates a row that is not there writes nothing.
                let no_row = self.server.retention == Retention::Rows && before.is_none();
                if no_row || (expected.is_some() && before != expected) {
                    return Err(LockErrorKind::Conflict);
                }
                let ttl = self.server.bucket_ttl;
                let (identity, mark, advertisement) = (FOREIGN.into(), None, None);
                let entry = Entry { identity, mark, ttl, advertisement };
                self.server.store(at, Content::Held(entry), ttl);
            }
            _ => return Err(LockErrorKind::Misconfigured),
        }
        let stored = self.server.last_revision() != before;
        if stored {
            self.will_deliver();
        }
        Ok(stored)
    }

    fn commit_to_object(&mut self, at: Time, deed: Deed) -> Result<bool, LockErrorKind> {
        let Some(object) = &mut self.object else { return Ok(false) };
        let term = self.server.bucket_ttl;
        match deed {
            Deed::Delete => object.delete(),
            Deed::PutNumbered(number) => {
                object.overwrite(at, number, FOREIGN, term);
            }
            Deed::Spoil => object.spoil(),
            Deed::Save => object.save(),
            Deed::PutBack => object.put_back(),
            Deed::Restore if !object.restore() => {
                return Err(LockErrorKind::Conflict);
            }
            _ => {}
        }
        Ok(true)
    }
}
