//! The terms of one election, as they are registered with the sentinel.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::Sentinel;
use super::address::Kind;
use super::client::Client;
use super::wire::SentinelMessage;
use crate::lock::Nonce;
use crate::protocol::RegisteredTerm;

/// The terms of one election on its locks, as registered.
pub(crate) struct Registrations {
    election: Arc<str>,
    to: Registrar,
    /// By lock.
    registered: Vec<Option<RegisteredTerm>>,
}

enum Registrar {
    Client(Arc<Client>),
    Sink(Arc<dyn Fn(SentinelMessage) + Send + Sync>),
}

impl Registrations {
    /// `None` without a sentinel.
    pub fn new(election: &Arc<str>, sentinel: Sentinel, runtime: &Handle) -> Option<Self> {
        let to = match sentinel.0 {
            Kind::None => return None,
            Kind::Address(address) => Registrar::Client(Client::shared(&address, runtime)),
            Kind::Sink(sink) => Registrar::Sink(sink),
        };
        Some(Self { election: Arc::clone(election), to, registered: Vec::new() })
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
        let election = &self.election;
        match &mut self.to {
            Registrar::Sink(sink) => sink(SentinelMessage::of(Arc::clone(election), nonce, term)),
            Registrar::Client(client) => {
                if !client.set(election, nonce, term) {
                    // Its runtime is gone: the terms of this election are registered again.
                    *client = Client::shared(&client.address, &Handle::current());
                    for term in self.registered.iter().flatten() {
                        client.set(election, term.nonce, Some(*term));
                    }
                }
            }
        }
    }
}
