//! Rows in a SQLite file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use incumbent::lock::{Lock, LockErrorKind, Revision};
use incumbent::sql::{self, SqliteLock, TableSetup};
use incumbent_sim::Retention;
use incumbent_test_support::eventually;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, SqlitePool};
use tempfile::TempDir;

use crate::draw::TIMEOUT;
use crate::store::{Deed, HintDelivery, Rules, Store, Upheaval};

/// The longest lease.
const TTL: Duration = Duration::from_secs(2);

/// A file, as this library makes it.
#[derive(Debug)]
pub struct Sqlite {
    directory: TempDir,
    lock: SqliteLock,
    /// Of another process.
    listener: SqliteLock,
}

impl Sqlite {
    /// Makes a file.
    pub async fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("sqlite-").tempdir().expect("a directory");
        let path = path(&directory);
        make(&path).await;
        let (lock, listener) = (open(&path).await, open(&path).await);
        Self { directory, lock, listener }
    }

    /// Opens the file as another program, and executes `statement`. Returns the number of rows
    /// changed.
    async fn run(&self, statement: &str) -> Result<u64, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(path(&self.directory));
        let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(TIMEOUT);
        let pool: SqlitePool = pool.connect_with(options.busy_timeout(TIMEOUT)).await?;
        let done = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&pool).await;
        pool.close().await;
        Ok(done?.rows_affected())
    }
}

fn path(directory: &TempDir) -> PathBuf {
    directory.path().join("elections.db")
}

async fn make(path: &Path) {
    let tables = TableSetup::create().max_lease(TTL);
    eventually("a file", async || sql::Sqlite::open_with(path, tables).await.ok()).await;
}

/// Who has not made the file does not know that it is new.
async fn open(path: &Path) -> SqliteLock {
    let open = async || sql::Sqlite::open_with(path, TableSetup::existing()).await.ok();
    eventually("the file just made", open).await.lock()
}

impl Store for Sqlite {
    fn lock(&self) -> &dyn Lock {
        &self.lock
    }

    fn listener(&self) -> &dyn Lock {
        &self.listener
    }

    fn rules(&self) -> Rules {
        Rules {
            hint_delivery: HintDelivery::Last,
            dates_foreign: false,
            keeps_since: false,
            remembers: true,
            gone: LockErrorKind::Misconfigured,
            gone_is_empty: true,
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
                    lease_duration_ms = {} WHERE name = '{name}'{over}",
                TTL.as_millis()
            ),
        };
        async move {
            match self.run(&statement).await {
                Ok(0) if !is_delete => Err(LockErrorKind::Conflict),
                Ok(_) => Ok(None),
                Err(_) => Err(LockErrorKind::Unavailable),
            }
        }
        .boxed()
    }

    fn upheavals(&self) -> &'static [Upheaval] {
        &[Upheaval::Remade]
    }

    fn take_away(&self, _upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        let path = path(&self.directory);
        async move {
            for beside in ["", "-wal", "-shm"] {
                let mut file = path.clone().into_os_string();
                file.push(beside);
                let _ = fs::remove_file(file);
            }
        }
        .boxed_local()
    }

    fn bring_back(&self, _upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move { make(&path(&self.directory)).await }.boxed_local()
    }
}
