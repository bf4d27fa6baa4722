//! The lock: conditional statements on one row an election.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use tokio::time::Instant;

use super::boot_id;
use super::errors;
use super::file::{File, Statement, moment_of};
use super::listener;
use super::statements;
use crate::backends::hint_hub::{self, HintHub, Listen};
use crate::backends::sql::error::Failed;
use crate::backends::sql::hints::{Heard, Hearers};
use crate::backends::sql::row::{Row, column, millis, span};
use crate::backends::sql::seen::Seen;
use crate::backends::sql::{LONGEST_IDENTITY, check_name};
use crate::lock::codec::cause_label;
use crate::lock::{
    Capabilities, HintSink, Lock, LockError, LockErrorKind, Reading, Release, Revision,
    Subscription, Write,
};
use crate::time::timer::from_now;

/// The lock in a SQLite file.
///
/// Cheap to clone; clones share connections and what they hear.
#[derive(Clone)]
pub struct SqliteLock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) file: Arc<File>,
    pub(super) hearers: Hearers,
    pub(super) seen: Seen,
}

impl SqliteLock {
    pub(super) fn new(file: Arc<File>) -> Self {
        let (hearers, seen) = (Hearers::default(), Seen::default());
        Self { inner: Arc::new(Inner { file, hearers, seen }) }
    }
}

impl Inner {
    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, Failed> {
        let by = from_now(timeout);
        loop {
            let left = by.saturating_duration_since(Instant::now());
            let read = sqlx::query(statements::READ).bind(name.to_owned());
            let Some(answer) = self.file.ask(read, false, left).await? else {
                return Ok(Reading::Empty { proof: false });
            };
            let Some(row) = answer.rows.first() else {
                // A row is never deleted, so nobody has held the election, unless the file was made anew.
                let proof = answer.settled && self.seen.newest(name) == 0;
                return Ok(Reading::Empty { proof });
            };
            let row = self.row_of(row).map_err(|e| errors::failed(e, false, self.file.path()))?;
            let seen = self.seen.see(name, row.revision);
            if row.revision >= seen {
                return Ok(Reading::Found(row.record()));
            }
            let left = by.saturating_duration_since(Instant::now());
            let forget = sqlx::query(statements::FORGET)
                .bind(name.to_owned())
                .bind(column(row.revision))
                .bind(column(seen.saturating_add(1)));
            self.file.ask(forget, true, left).await?;
        }
    }

    /// Answers the new revision, if the row was the expected one.
    async fn put(
        &self,
        name: &str,
        statement: Statement,
        timeout: Duration,
    ) -> Result<Revision, Failed> {
        let answer =
            self.file.ask(statement, true, timeout).await?.ok_or_else(|| self.file.gone())?;
        let Some(row) = answer.rows.first() else {
            return Err(Failed::new(LockErrorKind::Conflict, "somebody else wrote"));
        };
        let revision: Result<i64, _> = row.try_get("revision");
        let odd = |error| errors::failed(error, true, self.file.path());
        let revision = revision.map_err(odd)?.unsigned_abs();
        self.seen.see(name, revision);
        Ok(Revision(revision))
    }

    pub(super) fn row_of(&self, row: &SqliteRow) -> Result<Row, sqlx::Error> {
        let lease_ms = row.try_get("lease_ms")?;
        let then = moment_of(row)?;
        Ok(Row {
            revision: u64::try_from(row.try_get::<i64, _>("revision")?).unwrap_or_default(),
            holder: row.try_get("holder")?,
            acquired_ms: row.try_get("acquired_ms")?,
            lease_ms,
            token: row.try_get("token")?,
            nonce: row.try_get("nonce")?,
            write: row.try_get("write")?,
            released_by: row.try_get("released_by")?,
            left_ms: row.try_get("left_ms")?,
            advertised: row.try_get("advertised")?,
            expired: self.file.is_past(then.as_ref(), span(lease_ms)),
        })
    }
}

fn writing(name: &str, write: &Write) -> Statement {
    let now = boot_id::now();
    let create = write.expected.is_none();
    let statement = if create { statements::CREATE } else { statements::WRITE };
    let query = sqlx::query(statement)
        .bind(name.to_owned())
        .bind(write.identity.to_string())
        .bind(millis(write.life.max(write.mark.lease)))
        .bind(write.mark.write.nonce.to_string())
        .bind(column(write.mark.write.number))
        .bind(now.as_ref().map(|now| now.boot.clone()))
        .bind(now.map(|now| now.ms))
        .bind(write.advertisement.as_ref().map(|said| said.to_json()));
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

impl Lock for SqliteLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            longest_lease: self.inner.file.longest_lease(),
            reads: true,
            empty_is_proof: false,
            expires: false,
            reads_are_durable: true,
            longest_identity: LONGEST_IDENTITY,
        }
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_name(name)
    }

    fn read<'a>(
        &'a self,
        name: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reading, LockError>> {
        async move { self.inner.read(name, timeout).await.map_err(|f| f.of("reading", name)) }
            .boxed()
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        write: Write,
    ) -> BoxFuture<'a, Result<Revision, LockError>> {
        async move {
            let put = self.inner.put(name, writing(name, &write), write.timeout).await;
            put.map_err(|failed| failed.of("write", name))
        }
        .boxed()
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        release: Release,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        async move {
            let put = self.inner.put(name, releasing(name, &release), release.timeout).await;
            put.map(drop).map_err(|failed| failed.of("release", name))
        }
        .boxed()
    }

    fn names(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<String>, LockError>> {
        async move {
            let asked = self.inner.file.ask(sqlx::query(statements::NAMES), false, timeout).await;
            let answer = asked.and_then(|answer| answer.ok_or_else(|| self.inner.file.gone()));
            let rows = answer.map_err(|failed| failed.of("listing", "elections"))?.rows;
            let names = rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>();
            let odd = |error| errors::failed(error, false, self.inner.file.path());
            names.map_err(|error| odd(error).of("listing", "elections"))
        }
        .boxed()
    }

    fn evict<'a>(
        &'a self,
        name: &'a str,
        expected: Revision,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let evict = sqlx::query(statements::EVICT).bind(name.to_owned()).bind(column(expected.0));
        async move {
            let put = self.inner.put(name, evict, timeout).await;
            put.map(drop).map_err(|failed| failed.of("eviction", name))
        }
        .boxed()
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        hint_hub::subscribe(&self.inner, name, sink)
    }
}

impl Listen for Inner {
    type Note = Heard;

    fn hub(&self) -> &HintHub<Heard> {
        &self.hearers.hub
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
