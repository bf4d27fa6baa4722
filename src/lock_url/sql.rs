//! Locks of `postgres://…` and `sqlite:PATH`.

use std::sync::Arc;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use super::target::{OpenOptions, StoreTarget};
#[cfg(feature = "sqlite")]
use crate::backends::sql::Sqlite;
#[cfg(feature = "postgres")]
use crate::backends::sql::{Postgres, PostgresProbe};
use crate::backends::sql::{SqlError, SqlErrorKind, TableSetup};
use crate::lock::Lock;
use crate::protocol::COMMON_MIN_LEASE;

#[cfg(feature = "postgres")]
#[derive(Clone)]
pub(super) struct PostgresTarget {
    /// It may contain a password.
    url: String,
    polling: bool,
    tables: TableSetup,
    shown: String,
}

#[cfg(feature = "sqlite")]
#[derive(Clone)]
pub(super) struct SqliteTarget {
    path: std::path::PathBuf,
    tables: TableSetup,
    shown: String,
}

#[cfg(feature = "postgres")]
impl StoreTarget for PostgresTarget {
    type Named = (PostgresProbe, TableSetup);

    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let tables = tables(parts)?;
        if !parts.place().starts_with("//") {
            return Err(
                parts.malformed("a database is named as postgres://USER@HOST:PORT/DATABASE")
            );
        }
        let polling = parts.take_flag("polling")?;
        Ok(Self { url: parts.take_rest(), polling, tables, shown: parts.shown().to_owned() })
    }

    fn credential_variables(&self) -> &'static [&'static str] {
        &["PGPASSWORD", "PGPASSFILE", "PGSSLKEY"]
    }

    fn named(&self, options: OpenOptions) -> Result<Self::Named, LockUrlError> {
        let probe = PostgresProbe::new(&self.url).map_err(|error| failed(&self.shown, error))?;
        Ok((probe, with(options, self.tables)))
    }

    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        let opened = Postgres::connect_with(&self.url, with(options, self.tables)).await;
        let lock = opened.map_err(|error| failed(&self.shown, error))?.lock();
        Ok(Arc::new(if self.polling { lock.polling() } else { lock }))
    }
}

#[cfg(feature = "sqlite")]
impl StoreTarget for SqliteTarget {
    type Named = (std::path::PathBuf, TableSetup);

    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let tables = tables(parts)?;
        let path = parts.place();
        let path = parts.decoded(path.strip_prefix("//").unwrap_or(path))?;
        if matches!(&*path, "" | ":memory:") {
            return Err(parts.malformed("it names no file, as sqlite:elections.db does"));
        }
        Ok(Self { path: path.into(), tables, shown: parts.shown().to_owned() })
    }

    fn named(&self, options: OpenOptions) -> Result<Self::Named, LockUrlError> {
        Ok((self.path.clone(), with(options, self.tables)))
    }

    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        let opened = Sqlite::open_with(&self.path, with(options, self.tables)).await;
        Ok(Arc::new(opened.map_err(|error| failed(&self.shown, error))?.lock()))
    }
}

fn tables(parts: &mut Parts) -> Result<TableSetup, LockUrlError> {
    let tables = if parts.take_create()? { TableSetup::create() } else { TableSetup::existing() };
    let longest = parts.take_duration("max-lease")?;
    Ok(longest.map_or(tables, |longest| tables.max_lease(longest)))
}

fn with(options: OpenOptions, tables: TableSetup) -> TableSetup {
    let tables = match options.lease {
        Some(lease) => tables.max_lease(lease.max(COMMON_MIN_LEASE)),
        None => tables,
    };
    match options.create {
        true => tables,
        false => TableSetup::existing().max_lease(tables.lease_if_created()),
    }
}

fn failed(shown: &str, error: SqlError) -> LockUrlError {
    let kind = match error.kind() {
        SqlErrorKind::Unavailable => LockUrlErrorKind::Unavailable,
        SqlErrorKind::Denied => LockUrlErrorKind::Denied,
        SqlErrorKind::Misconfigured => LockUrlErrorKind::Unusable,
    };
    LockUrlError::with_source(kind, format!("{shown} cannot be used"), error)
}

#[cfg(feature = "postgres")]
partial_debug!(PostgresTarget, self, url: self.shown);
#[cfg(feature = "sqlite")]
partial_debug!(SqliteTarget, self, url: self.shown);
