//! Locks of `postgres://…` and `sqlite:PATH`.

use std::sync::Arc;
use std::time::Duration;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use super::targets::LockTarget;
#[cfg(feature = "sqlite")]
use crate::backends::sql::Sqlite;
#[cfg(feature = "postgres")]
use crate::backends::sql::{Postgres, PostgresProbe};
use crate::backends::sql::{SqlError, SqlErrorKind, TableSetup};
use crate::lock::Lock;
use crate::protocol::COMMON_MIN_LEASE;

#[derive(Clone)]
pub(super) struct SqlTarget {
    database: Database,
    tables: TableSetup,
    shown: String,
}

#[derive(Clone)]
enum Database {
    /// A URL, which may contain a password.
    #[cfg(feature = "postgres")]
    Postgres(String),
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf),
}

impl SqlTarget {
    #[cfg(feature = "postgres")]
    pub fn parse_postgres(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let tables = tables(parts)?;
        if !parts.place().starts_with("//") {
            return Err(
                parts.malformed("a database is named as postgres://USER@HOST:PORT/DATABASE")
            );
        }
        let database = Database::Postgres(parts.take_rest());
        Ok(Self { database, tables, shown: parts.shown().to_owned() })
    }

    #[cfg(feature = "sqlite")]
    pub fn parse_sqlite(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let tables = tables(parts)?;
        let path = parts.place();
        let path = parts.decoded(path.strip_prefix("//").unwrap_or(path))?;
        if matches!(&*path, "" | ":memory:") {
            return Err(parts.malformed("it names no file, as sqlite:elections.db does"));
        }
        let database = Database::Sqlite(path.into());
        Ok(Self { database, tables, shown: parts.shown().to_owned() })
    }

    pub fn with_lease(&mut self, lease: Duration) {
        self.tables = self.tables.max_lease(lease.max(COMMON_MIN_LEASE));
    }

    pub fn without_create(&mut self) {
        self.tables = TableSetup::existing().max_lease(self.tables.lease_if_created());
    }

    pub fn named(&self) -> Result<LockTarget, LockUrlError> {
        let tables = self.tables;
        Ok(match &self.database {
            #[cfg(feature = "postgres")]
            Database::Postgres(url) => {
                let probe = PostgresProbe::new(url).map_err(|error| self.failed(error))?;
                LockTarget::Postgres { probe, tables }
            }
            #[cfg(feature = "sqlite")]
            Database::Sqlite(path) => LockTarget::Sqlite { path: path.clone(), tables },
        })
    }

    pub async fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        let lock: Result<Arc<dyn Lock>, SqlError> = match &self.database {
            #[cfg(feature = "postgres")]
            Database::Postgres(url) => Postgres::connect_with(url, self.tables)
                .await
                .map(|database| Arc::new(database.lock()) as _),
            #[cfg(feature = "sqlite")]
            Database::Sqlite(path) => Sqlite::open_with(path, self.tables)
                .await
                .map(|database| Arc::new(database.lock()) as _),
        };
        lock.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: SqlError) -> LockUrlError {
        let kind = match error.kind() {
            SqlErrorKind::Unavailable => LockUrlErrorKind::Unavailable,
            SqlErrorKind::Denied => LockUrlErrorKind::Denied,
            SqlErrorKind::Misconfigured => LockUrlErrorKind::Unusable,
        };
        LockUrlError::with_source(kind, format!("{} cannot be used", self.shown), error)
    }
}

fn tables(parts: &mut Parts) -> Result<TableSetup, LockUrlError> {
    let tables = if parts.take_create()? { TableSetup::create() } else { TableSetup::existing() };
    let longest = parts.take_duration("max-lease")?;
    Ok(longest.map_or(tables, |longest| tables.max_lease(longest)))
}

/// Hides the URL, which may contain a password.
impl std::fmt::Debug for SqlTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}
