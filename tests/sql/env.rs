//! A database of a PostgreSQL server, with what an operator and a rival do to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use incumbent::lock::Lock;
use incumbent::sql::{Postgres, PostgresLock, SqlError, SqlErrorKind, TableSetup};
use incumbent::{Election, new_election};
use incumbent_test_support::{PostgresServer, eventually, repeated};
use sqlx::postgres::{PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::sync::OnceCell;

use crate::conformance::{Service, TIMEOUT, working};

const FILE: &str = include_str!("../../deploy/postgres.sql");

/// One server serves all tests that do not break it.
async fn shared_server() -> Arc<PostgresServer> {
    static SERVER: OnceCell<Arc<PostgresServer>> = OnceCell::const_new();
    let start = || async { Arc::new(PostgresServer::start(&["max_connections=400"]).await) };
    Arc::clone(SERVER.get_or_init(start).await)
}

pub struct TestEnv {
    pub server: Arc<PostgresServer>,
    pub database: String,
    pub lease: Duration,
}

impl TestEnv {
    pub async fn new(lease: Duration) -> Self {
        Self::on(shared_server().await, lease).await
    }

    /// With a server of its own, to be broken.
    pub async fn alone(lease: Duration) -> Self {
        Self::on(Arc::new(PostgresServer::start(&[]).await), lease).await
    }

    pub async fn on(server: Arc<PostgresServer>, lease: Duration) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let database = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let env = Self { server, database, lease };
        run(&env.server.url("postgres"), &format!("CREATE DATABASE {}", env.database)).await;
        env
    }

    pub fn url(&self) -> String {
        self.server.url(&self.database)
    }

    pub async fn open(&self) -> Postgres {
        connected(&self.url(), TableSetup::create().max_lease(self.lease)).await
    }

    pub async fn postgres_lock(&self) -> PostgresLock {
        self.open().await.lock()
    }

    /// A role that the documentation's permissions are given to.
    pub fn candidate(&self) -> String {
        format!("candidate_{}", self.database)
    }

    /// The lock with the least permissions, on tables that an administrator has made.
    pub async fn lock_of_candidate(&self) -> PostgresLock {
        let role = self.candidate();
        self.open().await;
        let exists = format!("SELECT FROM pg_roles WHERE rolname = '{role}'");
        if self.admin(&exists).await.is_empty() {
            self.admin(&format!("CREATE ROLE {role} LOGIN")).await;
        }
        let grants = FILE.lines().filter_map(|line| line.strip_prefix("--     GRANT"));
        for grant in grants {
            self.admin(&format!("GRANT{}", grant.replace("candidates", &role))).await;
        }
        let url = self.server.url_as(&role, &self.database);
        connected(&url, TableSetup::existing()).await.lock()
    }

    /// A candidate with connections of its own, whose work continues until it must stop.
    pub async fn campaign(&self, identity: &str) -> Election {
        self.campaign_with(identity, self.postgres_lock().await)
    }

    pub fn campaign_with(&self, identity: &str, lock: impl Lock) -> Election {
        working(new_election("my_app", lock).identity(identity).lease(self.lease))
            .start()
            .expect("a start")
    }

    /// One that renews this often: so most of the lease is ahead of it at any time.
    pub fn campaign_every(&self, renewal: Duration, identity: &str, lock: impl Lock) -> Election {
        let builder = new_election("my_app", lock).identity(identity).lease(self.lease);
        working(builder.renewal(renewal)).start().expect("a start")
    }

    /// Has an administrator do something in the database.
    pub async fn admin(&self, statement: &str) -> Vec<PgRow> {
        run(&self.url(), statement).await
    }

    /// Ends all connections to the database, as administrators, poolers and out-of-memory killers
    /// do.
    pub async fn kill_backends(&self) {
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.admin(kill).await;
    }

    /// The row of the election.
    pub async fn row(&self) -> Option<PgRow> {
        self.admin(ROW).await.pop()
    }
}

/// Whether a database or a file cannot be reached, as on a busy machine.
pub fn is_unavailable(error: &SqlError) -> bool {
    error.kind() == SqlErrorKind::Unavailable
}

/// Connects, again while the server is too busy to answer in time.
pub async fn connected(url: &str, tables: TableSetup) -> Postgres {
    let connect = || Postgres::connect_with(url, tables);
    repeated(connect, is_unavailable).await.expect("a database")
}

/// What connecting leads to, however long the server takes: a limit ends the error, "… in 10s".
pub async fn answer(url: &str, tables: TableSetup) -> Result<Postgres, SqlError> {
    let is_late = |error: &SqlError| {
        let told = error.to_string();
        told.rsplit_once(" in ").is_some_and(|(_, time)| time.starts_with(char::is_numeric))
    };
    repeated(|| Postgres::connect_with(url, tables), is_late).await
}

/// For a pool that waits for a busy server.
pub fn pool_options() -> PgPoolOptions {
    PgPoolOptions::new().acquire_timeout(TIMEOUT)
}

/// The row of the election.
pub const ROW: &str = "SELECT * FROM incumbent_elections WHERE name = 'my_app'";

/// The statements of an operator, for either database.
pub fn deletion_of(name: &str) -> String {
    format!("DELETE FROM incumbent_elections WHERE name = '{name}'")
}

/// The statement of a rival.
pub fn takeover_of(name: &str, identity: &str) -> String {
    format!("UPDATE incumbent_elections SET holder = '{identity}' WHERE name = '{name}'")
}

/// Waits until the server has run for longer than the longest lease: from then on it trusts what it
/// was started with.
pub async fn runs_for_a_lease(url: &str) {
    let trusted = "SELECT FROM incumbent_settings
        WHERE pg_postmaster_start_time() + longest_lease < clock_timestamp()";
    let look = async || (!run(url, trusted).await.is_empty()).then_some(());
    eventually("the server has run for a lease", look).await;
}

/// Runs statements on a connection of its own.
pub async fn run(url: &str, statement: &str) -> Vec<PgRow> {
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    let rows = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&mut connection).await;
    let _ = connection.close().await;
    rows.unwrap_or_else(|error| panic!("{statement}: {error}"))
}

impl Service for TestEnv {
    /// A write waits for the disk.
    const LEASE: Duration = Duration::from_secs(3);

    /// It is read in the row, where the next one may have written by then.
    const HEARS_DELETIONS: bool = false;

    async fn start() -> Self {
        Self::new(Self::LEASE).await
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        Arc::new(self.postgres_lock().await)
    }

    async fn evict(&self, name: &str) {
        self.admin(&deletion_of(name)).await;
    }

    async fn overwrite(&self, name: &str, identity: &str) {
        self.admin(&takeover_of(name, identity)).await;
    }

    async fn holder(&self, name: &str) -> Option<String> {
        let statement = format!(
            "SELECT holder FROM incumbent_elections WHERE name = '{name}' AND
            renewed_at + lease_duration > clock_timestamp()"
        );
        let missing = "SELECT to_regclass('incumbent_elections') IS NULL";
        if self.admin(missing).await[0].get(0) {
            return None;
        }
        self.admin(&statement).await.pop()?.get("holder")
    }
}
