//! The tables: seeing that they are there, or making them.

use std::time::Duration;

use sqlx::Row;
use tokio::time::{Instant, sleep};

use super::connections::Connections;
use super::errors::{self, Effect};
use super::statements;
use crate::backends::sql::error::{RequestError, SqlError, SqlErrorKind};
use crate::backends::sql::row::{millis, span};
use crate::backends::sql::setup::TableSetup;
use crate::lock::LockErrorKind;

/// The version of the tables that is understood here.
const VERSION: i32 = 1;
const MAKE: &str = include_str!("../../../../deploy/postgres.sql");
/// What it says of the longest lease.
const ITS_LONGEST_LEASE: &str = "interval '60 seconds'";
/// What the channels of notifications begin with; the schema follows.
const CHANNEL: &str = "incumbent.";
/// The most bytes that the name of a channel may have.
const LONGEST_CHANNEL: usize = 63;

#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub max_lease: Duration,
    /// Whether we have made them, and so know that nobody has held an election before.
    pub made: bool,
    /// Where changes are told.
    pub channel: String,
}

pub(super) async fn open(
    connections: &Connections,
    tables: TableSetup,
    timeout: Duration,
) -> Result<Opened, SqlError> {
    tables.check()?;
    let by = Instant::now() + timeout;
    let mut made = false;
    loop {
        let left = by.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match look(connections, left, made).await? {
            Some(opened) => return Ok(opened),
            None if tables.make => {}
            None => {
                let what = format!(
                    "there are no tables of elections at {}: run deploy/postgres.sql",
                    connections.place()
                );
                return Err(SqlError::new(SqlErrorKind::Misconfigured, what));
            }
        }
        match make(connections, tables.max_lease, left).await {
            Ok(by_us) => made = by_us,
            // Others make them at the same moment.
            Err(failed) if failed.kind == LockErrorKind::Unavailable && Instant::now() < by => {
                sleep(Duration::from_millis(50)).await;
            }
            Err(failed) => {
                let what = format!(
                    "the tables of elections cannot be made at {}: run deploy/postgres.sql as who may",
                    connections.place()
                );
                return Err(RequestError { message: what, ..failed }.into());
            }
        }
    }
}

/// `None`: there are no tables.
async fn look(
    connections: &Connections,
    timeout: Duration,
    made: bool,
) -> Result<Option<Opened>, RequestError> {
    let statement = "SELECT n.nspname::text AS schema, pg_is_in_recovery() AS replica
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = to_regclass('incumbent_elections')";
    let rows = connections.ask(statement, Effect::Read, timeout).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let odd = |error| errors::failed(error, Effect::Read, connections.place());
    if row.try_get("replica").map_err(odd)? {
        let what = errors::read_only(connections.place());
        return Err(RequestError::new(LockErrorKind::Unavailable, what));
    }
    let channel = format!("{CHANNEL}{}", row.try_get::<String, _>("schema").map_err(odd)?);
    if channel.len() > LONGEST_CHANNEL {
        let most = LONGEST_CHANNEL - CHANNEL.len();
        let what = format!("the name of the tables' schema may have {most} bytes at the most");
        return Err(RequestError::new(LockErrorKind::Misconfigured, what));
    }
    let max_lease = max_lease(connections, timeout).await?;
    Ok(Some(Opened { max_lease, made, channel }))
}

/// The longest lease of the tables, which must be of our version.
pub(super) async fn max_lease(
    connections: &Connections,
    timeout: Duration,
) -> Result<Duration, RequestError> {
    let odd = |error| errors::failed(error, Effect::Read, connections.place());
    let rows = connections.ask(&statements::read("any"), Effect::Read, timeout).await?;
    let misconfigured = |what| RequestError::new(LockErrorKind::Misconfigured, what);
    let Some(row) = rows.first() else {
        let what = "incumbent_settings is empty: run deploy/postgres.sql".to_owned();
        return Err(misconfigured(what));
    };
    let version: i32 = row.try_get("version").map_err(odd)?;
    if version != VERSION {
        let what = format!(
            "the tables at {} are of version {version}, and version {VERSION} is understood: use the same version everywhere",
            connections.place()
        );
        return Err(misconfigured(what));
    }
    Ok(span(row.try_get("longest_ms").map_err(odd)?))
}

/// Answers whether it was us who made them.
async fn make(
    connections: &Connections,
    max_lease: Duration,
    timeout: Duration,
) -> Result<bool, RequestError> {
    let lease = format!("interval '{} milliseconds'", millis(max_lease));
    let statement = MAKE.replace(ITS_LONGEST_LEASE, &lease);
    let made = connections.ask(&statement, Effect::Read, timeout).await?;
    Ok(!made.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_the_longest_lease_once() {
        assert_eq!(MAKE.matches(ITS_LONGEST_LEASE).count(), 1);
        assert!(MAKE.contains(&format!("'{CHANNEL}' || TG_TABLE_SCHEMA")));
    }
}
