//! The lock: conditional statements on one row per election.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::check_name;
use super::hints::{DeliveredRevisions, Subscribers};
use super::row::column;
use crate::backends::hint_hub::{HintHub, Listen, guard};
use crate::backends::seen::SeenRevisions;
use crate::lock::roll_call::no_calls;
use crate::lock::{
    CandidateInfo, CandidateRequest, Capabilities, CheckpointStore, CheckpointVersion,
    ElectionNames, HintSink, Lock, LockAdmin, LockError, LockErrorKind, Messages, Reading, Release,
    Revision, RollCall, StepDownNotice, StoredContent, Subscription, Write, checkpoint,
};
use crate::protocol::MIN_LEASE;
use crate::util::per_key::PerKey;

/// A lock in a database.
///
/// Cheap to clone. Clones share connections and hints.
pub struct SqlLock<D> {
    pub(super) database: Arc<D>,
}

/// The state that the clones of a lock share, and its requests to the database.
pub(super) trait Database: fmt::Debug + Send + Sync + Sized + 'static {
    type Statement: Send;

    fn max_lease(&self) -> Duration;

    fn reads_are_durable(&self) -> bool {
        true
    }

    fn sends_hints(&self) -> bool {
        true
    }

    /// Whether candidates hear roll calls.
    fn carries_calls(&self) -> bool {
        false
    }

    fn seen(&self) -> &PerKey<SeenRevisions>;

    /// Forgets what is known of an election that nobody here takes part in any more.
    fn forget(&self, name: &str) {
        self.seen().remove(name);
    }

    fn subscribers(&self) -> &Subscribers;

    /// Receives hints until the future is dropped.
    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static;

    /// `keep`: what is seen of the election is remembered.
    fn read(
        &self,
        name: &str,
        keep: bool,
        timeout: Duration,
    ) -> impl Future<Output = Result<Reading, LockError>> + Send;

    fn names(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<String>, LockError>> + Send;

    /// Returns the new revision; `None` if the row was not the expected one.
    fn put(
        &self,
        statement: Self::Statement,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<i64>, LockError>> + Send;

    fn write(&self, name: &str, write: &Write) -> Result<Self::Statement, LockError>;

    /// Returns the checkpoint of an election, and its version.
    fn load_checkpoint(
        &self,
        name: &str,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<(i64, Vec<u8>)>, LockError>> + Send;

    /// The statement that gives a checkpoint this version, for [`put`](Self::put).
    fn store_checkpoint(
        &self,
        name: &str,
        content: Vec<u8>,
        version: i64,
        expected: Option<i64>,
    ) -> Self::Statement;

    fn release(&self, name: &str, release: &Release) -> Self::Statement;

    /// Default: the database carries no roll calls.
    fn call_roll(
        &self,
        _name: &str,
        _request: CandidateRequest,
        _within: Duration,
    ) -> impl Future<Output = Result<Vec<CandidateInfo>, LockError>> + Send {
        ready(no_calls())
    }

    /// Default: the database carries no roll calls.
    fn answer_roll_call(
        &self,
        _call: &RollCall,
        _info: &CandidateInfo,
    ) -> impl Future<Output = Result<(), LockError>> + Send {
        ready(Ok(()))
    }

    /// Default: the database carries no notices.
    fn notify_step_down(
        &self,
        _name: &str,
        _notice: StepDownNotice,
    ) -> impl Future<Output = Result<(), LockError>> + Send {
        ready(Ok(()))
    }
}

impl<D> SqlLock<D> {
    pub(super) fn new(database: D) -> Self {
        Self { database: Arc::new(database) }
    }
}

async fn put<D: Database>(
    database: &D,
    name: &str,
    statement: D::Statement,
    timeout: Duration,
) -> Result<Revision, LockError> {
    let Some(revision) = database.put(statement, timeout).await? else {
        return Err(LockError::new(LockErrorKind::Conflict, "another candidate wrote"));
    };
    let revision = revision.unsigned_abs();
    database.seen().get(name).see(Revision(revision));
    Ok(Revision(revision))
}

#[async_trait]
impl<D: Database> Lock for SqlLock<D> {
    fn capabilities(&self) -> Capabilities {
        let reads_are_durable = self.database.reads_are_durable();
        let min_lease = MIN_LEASE;
        Capabilities {
            min_lease,
            reads_are_durable,
            ..Capabilities::of_records(self.database.max_lease())
        }
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_name(name)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        let read = self.database.read(name, true, timeout).await;
        read.map_err(|error| error.of_request("reading", name))
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        let failed = |error: LockError| error.of_request("write", name);
        let statement = self.database.write(name, &write).map_err(failed)?;
        put(&*self.database, name, statement, write.timeout).await.map_err(failed)
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        let statement = self.database.release(name, &release);
        let put = put(&*self.database, name, statement, release.timeout).await;
        put.map(drop).map_err(|error| error.of_request("release", name))
    }

    fn checkpoints(&self) -> Option<&dyn CheckpointStore> {
        Some(self)
    }

    fn messages(&self) -> Option<&dyn Messages> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        if !self.database.sends_hints() {
            return Subscription::none();
        }
        guard::subscribe(&self.database, name, sink)
    }
}

#[async_trait]
impl<D: Database> CheckpointStore for SqlLock<D> {
    async fn load(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<StoredContent>, LockError> {
        let row = self.database.load_checkpoint(name, timeout).await;
        let row = row.map_err(|error| error.of_request("reading the checkpoint", name))?;
        Ok(row.map(|(version, content)| StoredContent {
            version: CheckpointVersion::number(version.unsigned_abs()),
            content,
        }))
    }

    /// Each version is drawn at random, so that none is repeated, not even where an older copy of
    /// the database was restored.
    async fn store(
        &self,
        name: &str,
        content: Vec<u8>,
        expected: Option<&CheckpointVersion>,
        timeout: Duration,
    ) -> Result<CheckpointVersion, LockError> {
        let version = fastrand::i64(1..);
        let expected = expected.and_then(CheckpointVersion::as_number).map(column);
        let statement = self.database.store_checkpoint(name, content, version, expected);
        let stored = self.database.put(statement, timeout).await;
        match stored.map_err(|error| error.of_request("writing the checkpoint", name))? {
            Some(version) => Ok(CheckpointVersion::number(version.unsigned_abs())),
            None => Err(checkpoint::conflict()),
        }
    }
}

#[async_trait]
impl<D: Database> Messages for SqlLock<D> {
    fn carries_calls(&self) -> bool {
        self.database.carries_calls()
    }

    async fn notify_step_down(&self, name: &str, notice: StepDownNotice) -> Result<(), LockError> {
        let sent = self.database.notify_step_down(name, notice).await;
        sent.map_err(|error| error.of_request("notice", name))
    }

    async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        let answers = self.database.call_roll(name, request, within).await;
        answers.map_err(|error| error.of_request("roll call", name))
    }

    async fn answer_roll_call(
        &self,
        name: &str,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        let sent = self.database.answer_roll_call(call, info).await;
        sent.map_err(|error| error.of_request("answer", name))
    }
}

#[async_trait]
impl<D: Database> ElectionNames for SqlLock<D> {
    fn lock(&self) -> &dyn Lock {
        self
    }

    async fn peek(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        let read = self.database.read(name, false, timeout).await;
        read.map_err(|error| error.of_request("reading", name))
    }

    async fn election_names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        let names = self.database.names(timeout).await;
        names.map_err(|error| error.of_request("listing", "elections"))
    }
}

impl<D: Database> Listen for D {
    type Note = DeliveredRevisions;

    fn hub(&self) -> &HintHub<DeliveredRevisions> {
        &self.subscribers().hub
    }

    fn forget(&self, name: &str) {
        Database::forget(self, name);
    }

    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        Database::listen(self)
    }
}

impl<D> Clone for SqlLock<D> {
    fn clone(&self) -> Self {
        Self { database: Arc::clone(&self.database) }
    }
}

partial_debug!(SqlLock<D: fmt::Debug>, self, database: self.database);
