//! A SQLite file, with what an operator and a rival do to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Lock, LockErrorKind, Write};
use incumbent::sql::{Sqlite, SqliteLock, TableSetup};
use incumbent::{Election, new_election};
use incumbent_test_support::{FreezableDisk, eventually, repeated};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};
use tempfile::TempDir;

use crate::conformance::{LEASE, Service, TIMEOUT, first_write, working};
use crate::env::{ROW, deletion_of, is_unavailable, takeover_of};

pub struct FileEnv {
    pub directory: TempDir,
    pub lease: Duration,
}

impl FileEnv {
    pub fn new(lease: Duration) -> Self {
        let directory = tempfile::Builder::new().prefix("sqlite-").tempdir().expect("a directory");
        Self { directory, lease }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("elections.db")
    }

    pub async fn sqlite_lock(&self) -> SqliteLock {
        opened(&self.path(), TableSetup::create().max_lease(self.lease)).await.lock()
    }

    /// Of a connection that waits for a busy disk.
    pub fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new().filename(self.path()).busy_timeout(TIMEOUT)
    }

    /// A candidate with connections of its own, whose work continues until it must stop.
    pub async fn campaign(&self, identity: &str) -> Election {
        let lock = self.sqlite_lock().await;
        working(new_election("my_app", lock).identity(identity).lease(self.lease))
            .start()
            .expect("a start")
    }

    /// Has an administrator do something in the file.
    pub async fn admin(&self, statement: &str) -> Vec<SqliteRow> {
        let mut connection = self.options().connect().await.expect("a connection");
        let statement = AssertSqlSafe(statement.to_owned());
        let rows = sqlx::raw_sql(statement).fetch_all(&mut connection).await.expect("an answer");
        let _ = connection.close().await;
        rows
    }

    /// The row of the election.
    pub async fn row(&self) -> Option<SqliteRow> {
        self.admin(ROW).await.pop()
    }
}

/// Opens a file, again while its disk is too busy to do it in time.
pub async fn opened(path: &Path, tables: TableSetup) -> Sqlite {
    repeated(|| Sqlite::open_with(path, tables), is_unavailable).await.expect("a file")
}

impl Service for FileEnv {
    /// It is read in the row, where the next one may have written by then.
    const HEARS_DELETIONS: bool = false;

    async fn start() -> Self {
        Self::new(Self::LEASE)
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        Arc::new(self.sqlite_lock().await)
    }

    async fn evict(&self, name: &str) {
        self.admin(&deletion_of(name)).await;
    }

    async fn overwrite(&self, name: &str, identity: &str) {
        self.admin(&takeover_of(name, identity)).await;
    }

    async fn holder(&self, name: &str) -> Option<String> {
        if !self.path().exists() {
            return None;
        }
        let statement = format!(
            "SELECT holder FROM incumbent_elections WHERE name = '{name}' AND
            (unixepoch('subsec') - unixepoch(renewed_at, 'subsec')) * 1000 < lease_duration_ms"
        );
        self.admin(&statement).await.pop()?.get("holder")
    }
}

/// Each write that waits for the disk has a thread and open files, for as long as it hangs.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_of_a_file_that_hangs_collects_no_threads() {
    let Some(disk) = FreezableDisk::mount("a SQLite file on a disk that hangs") else { return };
    let tables = TableSetup::create().max_lease(LEASE);
    let lock = opened(&disk.path().join("elections.db"), tables).await.lock();
    disk.freeze();
    for _ in 0..20 {
        let timeout = Duration::from_millis(50);
        let write = Write { timeout, ..first_write(LEASE, 1, None, None) };
        lock.write("my_app", write).await.unwrap_err();
    }
    let waiting = waiting_for_a_disk();
    disk.thaw();
    assert!((1..=4).contains(&waiting), "{waiting} threads");
    let write = async || lock.write("my_app", first_write(LEASE, 1, None, None)).await.err();
    eventually("a write", async || match write().await {
        None => Some(()),
        Some(failed) => (failed.kind() == LockErrorKind::Conflict).then_some(()), // one of those
    })
    .await;
}

/// How many threads of SQLite in this process cannot even be interrupted. Those of other tests are
/// not for long.
#[cfg(target_os = "linux")]
fn waiting_for_a_disk() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let stat = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("stat")).ok()
    };
    let waits = |stat: &String| stat.contains("(sqlx-sqlite") && stat.contains(") D ");
    tasks.filter_map(stat).filter(waits).count()
}
