//! The lock as the model has it: the server of the simulation, with one entry.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use incumbent::lock::{Content, LockErrorKind, Request};
use incumbent::protocol::Response;
use incumbent_sim::{Retention, Server, Stored, failure};

pub use incumbent_sim::Time;

use crate::config::Config;
use crate::key::Key;

/// One election's entry on a server.
#[derive(Debug, Clone)]
pub struct Entrance(Server);

/// The answer to `request` where it failed.
pub fn failed(request: &Request, kind: LockErrorKind) -> Response {
    incumbent_sim::failed(request, failure(kind, ""))
}

impl Entrance {
    pub fn new(config: &Config) -> Self {
        let &Config { ttl, retention, old, .. } = config;
        let mut server = Server::new(ttl, retention, if old { ttl } else { Duration::ZERO });
        server.tells_age = retention == Retention::LeavesMarkers;
        server.remembered = 0;
        Self(server)
    }

    pub fn holds_entry(&self) -> bool {
        self.last.as_ref().is_some_and(|last| matches!(last.record.content, Content::Held(_)))
    }

    /// When it frees what it holds.
    pub fn expires(&self) -> Option<Time> {
        self.last.as_ref().filter(|_| self.retention.frees()).map(|last| last.expires)
    }

    pub fn sketch(&self, now: Time, key: &mut Key) {
        key.duration(self.until_proof(now));
        if let Some(Stored { record, previous, .. }) = &self.last {
            key.record(record);
            key.maybe_revision(previous.flatten());
            key.duration(self.expires().map_or(Duration::ZERO, |at| at.saturating_sub(now)));
        }
    }
}

impl Deref for Entrance {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for Entrance {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
}
