//! The lock: conditional statements on one row per election.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row as _;

use super::connections::Connections;
use super::errors::{self, Effect};
use super::listener;
use super::state::LockState;
use super::statements;
use super::tables::Opened;
use crate::backends::hint_hub::{self, HintHub, Listen};
use crate::backends::sql::hints::DeliveredRevisions;
use crate::backends::sql::{MAX_IDENTITY_LEN, check_name};
use crate::lock::{
    Capabilities, HintSink, Lock, LockError, Reading, Release, Revision, StepDownNotice,
    Subscription, Write,
};

/// The lock in a PostgreSQL database.
///
/// Cheap to clone. Clones share connections and one listener.
#[derive(Clone)]
pub struct PostgresLock {
    inner: Arc<LockState>,
}

impl PostgresLock {
    pub(super) fn new(connections: Arc<Connections>, opened: Opened) -> Self {
        Self { inner: Arc::new(LockState::new(connections, opened)) }
    }

    /// Polls instead of listening for notifications: for a pooler in transaction mode, which
    /// delivers none. The lock detects such a pooler in any case; this setting saves the connection
    /// for the attempt.
    pub fn polling(self) -> Self {
        self.change(|inner| inner.listens = false)
    }

    /// Asserts that a replica never takes over without every acknowledged write:
    /// `synchronous_standby_names` is set, and only a synchronous replica is ever promoted.
    /// Elections then continue through a failover. Otherwise the leader loses its leadership in a
    /// failover, and its successor waits for the maximum lease, since a renewal may be lost.
    pub fn synchronous_replicas(self) -> Self {
        self.change(|inner| inner.synchronous = true)
    }

    /// Returns the same lock with another configuration. The two share only the connections.
    fn change(self, change: impl FnOnce(&mut LockState)) -> Self {
        let mut inner = self.inner.another();
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }
}

#[async_trait]
impl Lock for PostgresLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_lease: Duration::from_millis(self.inner.longest_lease_ms.load(Ordering::Relaxed)),
            can_read: true,
            empty_is_proof: false,
            expires_entries: false,
            // Until its replicas have received it, a commit whose backend was ended is visible and
            // may still be lost.
            reads_are_durable: !self.inner.synchronous,
            max_identity_len: MAX_IDENTITY_LEN,
        }
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_name(name)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.inner.read(name, timeout).await.map_err(|f| f.of("reading", name))
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        let sure = !self.inner.synchronous;
        let nonce = write.mark.write.nonce;
        self.inner.own.add(nonce);
        let rests_on = match write.expected {
            None if sure => self.inner.empty.get(name).rests_on(nonce),
            _ => Ok(None),
        };
        let seen = self.inner.seen.newest(name);
        let statement = rests_on
            .map(|empty_on| statements::write(name, &write, sure, empty_on.as_deref(), seen));
        let statement = statement.map_err(|failed| failed.of("write", name))?;
        let put = self.inner.put(name, &statement, write.timeout).await;
        put.map_err(|failed| failed.of("write", name))
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        let statement = statements::release(name, &release, !self.inner.synchronous);
        let put = self.inner.put(name, &statement, release.timeout).await;
        put.map(drop).map_err(|failed| failed.of("release", name))
    }

    async fn notify_step_down(&self, name: &str, notice: StepDownNotice) -> Result<(), LockError> {
        let statement = statements::notify_step_down(name, &notice);
        let sent =
            self.inner.connections.execute(&statement, Effect::Write, STEP_DOWN_TIMEOUT).await;
        sent.map(drop).map_err(|failed| failed.of("notice", name))
    }

    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        let connections = &self.inner.connections;
        let rows = connections.execute(statements::NAMES, Effect::Read, timeout).await;
        let rows = rows.map_err(|failed| failed.of("listing", "elections"))?;
        let names = rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>();
        let odd = |error| errors::failed(error, Effect::Read, connections.place());
        names.map_err(|error| odd(error).of("listing", "elections"))
    }

    async fn evict(
        &self,
        name: &str,
        expected: Revision,
        timeout: Duration,
    ) -> Result<(), LockError> {
        let statement = statements::evict(name, expected.0);
        let put = self.inner.put(name, &statement, timeout).await;
        put.map(drop).map_err(|failed| failed.of("eviction", name))
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        if !self.inner.listens {
            return Subscription::none();
        }
        hint_hub::subscribe(&self.inner, name, sink)
    }
}

impl Listen for LockState {
    type Note = DeliveredRevisions;

    fn hub(&self) -> &HintHub<DeliveredRevisions> {
        &self.subscribers.hub
    }

    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        listener::run(self)
    }
}

/// The timeout of a step-down notice.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(1);

impl fmt::Debug for PostgresLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.inner.connections.place();
        f.debug_struct("PostgresLock").field("at", &place).finish_non_exhaustive()
    }
}
