//! Facts about a server and its tables, read without creating or changing anything.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::Row;
use sqlx::postgres::PgRow;
use tokio::time::{Instant, timeout_at};

use super::connections::Connections;
use super::errors;
use super::options::options_of;
use super::statements;
use super::tables;
use crate::backends::sql::setup::{SqlError, SqlErrorKind};
use crate::lock::{Effect, LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// The prefix of the channels that test whether notifications arrive. Each channel is used once: a
/// pooler may leave another client's connection listening.
const CHANNEL: &str = "incumbent_probe_";

pub(super) fn probe_channel() -> String {
    format!("{CHANNEL}{:016x}", fastrand::u64(..))
}

const SERVER: &str = "SELECT current_setting('server_version') AS version,
        current_setting('server_version_num')::integer AS version_number,
        pg_is_in_recovery() AS replica,
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock_ms,
        current_setting('fsync') = 'on' AS syncs,
        current_setting('synchronous_commit') AS synchronous_commit,
        current_setting('synchronous_standby_names') AS synchronous_standby_names,
        floor(pg_notification_queue_usage() * 100)::integer AS queue_percent,
        (SELECT count(*) FROM pg_stat_replication) AS replicas";

/// Returns no facts about a table that does not exist.
const TABLES: &str = "SELECT n.nspname::text AS schema, current_schema()::text AS first_schema,
        coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
        to_regclass('incumbent_settings') IS NOT NULL
            AND to_regprocedure('incumbent_restored()') IS NOT NULL
            AND to_regprocedure('incumbent_incarnation()') IS NOT NULL AS complete,
        (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'A')
            AND t.tgname IN ('incumbent_guard', 'incumbent_tell', 'incumbent_refuse')) AS triggers,
        has_table_privilege(c.oid, 'SELECT') AS may_select,
        has_table_privilege(c.oid, 'INSERT') AS may_insert,
        has_table_privilege(c.oid, 'UPDATE') AS may_update,
        has_table_privilege(to_regclass('incumbent_settings')::oid, 'SELECT') AS may_know,
        has_table_privilege(checkpoints, 'SELECT') AS may_select_checkpoints,
        has_table_privilege(checkpoints, 'INSERT') AS may_insert_checkpoints,
        has_table_privilege(checkpoints, 'UPDATE') AS may_update_checkpoints
    FROM (SELECT to_regclass('incumbent_checkpoints')::oid AS checkpoints,
            to_regclass('incumbent_elections')::oid AS oid) found
        LEFT JOIN pg_class c ON c.oid = found.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace";

const HISTORY: &str = "SELECT incumbent_incarnation() <> '' AS reports_history,
        (SELECT count(*) FROM incumbent_elections WHERE started IS DISTINCT FROM pg_postmaster_start_time()) AS older,
        (SELECT incarnation IS NOT DISTINCT FROM incumbent_incarnation() FROM incumbent_settings) AS created_here";

/// The number of triggers on the tables.
const TRIGGERS: i64 = 3;

/// Reads the facts that elections depend on from a PostgreSQL server. It writes and creates
/// nothing, so it works where [`Postgres::connect`](super::Postgres::connect) does not: on a
/// replica, without tables, without permissions.
pub struct PostgresProbe {
    connections: Connections,
}

/// Facts that a server reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresFacts {
    /// Its version, as in `15.8`.
    pub version: String,
    /// The version as a number: `150008`. Elections need 120000.
    pub version_number: i32,
    /// Whether it is a replica, or is recovering: no elections are held there.
    pub replica: bool,
    /// Its clock, in milliseconds, at the time of its response.
    pub clock: SystemTime,
    /// Whether it syncs its disk (`fsync`). If not, a crash of the machine loses acknowledged
    /// writes.
    pub syncs: bool,
    /// `synchronous_commit` for the present role.
    pub synchronous_commit: String,
    /// `synchronous_standby_names`: empty if it waits for no replica.
    pub synchronous_standby_names: String,
    /// The number of replicas that follow it now.
    pub replicas: u64,
    /// How much of the queue of notifications is in use, in percent. Once it is full, every write
    /// of an election fails.
    pub notification_queue_percent: u32,
}

/// Facts about the tables, and the permissions on them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableFacts {
    /// The schema of the tables; `None`: they do not exist.
    pub schema: Option<String>,
    /// The schema in which they would be created; `None`: the `search_path` names no existing
    /// schema.
    pub first_schema: Option<String>,
    /// Whether the present role may create them.
    pub may_create: bool,
    /// Whether tables, function and triggers all exist. If not, `deploy/postgres.sql` fixes it.
    pub complete: bool,
    /// The missing permissions of those that a candidate needs, as in `UPDATE` on
    /// `incumbent_elections`.
    pub lacking: Vec<TablePermission>,
    /// Those that a candidate of an election with a checkpoint needs besides.
    pub lacking_for_checkpoints: Vec<TablePermission>,
    /// The maximum lease; `None` if the tables do not exist, or cannot be read.
    pub max_lease: Option<Duration>,
    /// Whether the server reports its history, by which a failover is detected; `None` if unknown.
    pub reports_history: Option<bool>,
    /// Whether the tables were created on the server's present history. If not, after a failover,
    /// a restore or an imported dump, a missing row proves nothing, and the first term of each
    /// new election waits. `None` if unknown.
    pub created_here: Option<bool>,
    /// The number of elections that were last written before the server's present start, which may
    /// be on files that were restored from a backup; `None` if unknown.
    pub older_than_start: Option<u64>,
}

/// A permission on a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePermission {
    /// As in `UPDATE`.
    pub verb: &'static str,
    /// As in `incumbent_elections`.
    pub table: &'static str,
}

impl PostgresProbe {
    /// Creates a probe for the server of a URL as [`Postgres::connect`](super::Postgres::connect)
    /// takes it. Sends no request.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn new(url: &str) -> Result<Self, SqlError> {
        Ok(Self { connections: Connections::own(options_of(url)?) })
    }

    /// Returns the address of the database without secrets, as in `db.example.net:5432/app`.
    pub fn place(&self) -> &str {
        self.connections.place()
    }

    /// Reads the facts about the server.
    ///
    /// # Errors
    /// If it cannot be reached within `timeout`, or refuses the credentials.
    pub async fn server(&self, timeout: Duration) -> Result<PostgresFacts, SqlError> {
        let row = self.one(SERVER, timeout).await?;
        self.server_of(&row).map_err(|error| self.odd(error).into())
    }

    fn server_of(&self, row: &PgRow) -> Result<PostgresFacts, sqlx::Error> {
        let clock: i64 = row.try_get("clock_ms")?;
        let replicas: i64 = row.try_get("replicas")?;
        let queue_percent: i32 = row.try_get("queue_percent")?;
        Ok(PostgresFacts {
            version: row.try_get("version")?,
            version_number: row.try_get("version_number")?,
            replica: row.try_get("replica")?,
            clock: UNIX_EPOCH + Duration::from_millis(clock.unsigned_abs()),
            syncs: row.try_get("syncs")?,
            synchronous_commit: row.try_get("synchronous_commit")?,
            synchronous_standby_names: row.try_get("synchronous_standby_names")?,
            replicas: replicas.unsigned_abs(),
            notification_queue_percent: queue_percent.unsigned_abs(),
        })
    }

    /// Reads the facts about the tables that the `search_path` finds.
    ///
    /// # Errors
    /// As [`server`](Self::server); also for tables of another version.
    pub async fn tables(&self, timeout: Duration) -> Result<TableFacts, SqlError> {
        let deadline = deadline_after(timeout);
        let row = self.one(TABLES, timeout).await?;
        let mut facts = tables_of(&row).map_err(|error| self.odd(error))?;
        let may_read = facts.lacking.iter().all(|right| right.verb != "SELECT");
        if facts.schema.is_some() && facts.complete && may_read {
            let left = || deadline.saturating_duration_since(Instant::now());
            facts.max_lease = Some(tables::settings(&self.connections, left()).await?.0);
            let row = self.one(HISTORY, left()).await?;
            facts.reports_history =
                row.try_get("reports_history").map_err(|error| self.odd(error))?;
            facts.created_here = row.try_get("created_here").map_err(|error| self.odd(error))?;
            let older: i64 = row.try_get("older").map_err(|error| self.odd(error))?;
            facts.older_than_start = Some(older.unsigned_abs());
        }
        Ok(facts)
    }

    /// Returns whether notifications arrive, on a channel of this probe's own. They do not behind a
    /// pooler in transaction mode: standbys then poll.
    ///
    /// # Errors
    /// If the server refuses to listen or to notify, as a replica does, or no request succeeded
    /// within `timeout`.
    pub async fn receives_notifications(&self, timeout: Duration) -> Result<bool, SqlError> {
        let deadline = deadline_after(timeout);
        let place = self.connections.place();
        let channel = probe_channel();
        let mut listener = match timeout_at(deadline, self.connections.listen(&[&channel])).await {
            Ok(begun) => begun.map_err(|error| errors::failed(error, Effect::Read, place))?,
            Err(_) => {
                let what = format!("{place} did not begin to listen in {timeout:?}");
                return Err(SqlError::new(SqlErrorKind::Unavailable, what));
            }
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let sent =
            self.connections.execute(&statements::notify(&channel, ""), Effect::Read, left).await;
        match sent {
            Ok(_) => {}
            Err(failed) if errors::is_out_of_turn(&failed) => return Ok(false),
            Err(failed) => return Err(failed.into()),
        }
        let received = async {
            loop {
                match listener.try_recv().await {
                    Ok(Some(notification)) if notification.channel() == channel => return Ok(true),
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(false),
                    Err(error) => return Err(errors::failed(error, Effect::Read, place)),
                }
            }
        };
        match timeout_at(deadline, received).await {
            Ok(received) => Ok(received?),
            Err(_) => Ok(false),
        }
    }

    async fn one(&self, statement: &str, timeout: Duration) -> Result<PgRow, LockError> {
        let rows = self.connections.execute(statement, Effect::Read, timeout).await?;
        rows.into_iter().next().ok_or_else(|| {
            let what = format!("{} returned no row", self.connections.place());
            LockError::new(LockErrorKind::Unavailable, what)
        })
    }

    fn odd(&self, error: sqlx::Error) -> LockError {
        errors::failed(error, Effect::Read, self.connections.place())
    }
}

fn tables_of(row: &PgRow) -> Result<TableFacts, sqlx::Error> {
    const ELECTIONS: &str = "incumbent_elections";
    const CHECKPOINTS: &str = "incumbent_checkpoints";
    let schema: Option<String> = row.try_get("schema")?;
    let lacking = |columns: &[(&str, &'static str, &'static str)]| {
        let mut lacking = Vec::new();
        for &(column, verb, table) in columns {
            // Returns no facts about what does not exist.
            if row.try_get::<Option<bool>, _>(column)? == Some(false) {
                lacking.push(TablePermission { verb, table });
            }
        }
        Ok::<_, sqlx::Error>(lacking)
    };
    let triggers: i64 = row.try_get("triggers")?;
    Ok(TableFacts {
        complete: row.try_get::<bool, _>("complete")? && triggers == TRIGGERS,
        schema,
        first_schema: row.try_get("first_schema")?,
        may_create: row.try_get("may_create")?,
        lacking: lacking(&[
            ("may_select", "SELECT", ELECTIONS),
            ("may_insert", "INSERT", ELECTIONS),
            ("may_update", "UPDATE", ELECTIONS),
            ("may_know", "SELECT", "incumbent_settings"),
        ])?,
        lacking_for_checkpoints: lacking(&[
            ("may_select_checkpoints", "SELECT", CHECKPOINTS),
            ("may_insert_checkpoints", "INSERT", CHECKPOINTS),
            ("may_update_checkpoints", "UPDATE", CHECKPOINTS),
        ])?,
        max_lease: None,
        reports_history: None,
        created_here: None,
        older_than_start: None,
    })
}

partial_debug!(PostgresProbe, self, at: self.place());
