//! Connections, each used for one request at a time.

use std::sync::Mutex;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, PgPool, Postgres, Row as _};
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::errors;
use crate::lock::{Effect, LockError, LockErrorKind};
use crate::time::timer::deadline_after;
use crate::util::locked;

/// The maximum number of concurrent requests: a request takes milliseconds, and a server has
/// connections for a hundred clients.
const MAX_REQUESTS: usize = 4;
/// How long an unused connection is kept: a standby that listens needs none. (Load balancers also
/// drop idle connections silently, some after 350 s.)
pub(super) const MAX_IDLE: Duration = Duration::from_secs(30);
/// Has the server drop a listener that does not read, as in a process that is stopped: what it does
/// not receive fills the queue of notifications, and then every write of an election fails. Without
/// effect on a Unix socket.
const DROP_SILENT: &str = "SET tcp_user_timeout = '30s'";

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

    /// Listens on channels, on a connection of its own.
    pub async fn listen(&self, channels: &[&str]) -> Result<PgListener, sqlx::Error> {
        let options = match &self.source {
            Source::Own { options, .. } => PgConnectOptions::clone(options),
            Source::Pool(pool) => PgConnectOptions::clone(&pool.connect_options()),
        };
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .test_before_acquire(false)
            .connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        if let Err(error) = sqlx::raw_sql(DROP_SILENT).execute(&mut listener).await {
            debug!(at = self.place, %error, "a stopped listener is not dropped");
        }
        listener.listen_all(channels.iter().copied()).await?;
        Ok(listener)
    }

    /// Closes the connections that were not used for long.
    pub fn close_idle(&self) {
        if let Source::Own { idle, .. } = &self.source {
            let mut idle = locked(idle);
            idle.retain(|(_, since)| since.elapsed() < MAX_IDLE);
        }
    }

    /// Runs `statement`, which reads, on the connection of a listener, as
    /// [`execute`](Self::execute) does. After an error the listener is of no use.
    pub async fn read_on(
        &self,
        listener: &mut PgListener,
        statement: &str,
        timeout: Duration,
    ) -> Result<Vec<PgRow>, LockError> {
        let by = deadline_after(timeout);
        let rows = sqlx::raw_sql(AssertSqlSafe(whole(statement, by))).fetch_all(listener);
        self.outcome(timeout_at(by, rows).await, Effect::Read, timeout)
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
        // Reads the response to its end: the rows arrive before the commit.
        let response = timeout_at(by, taken.run(whole(statement, by))).await;
        match &response {
            // The address may lead to the primary by now: the next request connects again.
            Ok(Ok(rows)) if rows.first().is_some_and(is_of_replica) => {
                if let Source::Own { idle, .. } = &self.source {
                    locked(idle).clear();
                }
            }
            Ok(Ok(_)) => taken.give_back(),
            _ => {}
        }
        self.outcome(response, effect, timeout)
    }

    /// Refuses the response of a replica.
    pub fn refuse_replica(&self, row: &PgRow) -> Result<(), LockError> {
        match row.try_get("replica") {
            Ok(false) => Ok(()),
            Ok(true) => {
                let what = errors::read_only(&self.place);
                Err(LockError::new(LockErrorKind::Unavailable, what))
            }
            Err(error) => Err(errors::failed(error, Effect::Read, &self.place)),
        }
    }

    fn outcome(
        &self,
        response: Result<Result<Vec<PgRow>, sqlx::Error>, Elapsed>,
        effect: Effect,
        timeout: Duration,
    ) -> Result<Vec<PgRow>, LockError> {
        match response {
            Ok(rows) => rows.map_err(|error| errors::failed(error, effect, &self.place)),
            Err(_) => {
                let what = format!("no response from {} in {timeout:?}", self.place);
                Err(LockError::new(effect.lost(), what))
            }
        }
    }

    async fn take(&self) -> Result<Taken<'_>, sqlx::Error> {
        let connection = match &self.source {
            Source::Pool(pool) => Connection::Pooled(pool.acquire().await?),
            Source::Own { options, idle, turns } => {
                let turn = turns.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
                self.close_idle();
                let newest = locked(idle).pop();
                let connection = match newest.map(|(connection, _)| connection) {
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

/// Whether a response states that a replica gave it: that of a write states nothing.
fn is_of_replica(row: &PgRow) -> bool {
    row.try_get("replica").unwrap_or_default()
}

/// The text of a transaction, which the server gives up at `by`.
fn whole(statement: &str, by: Instant) -> String {
    let left = by.saturating_duration_since(Instant::now()).as_millis().max(1);
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {left}; {statement}"
    )
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
            let mut idle = locked(idle);
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
