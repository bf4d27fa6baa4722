//! What operators do with the elections of a lock: read, list, watch and evict.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::debug;

use super::{
    Capabilities, ElectionRecord, Finding, HintSink, Lock, LockError, LockErrorKind, Reading,
    Release, Revision, Vacancy,
};
use crate::time::timer::deadline_after;

/// How many entries are read at the same time.
const READS: usize = 32;

/// How often a watch has elections read again that no hint is about: ones that it does not know,
/// and those of a lock that sends no hints.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What a lock offers to operators and observers: see [`Lock::admin`]. A `timeout` is that of each
/// request.
///
/// A lock that can list the names of its elections, and no more, implements [`ElectionNames`].
#[async_trait]
pub trait LockAdmin: fmt::Debug + Send + Sync {
    /// What is known of the lock itself.
    ///
    /// # Errors
    /// Of the kind [`Missing`](LockErrorKind::Missing) if what holds the entries does not exist.
    async fn facts(&self, timeout: Duration) -> Result<LockFacts, LockError>;

    /// The last write to an election; `None` if no record was found.
    async fn record(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<ElectionRecord>, LockError>;

    /// The names of the elections that are held, or were held lately, in no order.
    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError>;

    /// The last writes to all elections, sorted by name. What turns out to be no entry of an
    /// election is left out, unless nothing else is found.
    async fn list(&self, timeout: Duration) -> Result<Vec<ElectionRecord>, LockError> {
        let mut names = self.names(timeout).await?;
        names.sort_unstable();
        let reads: Vec<_> = names.iter().map(|name| self.record(name, timeout)).collect();
        let mut reads = stream::iter(reads).buffered(READS);
        let (mut records, mut foreign) = (Vec::new(), None);
        while let Some(read) = reads.next().await {
            match read {
                Ok(record) => records.extend(record),
                Err(error) if error.kind() == LockErrorKind::Misconfigured => {
                    debug!(%error, "left out of a list");
                    foreign = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        match foreign.filter(|_| records.is_empty()) {
            Some(error) => Err(error),
            None => Ok(records),
        }
    }

    /// Watches the named elections, or all if none is named. Others may be reported too.
    async fn watch(&self, names: &[String], timeout: Duration) -> Result<ElectionWatch, LockError>;

    /// Evicts the holder if the last revision is the expected one: its successor waits for as long
    /// as the evicted holder may lead, unless the step-down notice of the holder comes. Does
    /// nothing where there is no holder.
    async fn evict(
        &self,
        name: &str,
        expected: Revision,
        timeout: Duration,
    ) -> Result<(), LockError>;

    /// What is wrong with the lock, or with the entry of the election `name`, most severe first;
    /// `None` if it has no check of that.
    async fn diagnose(
        &self,
        name: Option<&str>,
        timeout: Duration,
    ) -> Result<Option<Vec<Finding>>, LockError> {
        let _ = (name, timeout);
        Ok(None)
    }

    /// Fails if what holds the entries does not exist, as far as this client may see: to be asked
    /// after an answer that shows nothing. Default: the other requests fail then.
    ///
    /// # Errors
    /// Of the kind [`Missing`](LockErrorKind::Missing).
    async fn check_exists(&self, timeout: Duration) -> Result<(), LockError> {
        let _ = timeout;
        Ok(())
    }

    /// How far the lock has been written, if one request shows it.
    async fn position(&self, timeout: Duration) -> Result<Option<Position>, LockError> {
        let _ = timeout;
        Ok(None)
    }

    /// All writes to an election that the lock still stores, in their order; `None` if it stores
    /// none but the last.
    async fn stored(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<Vec<ElectionRecord>>, LockError> {
        let _ = (name, timeout);
        Ok(None)
    }
}

/// What is known of a lock itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockFacts {
    /// The longest lease of a holder whose record states none, if that is known.
    pub max_lease: Option<Duration>,
    /// Whether the times of writes are those of the lock, rather than of leaders.
    pub has_lock_times: bool,
    /// The cause of a vacancy without an entry.
    pub absence: Vacancy,
    /// When what holds the entries was created, if that distinguishes it from an earlier one.
    pub created: Option<SystemTime>,
    /// How many writes of each election it stores at most.
    pub stored_writes: i64,
}

impl LockFacts {
    /// The facts of a lock that stores the last write only and reports no times of its own.
    pub fn new(max_lease: Option<Duration>, absence: Vacancy) -> Self {
        Self { max_lease, has_lock_times: false, absence, created: None, stored_writes: 1 }
    }
}

/// How far a lock has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The revision of the last write.
    pub last: u64,
    /// How many elections have an entry.
    pub entries: u64,
}

/// What a lock reports to an observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionUpdate {
    /// An entry was written, or exists.
    Written(ElectionRecord),
    /// A write that is to be confirmed by a read: anybody may have said so.
    Hint {
        /// What is said to have been written.
        record: ElectionRecord,
        /// The write before it to the same election.
        previous: Option<Revision>,
    },
    /// Something may have changed: read again.
    Recheck,
}

/// A watch on elections. It may end; then begin another one, and read again.
pub struct ElectionWatch {
    updates: BoxStream<'static, Result<ElectionUpdate, LockError>>,
    reports_every_change: bool,
}

impl ElectionWatch {
    /// A watch with these updates.
    pub fn new(
        updates: impl Stream<Item = Result<ElectionUpdate, LockError>> + Send + 'static,
        reports_every_change: bool,
    ) -> Self {
        Self { updates: updates.boxed(), reports_every_change }
    }

    /// Whether every change is reported while the watch lasts.
    pub fn reports_every_change(&self) -> bool {
        self.reports_every_change
    }

    /// The next update; `None` when the watch has ended. Cancel safe.
    ///
    /// # Errors
    /// If the watch failed, which ends it.
    pub async fn next(&mut self) -> Option<Result<ElectionUpdate, LockError>> {
        self.updates.next().await
    }
}

partial_debug!(ElectionWatch, self, reports_every_change: self.reports_every_change);

/// What lists the names of the elections of a lock. It gets a [`LockAdmin`] that reads entry by
/// entry.
#[async_trait]
pub trait ElectionNames: fmt::Debug + Send + Sync {
    /// The lock.
    fn lock(&self) -> &dyn Lock;

    /// Reads the last write to an election, as [`Lock::read`] does, for one that takes no part in
    /// it: what the lock keeps does not grow with the names that it lists. Default: `Lock::read`.
    async fn peek(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.lock().read(name, timeout).await
    }

    /// The names of the elections that are held, or were held lately, in no order.
    async fn election_names(&self, timeout: Duration) -> Result<Vec<String>, LockError>;
}

#[async_trait]
impl<L: ElectionNames> LockAdmin for L {
    async fn facts(&self, _timeout: Duration) -> Result<LockFacts, LockError> {
        Ok(LockFacts::new(None, Vacancy::Gone)) // records state the lease
    }

    async fn record(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<ElectionRecord>, LockError> {
        let expires = self.lock().capabilities().expires_entries;
        Ok(match self.peek(name, timeout).await? {
            Reading::Found(record) => Some(ElectionRecord::of(name, record, expires)),
            Reading::Empty { .. } => None,
        })
    }

    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        self.election_names(timeout).await
    }

    /// Reports by hints that a named election may have changed, and every few seconds that any may.
    async fn watch(&self, names: &[String], _: Duration) -> Result<ElectionWatch, LockError> {
        let (sender, hints) = mpsc::channel(1);
        let subscribe = |name: &String| {
            let sender = sender.clone();
            let sink = HintSink::new(move |_| {
                let _ = sender.try_send(()); // one waiting hint is enough
            });
            self.lock().subscribe(name, sink)
        };
        let subscriptions: Vec<_> = names.iter().map(subscribe).collect();
        // The sender stays, as the watch lasts without a subscription too.
        let state = (hints, sender, subscriptions);
        let updates = stream::unfold(state, async |mut state| {
            let _ = tokio::time::timeout(RECHECK_INTERVAL, state.0.recv()).await;
            Some((Ok(ElectionUpdate::Recheck), state))
        });
        Ok(ElectionWatch::new(updates, false))
    }

    async fn evict(
        &self,
        name: &str,
        expected: Revision,
        timeout: Duration,
    ) -> Result<(), LockError> {
        evict(self.lock(), name, expected, timeout).await
    }
}

/// Evicts a holder by [`Release::evicting`], on any lock.
pub(crate) async fn evict(
    lock: &dyn Lock,
    name: &str,
    expected: Revision,
    timeout: Duration,
) -> Result<(), LockError> {
    let deadline = deadline_after(timeout);
    lock.check_name(name).map_err(|why| LockError::new(LockErrorKind::Misconfigured, why))?;
    let record = match lock.read(name, timeout).await? {
        Reading::Found(record) if record.revision == expected => record,
        Reading::Found(_) | Reading::Empty { .. } => {
            let message = format!("eviction from {name}: the entry was written by another");
            return Err(LockError::new(LockErrorKind::Conflict, message));
        }
    };
    let Capabilities { max_lease, expires_entries, .. } = lock.capabilities();
    let left = deadline.saturating_duration_since(Instant::now());
    match Release::evicting(&record, max_lease, expires_entries, left) {
        Some(eviction) => lock.release(name, eviction).await,
        None => Ok(()),
    }
}
