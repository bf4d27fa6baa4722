//! Connections, each used for one request at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, PgPool, Postgres};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::errors::{self, Effect};
use crate::backends::sql::error::RequestError;
use crate::lock::LockErrorKind;
use crate::time::timer::deadline_after;

/// How many requests may be under way: a request takes milliseconds, and a server has connections for a hundred clients.
const AT_ONCE: usize = 4;
/// For how long an unused connection is trusted. What stands between may have forgotten it without a word: load balancers do after
/// 350 s.
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
    /// Without the options, which have the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

enum Connection {
    Own(PgConnection),
    Pooled(PoolConnection<Postgres>),
}

/// A connection in use. Dropped without [`give_back`](Self::give_back) it is closed: what is under way on it, nobody knows.
struct Taken<'a> {
    connection: Option<Connection>,
    from: &'a Connections,
}

impl Connections {
    pub fn own(options: PgConnectOptions) -> Self {
        // None of the startup parameters that a pooler refuses, none of the prepared statements that it loses.
        let options = options
            .extra_float_digits(None)
            .statement_cache_capacity(0)
            .disable_statement_logging();
        let place = place_of(&options);
        let source = Source::Own {
            options: Box::new(options),
            idle: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        };
        Self { source, place }
    }

    pub fn of(pool: PgPool) -> Self {
        let place = place_of(&pool.connect_options());
        Self { source: Source::Pool(pool), place }
    }

    /// Which database, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// A pool of one connection, for a listener.
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

    /// Has the server do `statement` in one transaction, and answers its rows.
    ///
    /// All of it goes out in one message of the simple protocol, and is a transaction by that: it needs no prepared
    /// statement, so it passes through poolers; and no row is ever locked while the server waits for us, who may be
    /// suspended. The server gives up a statement of which we expect no answer any more.
    pub async fn ask(
        &self,
        statement: &str,
        effect: Effect,
        timeout: Duration,
    ) -> Result<Vec<PgRow>, RequestError> {
        let by = deadline_after(timeout);
        let mut taken = match timeout_at(by, self.take()).await {
            Ok(taken) => taken.map_err(|error| errors::no_connection(error, &self.place))?,
            Err(_) => {
                let what = format!("no connection to {} in {timeout:?}", self.place);
                return Err(RequestError::new(LockErrorKind::Unavailable, what));
            }
        };
        let left = by.saturating_duration_since(Instant::now()).as_millis().max(1);
        let whole = format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {left}; {statement}"
        );
        // To its end: rows come before the commit does.
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
                Err(RequestError::new(
                    kind,
                    format!("no answer from {} in {timeout:?}", self.place),
                ))
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
                turn.forget(); // Taken gives it back
                Connection::Own(connection)
            }
        };
        Ok(Taken { connection: Some(connection), from: self })
    }
}

/// The connection that was used last. Those that were not used for long are closed.
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
        // One of a pool goes back by being dropped.
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
