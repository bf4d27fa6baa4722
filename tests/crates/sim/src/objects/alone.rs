//! One lock on one object, with nothing between them: what the store and the lock are, without what
//! happens to requests.

use std::time::Duration;

use incumbent::lock::{LockErrorKind, Reading, Request, Revision};
use incumbent::protocol::Response;
use incumbent::seen::{Known, SeenRevisions};
use incumbent::vimeo_timing::VimeoTiming;

use super::requests::body_of;
use super::store::{Body, Said, Store, Version};
use crate::server::{Time, failed, failure};
/// A store, and a lock that knows of its object what it has seen.
#[derive(Debug, Clone)]
pub struct LoneLock {
    store: Store,
    election: SeenRevisions<Version>,
    /// A copy of an earlier content.
    saved: Option<Body>,
}

impl LoneLock {
    /// `hashed`: versions come back with their content. Wall clocks agree.
    pub fn new(hashed: bool, longest: Duration) -> Self {
        let mut store = Store::new(hashed, longest);
        store.terms = VimeoTiming { longest, skew: Duration::ZERO };
        Self { store, election: SeenRevisions::default(), saved: None }
    }

    /// The greatest revision that the lock has seen.
    pub fn newest(&self) -> Option<Revision> {
        self.election.newest()
    }

    /// Executes `request`. The second value: whether something was stored.
    pub fn apply(&mut self, now: Time, request: &Request) -> (Response, bool) {
        let expected = match request {
            Request::Write(write) => write.expected,
            Request::Release(release) => Some(release.expected),
            Request::Read { .. } => {
                let read = self.look(now).map(|found| match found {
                    Some(known) => Reading::Found(known.record()),
                    None => Reading::Empty { proof: false },
                });
                return (Response::Read(read.map_err(|kind| failure(kind, ""))), false);
            }
            Request::NotifyStepDown(_) => return (Response::Notified(Ok(())), false),
        };
        let terms = self.store.terms;
        let wall = Store::wall(now, 0);
        let body = |number, _: Option<&Known<Version>>| body_of(request, number, terms, wall);
        match (self.put(now, expected, body), request) {
            (Err(kind), _) => (failed(request, failure(kind, "")), false),
            (Ok(_), Request::Release(_)) => (Response::Released(Ok(())), true),
            (Ok(revision), _) => (Response::Written(Ok(revision)), true),
        }
    }

    fn look(&self, now: Time) -> Result<Option<Known<Version>>, LockErrorKind> {
        let before = self.election.before();
        let Some(object) = &self.store.object else {
            self.election.forget(&before);
            return Ok(None);
        };
        let terms = self.store.terms;
        let content = object.body.content(terms, Store::wall(now, 0));
        let content = content.ok_or(LockErrorKind::Misconfigured)?;
        let (version, number) = (object.version, object.body.number);
        Ok(Some(self.election.found(&before, version, number, content, terms.longest)))
    }

    fn put(
        &mut self,
        now: Time,
        expected: Option<Revision>,
        body: impl FnOnce(u64, Option<&Known<Version>>) -> Option<Body>,
    ) -> Result<Revision, LockErrorKind> {
        let known = match (expected, self.election.known()) {
            (Some(_), None) => self.look(now)?,
            (Some(_), known) => known,
            (None, _) => None,
        };
        if known.as_ref().map(|known| known.revision) != expected {
            return Err(LockErrorKind::Conflict);
        }
        let wall = Store::wall(now, 0);
        let number = self.election.next_number(known.as_ref(), wall.as_millis() as u64);
        let body = body(number, known.as_ref()).ok_or(LockErrorKind::Misconfigured)?;
        let over = known.map(|known| known.version);
        let version = self.store.put(over, &body).ok_or(LockErrorKind::Conflict)?;
        let content = body.content(self.store.terms, wall).ok_or(LockErrorKind::Misconfigured)?;
        let revision = Revision(number + 1);
        self.election.learn(Known { version, number, revision, content });
        Ok(revision)
    }

    /// An administrator deletes the object.
    pub fn delete(&mut self) {
        self.store.delete();
    }

    /// An administrator overwrites the object, as `identity` with a term that ends so much later.
    pub fn overwrite(&mut self, now: Time, number: u64, identity: &str, term: Duration) {
        let expiry = Store::wall(now, 0) + term;
        self.store.overwrite(Body { number, expiry, said: Said::Named(identity.into()) });
    }

    /// An administrator writes unreadable content.
    pub fn spoil(&mut self) {
        self.store.overwrite(Body { number: 0, expiry: Duration::ZERO, said: Said::Junk });
    }

    /// An administrator deletes the object, and puts the same content back.
    pub fn put_back(&mut self) {
        if let Some(object) = self.store.object.clone() {
            self.store.delete();
            self.store.overwrite(object.body);
        }
    }

    /// An administrator keeps a copy of the object, if there is one.
    pub fn save(&mut self) {
        if let Some(object) = &self.store.object {
            self.saved = Some(object.body.clone());
        }
    }

    /// An administrator puts the copy back. Returns whether there is one.
    pub fn restore(&mut self) -> bool {
        let saved = self.saved.clone();
        let restored = saved.map(|body| self.store.overwrite(body));
        restored.is_some()
    }
}
