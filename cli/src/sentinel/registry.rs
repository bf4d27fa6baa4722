//! The processes that registered terms, and the release of their entries when they are dead.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use incumbent::lock::Nonce;
use incumbent::protocol::{CrashOutcome, RegisteredTerm};
use incumbent::sentinel::SentinelMessage;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::locks::SentinelLocks;
use crate::lock::UNUSED_NAME;

/// How long a sentinel tries to release that then exits.
pub const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most terms that one process may register, and that are kept of all dead ones.
const MAX_TERMS: usize = 100_000;
/// How long the lock may take to respond.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How much later than the end of a term the message of it may arrive.
const END_DELAY: Duration = Duration::from_secs(1);
/// How many entries are released at a time.
const RELEASES: usize = 128;
/// How many registrations are checked at a time.
const CHECKS: usize = 16;
/// How many more may wait for their check. Others are not checked: they can be released all the
/// same.
const MAX_WAITING: usize = 10_000;

/// The terms that a process registered, by election and candidate.
#[derive(Default)]
struct RegisteredTerms(HashMap<(Arc<str>, Nonce), RegisteredTerm>);

impl RegisteredTerms {
    /// Takes a message. Returns the term that began.
    fn on_message(
        &mut self,
        message: &SentinelMessage,
    ) -> Result<Option<(Arc<str>, RegisteredTerm)>, String> {
        match message {
            SentinelMessage::Began { election, .. } => {
                let term = message.term().ok_or("a nonce is malformed")?;
                let key = (Arc::clone(election), term.nonce);
                if self.0.len() >= MAX_TERMS && !self.0.contains_key(&key) {
                    return Err(format!("more than {MAX_TERMS} terms of one process"));
                }
                self.0.insert(key, term);
                Ok(Some((Arc::clone(election), term)))
            }
            SentinelMessage::Ended { election, .. } => {
                let nonce = message.nonce().ok_or("a nonce is malformed")?;
                self.0.remove(&(Arc::clone(election), nonce));
                Ok(None)
            }
            SentinelMessage::Hello { .. } | SentinelMessage::Status => Ok(None),
        }
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes them all.
    fn take(&mut self) -> Vec<(Arc<str>, RegisteredTerm)> {
        let taken = std::mem::take(&mut self.0);
        taken.into_iter().map(|((election, _), term)| (election, term)).collect()
    }
}

/// What the connections of a sentinel share.
pub struct Registry {
    locks: SentinelLocks,
    /// By connection.
    terms: Mutex<HashMap<u64, RegisteredTerms>>,
    /// Of dead processes, whose work may continue.
    kept: Mutex<VecDeque<(Arc<str>, RegisteredTerm)>>,
    checks: Semaphore,
    waiting: Semaphore,
    /// Whether the last check has failed.
    failing: AtomicBool,
}

impl Registry {
    pub fn new(locks: SentinelLocks) -> Self {
        Self {
            locks,
            terms: Mutex::default(),
            kept: Mutex::default(),
            checks: Semaphore::new(CHECKS),
            waiting: Semaphore::new(MAX_WAITING),
            failing: AtomicBool::new(false),
        }
    }

    /// Takes a message of a connection.
    pub fn on_message(
        &self,
        connection: u64,
        message: &SentinelMessage,
    ) -> Result<Option<(Arc<str>, RegisteredTerm)>, String> {
        self.terms.lock().entry(connection).or_default().on_message(message)
    }

    /// The number of processes and of terms.
    pub fn counts(&self) -> (usize, usize) {
        let terms = self.terms.lock();
        (terms.len(), terms.values().map(RegisteredTerms::len).sum())
    }

    /// Takes the terms of a connection, which is over.
    pub fn take(&self, connection: u64) -> Vec<(Arc<str>, RegisteredTerm)> {
        self.terms.lock().remove(&connection).map(|mut terms| terms.take()).unwrap_or_default()
    }

    /// Keeps the terms of a dead process, the newest ones if they are many: the leases of the
    /// others are over first.
    pub fn keep(&self, terms: Vec<(Arc<str>, RegisteredTerm)>) {
        let mut kept = self.kept.lock();
        kept.extend(terms);
        let excess = kept.len().saturating_sub(MAX_TERMS);
        kept.drain(..excess);
    }

    /// Takes what was kept.
    pub fn take_kept(&self) -> Vec<(Arc<str>, RegisteredTerm)> {
        std::mem::take(&mut *self.kept.lock()).into()
    }

    /// Checks that the lock responds, and that it would let an election be released: one that is
    /// registered, if there is one. Returns the problem.
    pub async fn check_lock(&self) -> Result<(), String> {
        let any = |terms: &RegisteredTerms| terms.0.keys().next().map(|key| Arc::clone(&key.0));
        let registered = self.terms.lock().values().find_map(any);
        let election = registered.unwrap_or_else(|| UNUSED_NAME.into());
        let checked = timeout(CHECK_TIMEOUT, self.locks.check_lock(&election)).await;
        checked.unwrap_or_else(|_| Err("the lock does not respond".to_owned()))
    }

    /// Whether the term has not ended.
    fn is_registered(&self, connection: u64, election: &Arc<str>, term: RegisteredTerm) -> bool {
        let key = (Arc::clone(election), term.nonce);
        let terms = self.terms.lock();
        terms.get(&connection).is_some_and(|terms| terms.0.get(&key) == Some(&term))
    }

    /// Checks that a term of a connection could be released. Returns the problem.
    pub async fn check(
        &self,
        connection: u64,
        election: &Arc<str>,
        term: RegisteredTerm,
    ) -> Result<(), String> {
        let Ok(_place) = self.waiting.try_acquire() else { return Ok(()) };
        let permit = self.checks.acquire().await;
        let found = self.locks.check_term(election, term).await;
        drop(permit);
        if found == Ok(false) {
            sleep(END_DELAY).await; // a term that is over meanwhile has no entry
        }
        let checked = match found {
            Ok(true) => Ok(()),
            _ if !self.is_registered(connection, election, term) => Ok(()),
            Ok(false) => {
                let problem = "its entry is not in the lock of the sentinel: give both the same \
                     --lock";
                Err(problem.to_owned())
            }
            Err(problem) => Err(problem),
        };
        let failed_before = self.failing.swap(checked.is_err(), Ordering::Relaxed);
        match &checked {
            Err(reason) if !failed_before => {
                error!(%election, %reason, "cannot release, so after a crash the lease decides");
            }
            Err(reason) => warn!(%election, %reason, "cannot release"),
            Ok(()) => {}
        }
        checked
    }

    /// Releases the entries of a dead process, whose work is dead too.
    pub async fn release(&self, terms: Vec<(Arc<str>, RegisteredTerm)>, limit: Duration) {
        let release = |(election, term): (Arc<str>, RegisteredTerm)| async move {
            let outcome = self.locks.release(&election, term, limit).await;
            report(&election, term, &outcome);
        };
        stream::iter(terms).map(release).buffer_unordered(RELEASES).collect::<()>().await;
    }
}

fn report(election: &str, term: RegisteredTerm, outcome: &CrashOutcome) {
    let token = term.token;
    match outcome {
        CrashOutcome::Released => info!(election, %token, "released the lock of a dead process"),
        CrashOutcome::NotHeld => warn!(election, %token, "the entry was gone before the release"),
        CrashOutcome::Failed(reason) => {
            error!(election, %token, %reason, "the lock was not released: its lease decides");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_registry_still_replaces_a_term() {
        let began = |nonce: u64, token: u64| SentinelMessage::Began {
            election: "my_app".into(),
            nonce: Nonce(nonce).to_string(),
            token,
            create: 1,
        };
        let mut terms = RegisteredTerms::default();
        for nonce in (1..).take(MAX_TERMS) {
            terms.on_message(&began(nonce, 1)).expect("room for one more");
        }
        terms.on_message(&began(u64::MAX, 1)).expect_err("it is full");
        let replaced = terms.on_message(&began(7, 2)).expect("no more than before");
        assert_eq!(replaced.map(|(_, term)| term.token.0), Some(2));
        assert_eq!(terms.len(), MAX_TERMS);
    }
}
