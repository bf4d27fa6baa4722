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
        self.replace_closed_client();
        for (lock, term) in terms.enumerate() {
            if self.registered.len() <= lock {
                self.registered.push(None);
            }
            let before = std::mem::replace(&mut self.registered[lock], term);
            // A candidate that has a twin continues under another nonce.
            let nonce = term.map(|term| term.nonce);
            if let Some(gone) = before.filter(|before| nonce != Some(before.nonce)) {
                self.send(gone.nonce, None);
            }
            if let Some(term) = term.filter(|_| before != term) {
                self.send(term.nonce, Some(term));
            }
        }
    }

    fn send(&mut self, nonce: Nonce, term: Option<RegisteredTerm>) {
        let election = &self.election;
        match &mut self.to {
            Registrar::Sink(sink) => sink(SentinelMessage::of(Arc::clone(election), nonce, term)),
            Registrar::Client(client) => client.set(election, nonce, term),
        }
    }

    /// Registers the terms again if the runtime of the client is gone: it may be that of another
    /// election of this process.
    fn replace_closed_client(&mut self) {
        if let Registrar::Client(client) = &mut self.to
            && client.is_closed()
        {
            *client = Client::shared(&client.address, &Handle::current());
            for term in self.registered.iter().flatten() {
                client.set(&self.election, term.nonce, Some(*term));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::UnixListener;
    use tokio::time::timeout;

    use super::*;
    use crate::lock::Token;
    use crate::util::locked;

    /// Its twin leads by the first nonce and the same token: the sentinel must not release that.
    #[tokio::test]
    async fn a_term_that_continues_under_another_nonce_is_registered_once() {
        let sent: Arc<Mutex<Vec<_>>> = Arc::default();
        let sink = Arc::clone(&sent);
        let sink = Arc::new(move |message: SentinelMessage| locked(&sink).push(message));
        let sentinel = Sentinel(Kind::Sink(sink));
        let mut registrations =
            Registrations::new(&"e".into(), sentinel, &Handle::current()).expect("a sentinel");
        let term = |nonce| RegisteredTerm { nonce: Nonce(nonce), token: Token(5), create: 1 };
        let message = |nonce, term| SentinelMessage::of("e".into(), Nonce(nonce), term);
        for term in [Some(term(1)), Some(term(1)), Some(term(2)), None] {
            registrations.update([term].into_iter());
        }
        let expected = [
            message(1, Some(term(1))),
            message(1, None),
            message(2, Some(term(2))),
            message(2, None),
        ];
        assert_eq!(*locked(&sent), expected);
    }

    #[tokio::test]
    async fn terms_are_registered_again_once_the_runtime_of_the_client_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = folder.path().join("sentinel");
        let listener = UnixListener::bind(&address).expect("a socket");
        let other = tokio::runtime::Runtime::new().expect("a runtime");
        let sentinel = Sentinel(Kind::Address(address));
        let mut registrations =
            Registrations::new(&"my_app".into(), sentinel, other.handle()).expect("a sentinel");
        let term = RegisteredTerm { nonce: Nonce(1), token: Token(5), create: 1 };
        let registered = async |registrations: &mut Registrations| {
            registrations.update([Some(term)].into_iter());
            let accepted = timeout(Duration::from_secs(60), listener.accept()).await;
            let (mut stream, _) = accepted.expect("in time").expect("the client");
            let mut line = String::new();
            BufReader::new(&mut stream).read_line(&mut line).await.expect("a message");
            assert!(line.contains("hello"), "{line}"); // it comes once there is a term
            stream
        };
        let _first = registered(&mut registrations).await;
        other.shutdown_background();
        let Registrar::Client(client) = &registrations.to else { panic!("no client") };
        while !client.is_closed() {
            tokio::task::yield_now().await;
        }
        registered(&mut registrations).await;
    }
}
