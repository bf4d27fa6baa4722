//! State shared by the clones of a lock, and its requests to the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgListener, PgRow};

use super::basis::Basis;
use super::connections::Connections;
use super::errors;
use super::statements;
use super::tables::Opened;
use crate::backends::seen::SeenRevisions;
use crate::backends::sql::hints::Subscribers;
use crate::backends::sql::row::{Row, span};
use crate::lock::{Effect, LockError, LockErrorKind, Revision};
use crate::time::timing::whole_millis;
use crate::util::per_key::PerKey;

/// The state of a lock.
pub struct LockState {
    pub(super) connections: Arc<Connections>,
    pub(super) opened: Opened,
    pub(super) longest_lease_ms: AtomicU64,
    pub(super) subscribers: Subscribers,
    pub(super) seen: PerKey<SeenRevisions>,
    pub(super) basis: PerKey<Basis>,
    pub(super) listens: bool,
    /// Whether acknowledged writes survive a failover.
    pub(super) synchronous: bool,
}

/// The result of a read.
pub(super) struct ReadRow {
    pub row: Option<Row>,
    /// The revision that the row replaced, if no write can have been lost between the two.
    pub previous: Option<Revision>,
    /// The step-down notice of the last superseded leader.
    pub conceded: Option<String>,
    /// Whether the row was written on the server's present history.
    pub same_history: bool,
    /// Whether the tables, and the server's present start, are older than the maximum lease.
    pub settled: bool,
    /// Whether the tables are older than the maximum lease by an hour or more, which exceeds the
    /// difference of any two servers' clocks.
    pub old: bool,
    /// Whether the tables were created on the server's present history.
    pub same_tables: bool,
    /// The history of the server and of the tables.
    pub history: Option<String>,
    /// Of an entry of before the server's start: how long its holder, or another one of before, may
    /// lead.
    pub may_lead_for: Option<Duration>,
}

impl LockState {
    pub(super) fn new(connections: Arc<Connections>, opened: Opened) -> Self {
        Self {
            longest_lease_ms: whole_millis(opened.max_lease).into(),
            connections,
            opened,
            subscribers: Subscribers::default(),
            seen: PerKey::default(),
            basis: PerKey::default(),
            listens: true,
            synchronous: false,
        }
    }

    /// Returns the same configuration without any known state.
    pub(super) fn clone_config(&self) -> Self {
        Self {
            longest_lease_ms: self.longest_lease_ms.load(Ordering::Relaxed).into(),
            listens: self.listens,
            synchronous: self.synchronous,
            ..Self::new(Arc::clone(&self.connections), self.opened.clone())
        }
    }

    pub(super) async fn fetch(&self, name: &str, timeout: Duration) -> Result<ReadRow, LockError> {
        let rows = self.connections.execute(&statements::read(name), Effect::Read, timeout).await?;
        self.found(&rows)
    }

    /// As [`fetch`](Self::fetch), on the connection of a listener.
    pub(super) async fn fetch_on(
        &self,
        listener: &mut PgListener,
        name: &str,
        timeout: Duration,
    ) -> Result<ReadRow, LockError> {
        self.found(&self.connections.read_on(listener, &statements::read(name), timeout).await?)
    }

    fn found(&self, rows: &[PgRow]) -> Result<ReadRow, LockError> {
        let Some(row) = rows.first() else {
            let what = "incumbent_settings is empty: run deploy/postgres.sql";
            return Err(LockError::new(LockErrorKind::Misconfigured, what));
        };
        let odd = |error| errors::failed(error, Effect::Read, self.connections.place());
        self.connections.refuse_replica(row)?;
        let longest: i64 = row.try_get("longest_ms").map_err(odd)?;
        self.longest_lease_ms.store(longest.unsigned_abs(), Ordering::Relaxed);
        let settled = row.try_get("settled").map_err(odd)?;
        let history = row.try_get("history").map_err(odd)?;
        let same_history: Option<bool> = row.try_get("same_history").map_err(odd)?;
        let same_history = self.synchronous || same_history.unwrap_or_default();
        let may_lead_for: Option<i64> = row.try_get("may_lead_ms").map_err(odd)?;
        let previous: Option<i64> = row.try_get("previous").map_err(odd)?;
        Ok(ReadRow {
            previous: previous.map(|previous| Revision(previous.unsigned_abs())),
            conceded: row.try_get("conceded").map_err(odd)?,
            old: row.try_get("old").map_err(odd)?,
            same_tables: row.try_get("same_tables").map_err(odd)?,
            row: row_of(row).map_err(odd)?,
            same_history,
            settled,
            history,
            may_lead_for: may_lead_for.map(span),
        })
    }
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
        released_cause: row.try_get("released_cause")?,
        released_to: row.try_get("released_to")?,
        advertised: row.try_get("advertised")?,
        expired: row.try_get::<Option<bool>, _>("expired")?.unwrap_or_default(),
    }))
}
