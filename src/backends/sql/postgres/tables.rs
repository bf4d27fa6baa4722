//! Checks and creates the tables.

use std::time::Duration;

use sqlx::Row;
use tokio::time::{Instant, sleep};

use super::connections::Connections;
use super::errors;
use super::statements;
use crate::backends::sql::row::{millis, span};
use crate::backends::sql::setup::{SqlError, SqlErrorKind, TableSetup};
use crate::lock::{Effect, LockError, LockErrorKind};

/// The version of the tables that this library supports.
const VERSION: i32 = 1;
const SCRIPT: &str = include_str!("../../../../deploy/postgres.sql");
/// The maximum lease in the creation script.
const SCRIPT_MAX_LEASE: &str = "interval '60 seconds'";
/// The prefix of the channels of notifications; the schema follows.
const CHANNEL: &str = "incumbent.";
/// The maximum length of a channel's name in bytes.
const MAX_CHANNEL_LEN: usize = 63;

#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub max_lease: Duration,
    /// The history on which this process created them: then no election had a holder before.
    pub created_on: Option<String>,
    /// The channel of notifications.
    pub channel: String,
}

pub(super) async fn open(
    connections: &Connections,
    tables: TableSetup,
    timeout: Duration,
) -> Result<Opened, SqlError> {
    tables.check()?;
    let deadline = Instant::now() + timeout;
    let mut created = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match find_tables(connections, left, created).await? {
            Some(opened) => return Ok(opened),
            None if tables.create => {}
            None => {
                let what = format!(
                    "there are no tables of elections at {}: run deploy/postgres.sql, or start a candidate, which creates them",
                    connections.place()
                );
                return Err(SqlError::new(SqlErrorKind::Misconfigured, what));
            }
        }
        match create_tables(connections, tables.max_lease, left).await {
            Ok(by_us) => created = by_us,
            // Another process creates them at the same moment.
            Err(failed)
                if failed.kind() == LockErrorKind::Unavailable && Instant::now() < deadline =>
            {
                sleep(Duration::from_millis(50)).await;
            }
            Err(failed) => {
                let what = format!(
                    "the tables of elections cannot be created at {}: run deploy/postgres.sql as a role that may create tables",
                    connections.place()
                );
                return Err(failed.with_message(what).into());
            }
        }
    }
}

/// Returns `None` if there are no tables.
async fn find_tables(
    connections: &Connections,
    timeout: Duration,
    created: bool,
) -> Result<Option<Opened>, LockError> {
    let statement = "SELECT n.nspname::text AS schema, pg_is_in_recovery() AS replica
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = to_regclass('incumbent_elections')";
    let rows = connections.execute(statement, Effect::Read, timeout).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let odd = |error| errors::failed(error, Effect::Read, connections.place());
    connections.refuse_replica(row)?;
    let channel = format!("{CHANNEL}{}", row.try_get::<String, _>("schema").map_err(odd)?);
    if channel.len() > MAX_CHANNEL_LEN {
        let limit = MAX_CHANNEL_LEN - CHANNEL.len();
        let what = format!("the name of the tables' schema is limited to {limit} bytes");
        return Err(LockError::new(LockErrorKind::Misconfigured, what));
    }
    let (max_lease, history) = settings(connections, timeout).await?;
    Ok(Some(Opened { max_lease, created_on: history.filter(|_| created), channel }))
}

/// Returns the maximum lease of the tables, which must be of the supported version, and their
/// history.
pub(super) async fn settings(
    connections: &Connections,
    timeout: Duration,
) -> Result<(Duration, Option<String>), LockError> {
    let odd = |error| errors::failed(error, Effect::Read, connections.place());
    let rows = connections.execute(&statements::read("any"), Effect::Read, timeout).await?;
    let misconfigured = |what| LockError::new(LockErrorKind::Misconfigured, what);
    let Some(row) = rows.first() else {
        let what = "incumbent_settings is empty: run deploy/postgres.sql".to_owned();
        return Err(misconfigured(what));
    };
    let version: i32 = row.try_get("version").map_err(odd)?;
    if version != VERSION {
        let what = format!(
            "the tables at {} are of version {version}, and version {VERSION} is supported: use the same version everywhere",
            connections.place()
        );
        return Err(misconfigured(what));
    }
    let max_lease = span(row.try_get("longest_ms").map_err(odd)?);
    Ok((max_lease, row.try_get("history").map_err(odd)?))
}

/// Returns whether this process created them.
async fn create_tables(
    connections: &Connections,
    max_lease: Duration,
    timeout: Duration,
) -> Result<bool, LockError> {
    let lease = format!("interval '{} milliseconds'", millis(max_lease));
    let statement = SCRIPT.replace(SCRIPT_MAX_LEASE, &lease);
    let created = connections.execute(&statement, Effect::Read, timeout).await?;
    Ok(!created.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_contains_the_maximum_lease_once() {
        assert_eq!(SCRIPT.matches(SCRIPT_MAX_LEASE).count(), 1);
        assert!(SCRIPT.contains(&format!("'{CHANNEL}' || TG_TABLE_SCHEMA")));
    }
}
