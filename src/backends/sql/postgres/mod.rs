//! Elections in PostgreSQL.

mod basis;
mod connections;
mod errors;
mod listener;
mod lock;
mod options;
mod probe;
mod state;
mod statements;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;

use super::setup::{SqlError, TableSetup};
use connections::Connections;
pub use lock::PostgresLock;
pub use probe::{PostgresFacts, PostgresProbe, TableFacts, TablePermission};
use state::LockState;

/// How long opening may take.
const OPENS_WITHIN: Duration = Duration::from_secs(10);

/// A database of a PostgreSQL server, version 12 or later, with the tables of elections.
///
/// Cheap to clone. It has a few connections of its own and, while an election listens, one more for
/// `LISTEN`.
#[derive(Clone)]
pub struct Postgres {
    connections: Arc<Connections>,
    opened: tables::Opened,
}

impl Postgres {
    /// Connects to a URL such as `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full`,
    /// and creates the tables if they do not exist. Parts that the URL omits come from `PGHOST`,
    /// `PGUSER` and so on and from `~/.pgpass`.
    ///
    /// # Errors
    /// An invalid URL; a server that cannot be reached, refuses the credentials, or is a replica;
    /// tables that are missing and may not be created, or are not those of this version.
    ///
    /// # Cancel safety
    /// If dropped, tables may be left behind.
    pub async fn connect(url: &str) -> Result<Self, SqlError> {
        Self::connect_with(url, TableSetup::create()).await
    }

    /// As [`connect`](Self::connect), with `tables` for the creation of missing tables.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// If dropped, tables may be left behind.
    pub async fn connect_with(url: &str, tables: TableSetup) -> Result<Self, SqlError> {
        Self::over(Connections::own(options::options_of(url)?), tables).await
    }

    /// Uses an existing pool, and its settings for the connection that listens. The pool should
    /// have a spare connection: a renewal that waits for one is late.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), but for the URL.
    ///
    /// # Cancel safety
    /// If dropped, tables may be left behind.
    pub async fn open(pool: PgPool) -> Result<Self, SqlError> {
        Self::open_with(pool, TableSetup::create()).await
    }

    /// As [`open`](Self::open), with `tables` for the creation of missing tables.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// If dropped, tables may be left behind.
    pub async fn open_with(pool: PgPool, tables: TableSetup) -> Result<Self, SqlError> {
        Self::over(Connections::of(pool), tables).await
    }

    async fn over(connections: Connections, tables: TableSetup) -> Result<Self, SqlError> {
        let opened = tables::open(&connections, tables, OPENS_WITHIN).await?;
        Ok(Self { connections: Arc::new(connections), opened })
    }

    /// Returns the maximum lease of this database.
    pub fn max_lease(&self) -> Duration {
        self.opened.max_lease
    }

    /// Returns the lock, for any number of elections.
    pub fn lock(&self) -> PostgresLock {
        PostgresLock::new(LockState::new(Arc::clone(&self.connections), self.opened.clone()))
    }
}

partial_debug!(Postgres, self, at: self.connections.place());
