//! The lock: conditional statements on one row an election.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::Instant;

use super::connections::{Connections, Does};
use super::emptiness::{Emptiness, Nonces};
use super::errors;
use super::listener;
use super::statements;
use super::tables::Opened;
use crate::backends::hint_hub::{self, HintHub, Listen};
use crate::backends::sql::error::Failed;
use crate::backends::sql::hints::{Heard, Hearers};
use crate::backends::sql::row::Row;
use crate::backends::sql::seen::Seen;
use crate::backends::sql::{LONGEST_IDENTITY, check_name};
use crate::lock::{
    Capabilities, Concession, Content, HintSink, Lock, LockError, LockErrorKind, Reading, Record,
    Release, Revision, Subscription, Tombstone, Write,
};
use crate::time::timer::from_now;
use crate::util::per_key::PerKey;

/// The lock in a PostgreSQL database.
///
/// Cheap to clone; clones share connections and one listener.
#[derive(Clone)]
pub struct PostgresLock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) connections: Arc<Connections>,
    pub(super) opened: Opened,
    longest_lease_ms: AtomicU64,
    pub(super) hearers: Hearers,
    pub(super) seen: Seen,
    empty: PerKey<Emptiness>,
    /// The campaigns that have written by this lock.
    pub(super) own: Nonces,
    listens: bool,
    /// Whether acknowledged writes survive a failover.
    synchronous: bool,
}

/// What a read has found.
pub(super) struct Found {
    pub row: Option<Row>,
    /// The revision that the row replaced, where nothing can have been lost between the two.
    pub previous: Option<Revision>,
    /// What the last deposed leader said.
    pub conceded: Option<String>,
    /// Whether the row was written on the history that the server is on.
    pub same_history: bool,
    /// Whether the tables are older than the longest lease.
    settled: bool,
    /// The same by an hour and more, by which no two servers' clocks differ.
    old: bool,
    /// Whether the tables were made on the history that the server is on.
    same_tables: bool,
    /// That history; none where the server is a replica.
    history: Option<String>,
}

impl PostgresLock {
    pub(super) fn new(connections: Arc<Connections>, opened: Opened) -> Self {
        let longest_lease_ms = as_ms(opened.longest_lease).into();
        let inner = Inner {
            connections,
            opened,
            longest_lease_ms,
            hearers: Hearers::default(),
            seen: Seen::default(),
            empty: PerKey::default(),
            own: Nonces::default(),
            listens: true,
            synchronous: false,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Does not listen for notifications, but polls: for a pooler in transaction mode, which passes none on. It is found out in any
    /// case; this spares the connection that tries.
    pub fn polling(self) -> Self {
        self.change(|inner| inner.listens = false)
    }

    /// Says that no replica takes over that lacks an acknowledged write: `synchronous_standby_names` is set, and only a
    /// synchronous replica is ever promoted. Then elections go on through a failover. Without it the leader of before
    /// loses its office, and the next one waits for the longest lease, since a renewal may be lost.
    pub fn synchronous_replicas(self) -> Self {
        self.change(|inner| inner.synchronous = true)
    }

    /// The same lock, differently described, which shares only the connections with this one any more.
    fn change(self, change: impl FnOnce(&mut Inner)) -> Self {
        let old = &*self.inner;
        let mut inner = Inner {
            connections: Arc::clone(&old.connections),
            opened: old.opened.clone(),
            longest_lease_ms: old.longest_lease_ms.load(Ordering::Relaxed).into(),
            hearers: Hearers::default(),
            seen: Seen::default(),
            empty: PerKey::default(),
            own: Nonces::default(),
            listens: old.listens,
            synchronous: old.synchronous,
        };
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }
}

impl Inner {
    pub(super) async fn look(&self, name: &str, timeout: Duration) -> Result<Found, Failed> {
        let rows = self.connections.ask(&statements::read(name), Does::Read, timeout).await?;
        let Some(row) = rows.first() else {
            let what = "incumbent_settings is empty: run deploy/postgres.sql";
            return Err(Failed::new(LockErrorKind::Misconfigured, what));
        };
        let odd = |error| errors::failed(error, Does::Read, self.connections.place());
        if row.try_get("replica").map_err(odd)? {
            let what = errors::read_only(self.connections.place());
            return Err(Failed::new(LockErrorKind::Unavailable, what));
        }
        let longest: i64 = row.try_get("longest_ms").map_err(odd)?;
        self.longest_lease_ms.store(longest.unsigned_abs(), Ordering::Relaxed);
        let settled = row.try_get("settled").map_err(odd)?;
        let history = row.try_get("history").map_err(odd)?;
        let same_history: Option<bool> = row.try_get("same_history").map_err(odd)?;
        let same_history = self.synchronous || same_history.unwrap_or_default();
        let previous: Option<i64> = row.try_get("previous").map_err(odd)?;
        Ok(Found {
            previous: previous.map(|previous| Revision(previous.unsigned_abs())),
            conceded: row.try_get("conceded").map_err(odd)?,
            old: row.try_get("old").map_err(odd)?,
            same_tables: row.try_get("same_tables").map_err(odd)?,
            row: row_of(row).map_err(odd)?,
            same_history,
            settled,
            history,
        })
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, Failed> {
        let by = from_now(timeout);
        let left = || by.saturating_duration_since(Instant::now());
        let mut found = self.look(name, timeout).await?;
        while let Some(row) = &found.row {
            let seen = self.seen.see(name, row.revision);
            if found.same_history && row.revision >= seen {
                break;
            }
            let statement = statements::forget(name, row.revision, seen);
            match self.connections.ask(&statement, Does::Write, left()).await {
                Ok(_) => {}
                // Whoever only looks need not write. The row says no more than that somebody may be leading.
                Err(failed) if failed.kind == LockErrorKind::Denied => {
                    let content = Content::Vacant(Tombstone::Deleted);
                    return Ok(Reading::Found(Record { revision: Revision(seen), content }));
                }
                Err(failed) => return Err(failed),
            }
            found = self.look(name, left()).await?;
        }
        Ok(match found.row {
            Some(row) => {
                let record = row.record();
                self.hearers.was_read(name, record.revision);
                Reading::Found(record)
            }
            // A row is never deleted, so nobody has held the election, unless the tables were made anew, or a server that took
            // over, or that a dump was read into, lacks the row.
            None => {
                let is_whole = found.same_tables || (self.synchronous && found.old);
                self.empty.get(name).was_seen_on(found.history);
                let proof = (self.opened.made || found.settled) && is_whole;
                Reading::Empty { proof: proof && self.seen.newest(name) == 0 }
            }
        })
    }

    /// Answers the new revision, if the row was the expected one.
    async fn put(
        &self,
        name: &str,
        statement: &str,
        timeout: Duration,
    ) -> Result<Revision, Failed> {
        let rows = self.connections.ask(statement, Does::Write, timeout).await?;
        let Some(row) = rows.first() else {
            return Err(Failed::new(LockErrorKind::Conflict, "somebody else wrote"));
        };
        let revision: Result<i64, _> = row.try_get("revision");
        let odd = |error| errors::failed(error, Does::Write, self.connections.place());
        let revision = revision.map_err(odd)?.unsigned_abs();
        self.seen.see(name, revision);
        Ok(Revision(revision))
    }
}

impl Lock for PostgresLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            longest_lease: Duration::from_millis(
                self.inner.longest_lease_ms.load(Ordering::Relaxed),
            ),
            reads: true,
            empty_is_proof: false,
            expires: false,
            // Until its replicas have it, a commit whose backend was ended is visible and may still be lost.
            reads_are_durable: !self.inner.synchronous,
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
        async move {
            let statement = statement.map_err(|failed| failed.of("write", name))?;
            let put = self.inner.put(name, &statement, write.timeout).await;
            put.map_err(|failed| failed.of("write", name))
        }
        .boxed()
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        release: Release,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let statement = statements::release(name, &release, !self.inner.synchronous);
        async move {
            let put = self.inner.put(name, &statement, release.timeout).await;
            put.map(drop).map_err(|failed| failed.of("release", name))
        }
        .boxed()
    }

    fn concede<'a>(
        &'a self,
        name: &'a str,
        concession: Concession,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let statement = statements::concede(name, &concession);
        async move {
            let told = self.inner.connections.ask(&statement, Does::Write, CONCEDES_WITHIN).await;
            told.map(drop).map_err(|failed| failed.of("concession", name))
        }
        .boxed()
    }

    fn names(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<String>, LockError>> {
        async move {
            let connections = &self.inner.connections;
            let rows = connections.ask(statements::NAMES, Does::Read, timeout).await;
            let rows = rows.map_err(|failed| failed.of("listing", "elections"))?;
            let names = rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>();
            let odd = |error| errors::failed(error, Does::Read, connections.place());
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
        let statement = statements::evict(name, expected.0);
        async move {
            let put = self.inner.put(name, &statement, timeout).await;
            put.map(drop).map_err(|failed| failed.of("eviction", name))
        }
        .boxed()
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        if !self.inner.listens {
            return Subscription::none();
        }
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

/// How long telling that one has stopped may take.
const CONCEDES_WITHIN: Duration = Duration::from_secs(1);

impl fmt::Debug for PostgresLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.inner.connections.place();
        f.debug_struct("PostgresLock").field("at", &place).finish_non_exhaustive()
    }
}

fn as_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn row_of(row: &PgRow) -> Result<Option<Row>, sqlx::Error> {
    let Some(revision) = row.try_get::<Option<i64>, _>("revision")? else { return Ok(None) };
    Ok(Some(Row {
        revision: u64::try_from(revision).unwrap_or_default(),
        holder: row.try_get("holder")?,
        acquired_ms: row.try_get("acquired_ms")?,
        lease_ms: row.try_get::<Option<i64>, _>("lease_ms")?.unwrap_or_default(),
        token: row.try_get("token")?,
        nonce: row.try_get("nonce")?,
        write: row.try_get("write")?,
        released_by: row.try_get("released_by")?,
        left_ms: row.try_get("left_ms")?,
        advertised: row.try_get("advertised")?,
        expired: row.try_get::<Option<bool>, _>("expired")?.unwrap_or_default(),
    }))
}
