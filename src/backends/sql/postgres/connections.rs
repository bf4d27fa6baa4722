//! Connections, each used for one request at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, PgPool, Postgres};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::errors::{self, Effect};
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// The maximum number of concurrent requests: a request takes milliseconds, and a server has
/// connections for a hundred clients.
const MAX_REQUESTS: usize = 4;
/// How long an unused connection is trusted. Load balancers drop idle connections silently, some
/// after 350 s.
const TRUSTED_IDLE: Duration = Duration::from_secs(240);

#[derive(Debug)]
pub(super) struct Connections {
    source: Source,
    place: String,
}

enum Source {
    Own {
        options: Box<PgConnectOptions>,
        idle: Mutex<Vec<(PgConnection, Instant)>>,
        turns: Semaphore,
    },
    Pool(PgPool),
}

impl std::fmt::Debug for Source {
    /// Omits the options, which contain the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

enum Connection {
    Own(PgConnection),
    Pooled(PoolConnection<Postgres>),
}

/// A connection in use. Dropped without [`give_back`](Self::give_back), it is closed: the outcome
/// of its request is unknown.
struct Taken<'a> {
    connection: Option<Connection>,
    from: &'a Connections,
}

impl Connections {
    pub fn own(options: PgConnectOptions) -> Self {
        // Omits the startup parameters that a pooler refuses, and the prepared statements that a
        // pooler loses.
        let options = options
            .extra_float_digits(None)
            .statement_cache_capacity(0)
            .disable_statement_logging();
        let place = place_of(&options);
        let source = Source::Own {
            options: Box::new(options),
            idle: Mutex::default(),
            turns: Semaphore::new(MAX_REQUESTS),
        };
        Self { source, place }
    }

    pub fn of(pool: PgPool) -> Self {
        let place = place_of(&pool.connect_options());
        Self { source: Source::Pool(pool), place }
    }

    /// Returns the address of the database, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns a pool of one connection, for a listener.
    pub fn for_listener(&self) -> PgPool {
        let options = match &self.source {
            Source::Own { options, .. } => PgConnectOptions::clone(options),
            Source::Pool(pool) => PgConnectOptions::clone(&pool.connect_options()),
        };
        PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .test_before_acquire(false)
            .connect_lazy_with(options)
    }

    /// Runs `statement` in one transaction, and returns its rows.
    ///
    /// The whole text is one message of the simple protocol, which makes it a transaction. It needs
    /// no prepared statement, so it passes through poolers, and no row is ever locked while the
    /// server waits for this process, which may be suspended. The server cancels a statement whose
    /// response is no longer awaited.
    pub async fn execute(
        &self,
        statement: &str,
        effect: Effect,
        timeout: Duration,
    ) -> Result<Vec<PgRow>, LockError> {
        let by = deadline_after(timeout);
        let mut taken = match timeout_at(by, self.take()).await {
            Ok(taken) => taken.map_err(|error| errors::no_connection(error, &self.place))?,
            Err(_) => {
                let what = format!("no connection to {} in {timeout:?}", self.place);
                return Err(LockError::new(LockErrorKind::Unavailable, what));
            }
        };
        let left = by.saturating_duration_since(Instant::now()).as_millis().max(1);
        let whole = format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {left}; {statement}"
        );
        // Reads the response to its end: the rows arrive before the commit.
        match timeout_at(by, taken.run(whole)).await {
            Ok(Ok(rows)) => {
                taken.give_back();
                Ok(rows)
            }
            Ok(Err(error)) => Err(errors::failed(error, effect, &self.place)),
            Err(_) => {
                let kind = match effect {
                    Effect::Read => LockErrorKind::Unavailable,
                    Effect::Write => LockErrorKind::OutcomeUnknown,
                };
                Err(LockError::new(kind, format!("no response from {} in {timeout:?}", self.place)))
            }
        }
    }

    async fn take(&self) -> Result<Taken<'_>, sqlx::Error> {
        let connection = match &self.source {
            Source::Pool(pool) => Connection::Pooled(pool.acquire().await?),
            Source::Own { options, idle, turns } => {
                let turn = turns.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
                let connection = match newest(idle) {
                    Some(connection) => connection,
                    None => options.connect().await?,
                };
                turn.forget(); // `Taken` returns it
                Connection::Own(connection)
            }
        };
        Ok(Taken { connection: Some(connection), from: self })
    }
}

/// Returns the connection that was used last, and closes those that were idle for long.
fn newest(idle: &Mutex<Vec<(PgConnection, Instant)>>) -> Option<PgConnection> {
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    idle.retain(|(_, since)| since.elapsed() < TRUSTED_IDLE);
    idle.pop().map(|(connection, _)| connection)
}

impl Taken<'_> {
    async fn run(&mut self, whole: String) -> Result<Vec<PgRow>, sqlx::Error> {
        let connection = match &mut self.connection {
            Some(Connection::Own(connection)) => connection,
            Some(Connection::Pooled(connection)) => &mut **connection,
            None => return Err(sqlx::Error::PoolClosed),
        };
        sqlx::raw_sql(AssertSqlSafe(whole)).fetch_all(connection).await
    }

    fn give_back(mut self) {
        if let (Some(Connection::Own(connection)), Source::Own { idle, .. }) =
            (self.connection.take_if(|c| matches!(c, Connection::Own(_))), &self.from.source)
        {
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((connection, Instant::now()));
        }
        // A pooled connection returns to its pool when dropped.
        drop(self.connection.take());
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(Connection::Pooled(connection)) = self.connection.take() {
            drop(connection.detach());
        }
        if let Source::Own { turns, .. } = &self.from.source {
            turns.add_permits(1);
        }
    }
}

fn place_of(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or(options.get_username());
    match options.get_socket() {
        Some(socket) => format!("{}/{database}", socket.display()),
        None => format!("{}:{}/{database}", options.get_host(), options.get_port()),
    }
}
