//! Rows in a PostgreSQL database.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use incumbent::lock::{Lock, LockErrorKind, Revision};
use incumbent::sql::{self, PostgresLock, TableSetup};
use incumbent_sim::Retention;
use incumbent_test_support::{PostgresServer, eventually};
use sqlx::postgres::{PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, PgPool, Row};

use crate::draw::TIMEOUT;
use crate::store::{Deed, HintDelivery, Rules, Store, Upheaval};

/// The longest lease.
const TTL: Duration = Duration::from_secs(2);

/// Tables, as this library makes them.
#[derive(Debug)]
pub struct Postgres {
    server: PostgresServer,
    admin: PgPool,
    lock: PostgresLock,
    /// Of another process: a lock reads after hints of its own writes, and so does not deliver
    /// each of them.
    listener: PostgresLock,
}

impl Postgres {
    /// Starts a server.
    pub async fn start() -> Self {
        let server = PostgresServer::start(&[]).await;
        let url = server.url("postgres");
        make(&url).await;
        let admin = PgPoolOptions::new().max_connections(4).acquire_timeout(TIMEOUT);
        let admin = admin.connect(&url).await;
        let admin = admin.expect("a connection");
        let (lock, listener) = (open(&url).await, open(&url).await);
        Self { server, admin, lock, listener }
    }

    async fn run(&self, statement: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&self.admin).await
    }
}

async fn make(url: &str) {
    let tables = TableSetup::create().max_lease(TTL);
    eventually("tables", async || sql::Postgres::connect_with(url, tables).await.ok()).await;
}

/// Who has not made the tables does not know that they are new.
async fn open(url: &str) -> PostgresLock {
    let open = async || sql::Postgres::connect_with(url, TableSetup::existing()).await.ok();
    eventually("the tables just made", open).await.lock()
}

impl Store for Postgres {
    fn lock(&self) -> &dyn Lock {
        &self.lock
    }

    fn listener(&self) -> &dyn Lock {
        &self.listener
    }

    fn rules(&self) -> Rules {
        Rules {
            hint_delivery: HintDelivery::Last,
            keeps_since: false,
            remembers: true,
            gone: LockErrorKind::Misconfigured,
            ..Rules::new(Retention::Rows, TTL)
        }
    }

    fn deeds(&self) -> &'static [Deed] {
        &[Deed::Delete, Deed::Put, Deed::PutOver]
    }

    fn commit<'a>(
        &'a self,
        name: &'a str,
        deed: Deed,
        expected: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Revision>, LockErrorKind>> {
        let over = expected.filter(|_| deed == Deed::PutOver);
        let over = over.map_or(String::new(), |over| format!(" AND revision = {over}"));
        let is_delete = deed == Deed::Delete;
        let statement = match is_delete {
            true => format!("DELETE FROM incumbent_elections WHERE name = '{name}'"),
            false => format!(
                "UPDATE incumbent_elections SET holder = 'junk', advertised = NULL,
                    lease_duration = interval '{} milliseconds'
                WHERE name = '{name}'{over} RETURNING revision",
                TTL.as_millis()
            ),
        };
        async move {
            let rows = self.run(&statement).await.map_err(|error| match error {
                sqlx::Error::Database(error) if error.code().as_deref() == Some("42P01") => {
                    LockErrorKind::Unavailable
                }
                _ => LockErrorKind::OutcomeUnknown,
            })?;
            match rows.first() {
                Some(row) => Ok(Some(Revision(row.get::<i64, _>("revision").unsigned_abs()))),
                None if is_delete => Ok(None),
                None => Err(LockErrorKind::Conflict),
            }
        }
        .boxed()
    }

    /// None: what is known of a server or of tables that were there before depends on their start,
    /// and each candidate's first create after it is refused. The model does not know of that;
    /// `tests/sql/restored.rs` and `tests/sql/failover.rs` do.
    fn upheavals(&self) -> &'static [Upheaval] {
        &[]
    }

    fn take_away(&self, _: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            self.run("TRUNCATE incumbent_elections").await.expect_err("tokens never go back");
            let dropped = self.run("DROP TABLE incumbent_elections, incumbent_settings").await;
            dropped.expect("no tables");
        }
        .boxed_local()
    }

    fn bring_back(&self, _: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move { make(&self.server.url("postgres")).await }.boxed_local()
    }
}
