//! The lock: conditional statements on one row per election.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row as _;

use super::boot_id;
use super::errors;
use super::file::{File, Statement};
use super::listener;
use super::state::LockState;
use super::statements;
use crate::backends::hint_hub::{self, HintHub, Listen};
use crate::backends::sql::hints::DeliveredRevisions;
use crate::backends::sql::row::{column, millis};
use crate::backends::sql::{MAX_IDENTITY_LEN, check_name};
use crate::lock::codec::cause_label;
use crate::lock::{
    Capabilities, HintSink, Lock, LockError, Reading, Release, Revision, Subscription, Write,
};

/// The lock in a SQLite file.
///
/// Cheap to clone. Clones share connections and hints.
#[derive(Clone)]
pub struct SqliteLock {
    inner: Arc<LockState>,
}

impl SqliteLock {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { inner: Arc::new(LockState::new(file)) }
    }
}

fn writing(name: &str, write: &Write) -> Statement {
    let now = boot_id::now();
    let create = write.expected.is_none();
    let statement = if create { statements::CREATE } else { statements::WRITE };
    let query = sqlx::query(statement)
        .bind(name.to_owned())
        .bind(write.identity.to_string())
        .bind(millis(write.ttl.max(write.mark.lease)))
        .bind(write.mark.write.nonce.to_string())
        .bind(column(write.mark.write.number))
        .bind(now.as_ref().map(|now| now.boot.clone()))
        .bind(now.map(|now| now.ms))
        .bind(write.advertisement.as_ref().map(|advertisement| advertisement.to_json()));
    match write.expected {
        None => query,
        Some(expected) => {
            query.bind(column(expected.0)).bind(write.mark.token.map(|token| column(token.0)))
        }
    }
}

fn releasing(name: &str, release: &Release) -> Statement {
    let now = boot_id::now();
    sqlx::query(statements::RELEASE)
        .bind(name.to_owned())
        .bind(column(release.expected.0))
        .bind(release.by.to_string())
        .bind(millis(release.left))
        .bind(cause_label(release.cause))
        .bind(now.as_ref().map(|now| now.boot.clone()))
        .bind(now.map(|now| now.ms))
}

#[async_trait]
impl Lock for SqliteLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_lease: self.inner.file.max_lease(),
            can_read: true,
            empty_is_proof: false,
            expires_entries: false,
            reads_are_durable: true,
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
        let put = self.inner.put(name, writing(name, &write), write.timeout).await;
        put.map_err(|failed| failed.of("write", name))
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        let put = self.inner.put(name, releasing(name, &release), release.timeout).await;
        put.map(drop).map_err(|failed| failed.of("release", name))
    }

    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        let result = self.inner.file.execute(sqlx::query(statements::NAMES), false, timeout).await;
        let answer = result.and_then(|answer| answer.ok_or_else(|| self.inner.file.gone()));
        let rows = answer.map_err(|failed| failed.of("listing", "elections"))?.rows;
        let names = rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>();
        let odd = |error| errors::failed(error, false, self.inner.file.path());
        names.map_err(|error| odd(error).of("listing", "elections"))
    }

    async fn evict(
        &self,
        name: &str,
        expected: Revision,
        timeout: Duration,
    ) -> Result<(), LockError> {
        let evict = sqlx::query(statements::EVICT).bind(name.to_owned()).bind(column(expected.0));
        let put = self.inner.put(name, evict, timeout).await;
        put.map(drop).map_err(|failed| failed.of("eviction", name))
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
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

impl fmt::Debug for SqliteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.inner.file.path();
        f.debug_struct("SqliteLock").field("path", &path).finish_non_exhaustive()
    }
}
