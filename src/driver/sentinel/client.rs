//! The connection of this process to its sentinel, which all its elections share.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{info, warn};

use super::address::connect;
use super::start_time::start_time;
use super::wire::{
    HEARTBEAT, MAX_LINE, SentinelMessage, SentinelReply, VERSION, encode, read_message,
};
use crate::lock::Nonce;
use crate::protocol::RegisteredTerm;
use crate::telemetry;
use crate::util::locked;
use crate::util::retry::BackendRetries;
use crate::util::text::escape_line;

/// The most bytes of a sentinel's text in a log line.
const MAX_TEXT_SHOWN: usize = 512;

/// How long a sentinel that works may be silent.
const SILENCE: Duration = HEARTBEAT.saturating_mul(3);

/// Which candidate a term is of: the election, and the nonce.
type Key = (Arc<str>, u64);

/// A handle on the task that holds the connection. The task ends with the last handle.
pub(super) struct Client {
    pub address: PathBuf,
    changes: mpsc::UnboundedSender<(Key, Option<RegisteredTerm>)>,
}

/// The clients of this process.
static CLIENTS: Mutex<BTreeMap<PathBuf, Weak<Client>>> = Mutex::new(BTreeMap::new());

impl Client {
    /// The client of this sentinel; it is spawned on `runtime` if there is none.
    pub fn shared(address: &Path, runtime: &Handle) -> Arc<Self> {
        let mut clients = locked(&CLIENTS);
        clients.retain(|_, client| client.strong_count() > 0);
        let known = clients.get(address).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|client| !client.is_closed()) {
            return known;
        }
        let (changes, receiver) = mpsc::unbounded_channel();
        let client = Arc::new(Self { address: address.to_owned(), changes });
        clients.insert(address.to_owned(), Arc::downgrade(&client));
        runtime.spawn(Task::new(address.to_owned(), receiver).run());
        client
    }

    /// Registers the term of a candidate, or removes it, unless [`is_closed`](Self::is_closed).
    pub fn set(&self, election: &Arc<str>, nonce: Nonce, term: Option<RegisteredTerm>) {
        let _ = self.changes.send(((Arc::clone(election), nonce.0), term));
    }

    /// Whether the task is gone, with its runtime.
    pub fn is_closed(&self) -> bool {
        self.changes.is_closed()
    }
}

/// Holds the connection, and registers what is to be registered.
struct Task {
    address: PathBuf,
    changes: mpsc::UnboundedReceiver<(Key, Option<RegisteredTerm>)>,
    terms: BTreeMap<Key, RegisteredTerm>,
    /// What the sentinel does not know yet.
    unsent: BTreeSet<Key>,
    /// Whether the last attempt failed.
    failing: bool,
}

/// The last handle is gone.
struct Closed;

impl Task {
    fn new(
        address: PathBuf,
        changes: mpsc::UnboundedReceiver<(Key, Option<RegisteredTerm>)>,
    ) -> Self {
        let (terms, unsent) = (BTreeMap::new(), BTreeSet::new());
        Self { address, changes, terms, unsent, failing: false }
    }

    async fn run(mut self) {
        let mut retries = BackendRetries::unseeded();
        loop {
            // A process that never leads never connects.
            while self.terms.is_empty() {
                let Ok(()) = self.change().await else { return };
            }
            let Err(why) = self.serve(&mut retries).await else { return };
            telemetry::sentinel_up(false);
            if !std::mem::replace(&mut self.failing, true) {
                warn!(
                    sentinel = %self.address.display(), error = %escape_line(&why.to_string(), MAX_TEXT_SHOWN),
                    "no sentinel: after a crash the lease decides"
                );
            }
            let pause = tokio::time::sleep(retries.delay());
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    changed = self.change() => if changed.is_err() { return },
                    () = &mut pause => break,
                }
            }
        }
    }

    /// Takes the next change. Cancel safe.
    async fn change(&mut self) -> Result<(), Closed> {
        let (key, term) = self.changes.recv().await.ok_or(Closed)?;
        let before = match term {
            Some(term) => self.terms.insert(key.clone(), term),
            None => self.terms.remove(&key),
        };
        if before != term {
            self.unsent.insert(key);
        }
        Ok(())
    }

    /// Serves one connection. Returns `Ok` with the last handle.
    async fn serve(&mut self, retries: &mut BackendRetries) -> io::Result<()> {
        let (reader, mut writer) = connect(&self.address).await?.into_split();
        let mut reader = BufReader::new(reader);
        let started = start_time(None).unwrap_or_default();
        let mut out = encode(&SentinelMessage::Hello { version: VERSION, started });
        self.unsent = self.terms.keys().cloned().collect();
        let mut reply = Vec::new();
        let silence = tokio::time::sleep(SILENCE);
        tokio::pin!(silence);
        loop {
            // A sentinel that does not read holds up nothing but this.
            while out.len() < MAX_LINE
                && let Some(key) = self.unsent.pop_first()
            {
                out.extend(encode(&self.message(key)));
            }
            tokio::select! {
                biased; // what has been sent is read before silence counts
                changed = self.change() => if changed.is_err() { return Ok(()) },
                read = read_message(&mut reader, &mut reply) => {
                    self.on_reply(read?, retries)?;
                    silence.as_mut().reset(Instant::now() + SILENCE);
                }
                written = writer.write(&out), if !out.is_empty() => {
                    out.drain(..written?);
                }
                () = &mut silence => return Err(io::Error::other("it does not respond")),
            }
        }
    }

    fn message(&self, key: Key) -> SentinelMessage {
        let nonce = Nonce(key.1);
        let term = self.terms.get(&key).copied();
        SentinelMessage::of(key.0, nonce, term)
    }

    fn on_reply(&mut self, reply: SentinelReply, retries: &mut BackendRetries) -> io::Result<()> {
        match reply {
            SentinelReply::Watching { .. } => {
                *retries = BackendRetries::unseeded();
                telemetry::sentinel_up(true);
                if std::mem::take(&mut self.failing) {
                    info!(sentinel = %self.address.display(), "the sentinel is back");
                }
            }
            SentinelReply::Refused { reason } => {
                return Err(io::Error::other(format!("refused: {reason}")));
            }
            SentinelReply::Unable { election, reason } => warn!(
                %election, reason = %escape_line(&reason, MAX_TEXT_SHOWN),
                "the sentinel cannot release this election: after a crash the lease decides"
            ),
            SentinelReply::Status { .. } => {}
        }
        Ok(())
    }
}
