//! The terms of one election, as they are registered with the sentinel.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::Sentinel;
use super::client::Client;
use crate::lock::Nonce;
use crate::protocol::RegisteredTerm;

/// The terms of one election on its locks, as registered.
pub(crate) struct Registrations {
    election: Arc<str>,
    sentinel: Sentinel,
    client: Arc<Client>,
    /// By lock.
    registered: Vec<Option<RegisteredTerm>>,
}

impl Registrations {
    /// `None` without a sentinel.
    pub fn new(election: &Arc<str>, sentinel: Sentinel, runtime: &Handle) -> Option<Self> {
        sentinel.address()?;
        Some(Self {
            election: Arc::clone(election),
            client: Client::shared(&sentinel, runtime),
            sentinel,
            registered: Vec::new(),
        })
    }

    /// Registers what has changed. Does no I/O itself.
    ///
    /// Must be called from a task of the runtime.
    pub fn update(&mut self, terms: impl Iterator<Item = Option<RegisteredTerm>>) {
        for (lock, term) in terms.enumerate() {
            if self.registered.len() <= lock {
                self.registered.push(None);
            }
            let before = std::mem::replace(&mut self.registered[lock], term);
            if before != term
                && let Some(changed) = term.or(before)
            {
                self.send(changed.nonce, term);
            }
        }
    }

    fn send(&mut self, nonce: Nonce, term: Option<RegisteredTerm>) {
        let token = term.map(|term| term.token);
        if self.client.set(&self.election, nonce, token) {
            return;
        }
        // Its runtime is gone: the terms of this election are registered again.
        self.client = Client::shared(&self.sentinel, &Handle::current());
        for term in self.registered.iter().flatten() {
            self.client.set(&self.election, term.nonce, Some(term.token));
        }
    }
}
