//! The lock in a PostgreSQL database.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use sqlx::Row as _;
use tokio::time::{Instant, timeout_at};

use super::errors;
use super::listener;
use super::state::LockState;
use super::statements;
use crate::backends::seen::SeenRevisions;
use crate::backends::sql::hints::Subscribers;
use crate::backends::sql::lock::{Database, SqlLock};
use crate::lock::roll_call::{Answers, no_calls, to_json};
use crate::lock::{
    CallId, CandidateInfo, CandidateRequest, Content, Effect, LockError, LockErrorKind, Reading,
    Record, Release, Revision, RollCall, StepDownNotice, Tombstone, Write,
};
use crate::time::timer::deadline_after;
use crate::util::per_key::PerKey;

/// The lock in a PostgreSQL database.
///
/// Cheap to clone. Clones share connections and one listener.
pub type PostgresLock = SqlLock<LockState>;

impl PostgresLock {
    /// Polls instead of listening for notifications: for a pooler in transaction mode, which
    /// delivers none. The lock detects such a pooler in any case; this setting saves the connection
    /// for the attempt.
    pub fn polling(self) -> Self {
        Self::new(LockState { listens: false, ..self.database.clone_config() })
    }

    /// Asserts that a replica never takes over without every acknowledged write:
    /// `synchronous_standby_names` is set, and only a synchronous replica is ever promoted.
    /// Elections then continue through a failover. Otherwise the leader loses its leadership in a
    /// failover, and its successor waits for the maximum lease, since a renewal may be lost.
    pub fn synchronous_replicas(self) -> Self {
        Self::new(LockState { synchronous: true, ..self.database.clone_config() })
    }
}

impl Database for LockState {
    type Statement = String;

    fn max_lease(&self) -> Duration {
        Duration::from_millis(self.longest_lease_ms.load(Ordering::Relaxed))
    }

    /// Until its replicas have received it, a commit whose backend was ended is visible and may
    /// still be lost.
    fn reads_are_durable(&self) -> bool {
        !self.synchronous
    }

    fn sends_hints(&self) -> bool {
        self.listens
    }

    fn carries_calls(&self) -> bool {
        self.listens
    }

    fn seen(&self) -> &PerKey<SeenRevisions> {
        &self.seen
    }

    fn forget(&self, name: &str) {
        self.seen.remove(name);
        self.basis.remove(name);
    }

    fn subscribers(&self) -> &Subscribers {
        &self.subscribers
    }

    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        listener::run(self)
    }

    async fn read(&self, name: &str, keep: bool, timeout: Duration) -> Result<Reading, LockError> {
        let by = deadline_after(timeout);
        let (of_election, basis) = match keep {
            true => (self.seen.get(name), self.basis.get(name)),
            false => (self.seen.peek(name), self.basis.peek(name)),
        };
        let left = || by.saturating_duration_since(Instant::now());
        let mut found = self.fetch(name, timeout).await?;
        while let Some(row) = &found.row {
            let seen = of_election.see(Revision(row.revision)).0;
            if found.same_history && row.revision >= seen {
                break;
            }
            // All that the row shows is that another process may lead.
            let content = Content::Vacant(Tombstone::Deleted);
            let unknown = Reading::Found(Record { revision: Revision(seen), content });
            if !keep {
                return Ok(unknown); // only candidates write: the leader's term may continue
            }
            let statement = statements::forget(name, row.revision, seen);
            match self.connections.execute(&statement, Effect::Write, left()).await {
                Ok(_) => {}
                Err(failed) if failed.kind() == LockErrorKind::Denied => return Ok(unknown),
                Err(failed) => return Err(failed),
            }
            found = self.fetch(name, left()).await?;
        }
        let held = found.row.as_ref().zip(found.may_lead_for);
        let held = held.map(|(row, lease)| (Revision(row.revision), Instant::now() + lease));
        basis.was_read_on(found.history.clone(), held);
        Ok(match found.row {
            Some(row) => {
                let record = row.record();
                self.subscribers.record_read(name, record.revision);
                Reading::Found(record)
            }
            // A row is never deleted, so the election had no holder yet, unless the tables were
            // created again, or the row is missing on a server that took over, into which a dump
            // was imported, or that was started on restored files.
            None => {
                let is_whole = found.same_tables || (self.synchronous && found.old);
                let created = found.history.is_some() && found.history == self.opened.created_on;
                let proof = (created || found.settled) && is_whole;
                Reading::Empty { proof: proof && of_election.newest().is_none() }
            }
        })
    }

    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        let rows = self.connections.execute(statements::NAMES, Effect::Read, timeout).await?;
        let names = rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>();
        names.map_err(|error| errors::failed(error, Effect::Read, self.connections.place()))
    }

    async fn put(&self, statement: String, timeout: Duration) -> Result<Option<i64>, LockError> {
        let rows = self.connections.execute(&statement, Effect::Write, timeout).await?;
        let revision = rows.first().map(|row| row.try_get("revision")).transpose();
        revision.map_err(|error| errors::failed(error, Effect::Write, self.connections.place()))
    }

    fn write(&self, name: &str, write: &Write) -> Result<String, LockError> {
        let sure = !self.synchronous;
        let nonce = write.mark.write.nonce;
        let read_on = match write.mark.token {
            None => self.basis.get(name).rests_on(nonce, write.expected)?,
            Some(_) => None,
        };
        let seen = self.seen.get(name).newest().map_or(0, |newest| newest.0);
        Ok(statements::write(name, write, sure, read_on.as_deref(), seen))
    }

    fn release(&self, name: &str, release: &Release) -> String {
        statements::release(name, release, !self.synchronous)
    }

    async fn load_checkpoint(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<(i64, Vec<u8>)>, LockError> {
        let statement = statements::load_checkpoint(name);
        let rows = self.connections.execute(&statement, Effect::Read, timeout).await?;
        let found = rows.first().map(|row| Ok((row.try_get("version")?, row.try_get("content")?)));
        let found = found.transpose();
        found.map_err(|error| errors::failed(error, Effect::Read, self.connections.place()))
    }

    fn store_checkpoint(
        &self,
        name: &str,
        content: Vec<u8>,
        version: i64,
        expected: Option<i64>,
    ) -> String {
        statements::store_checkpoint(name, &content, version, expected)
    }

    async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        if !self.listens {
            return no_calls();
        }
        let failed = |error| errors::failed(error, Effect::Read, self.connections.place());
        let call = RollCall { id: CallId::random(), within, request };
        let mut answers =
            self.connections.listen(&[&answers_channel(call.id)]).await.map_err(failed)?;
        let payload = json!({ "name": name, "roll_call": call }).to_string();
        let statement = statements::notify(&self.opened.channel, &payload);
        self.connections.execute(&statement, Effect::Read, SEND_TIMEOUT).await?;
        let end = Instant::now() + within;
        let mut found = Answers::to(call.request);
        while let Ok(answer) = timeout_at(end, answers.recv()).await {
            let answer = answer.map_err(failed)?;
            if found.take(answer.payload().as_bytes()) {
                break;
            }
        }
        Ok(found.into_vec())
    }

    async fn answer_roll_call(
        &self,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        let statement = statements::notify(&answers_channel(call.id), &to_json(info));
        self.connections.execute(&statement, Effect::Read, SEND_TIMEOUT).await.map(drop)
    }

    async fn notify_step_down(&self, name: &str, notice: StepDownNotice) -> Result<(), LockError> {
        let statement = statements::notify_step_down(name, &notice);
        self.connections.execute(&statement, Effect::Write, STEP_DOWN_TIMEOUT).await.map(drop)
    }
}

/// The channel for the answers to a call.
fn answers_channel(id: CallId) -> String {
    format!("incumbent_roll_call_{id}")
}

/// The timeout of sending the notification of a call, or of an answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a step-down notice.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(1);

partial_debug!(LockState, self, at: self.connections.place());
