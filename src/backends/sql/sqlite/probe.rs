//! Facts about a file, read without creating or changing anything.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};
use tokio::time::timeout_at;

use super::Sqlite;
use super::boot_id;
use super::errors;
use super::file::{absolute, has_tables, misconfigured, settings};
use super::names;
use crate::backends::sql::setup::{SqlError, SqlErrorKind};
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// Facts about a file of elections.
#[derive(Debug)]
#[non_exhaustive]
pub struct SqliteFacts {
    /// The version of SQLite, which is built in.
    pub version: String,
    /// The kind of the file's file system, unless that is known to be local to this machine:
    /// SQLite's locks are unreliable on others.
    pub doubtful_file_system: Option<String>,
    /// The content of the file; `None`: it does not exist yet.
    pub file: Option<SqliteFile>,
}

/// The content of a file of elections.
#[derive(Debug)]
#[non_exhaustive]
pub struct SqliteFile {
    /// Its journal: `wal`, as elections need it, unless no process has opened it for elections
    /// yet.
    pub journal: String,
    /// The maximum lease of the tables; `None`: they do not exist yet.
    pub max_lease: Option<Duration>,
    /// Why it cannot be written; `None`: it can.
    pub unwritable: Option<SqlError>,
}

impl Sqlite {
    /// Reads the facts about a file without creating it or writing to it. An empty transaction
    /// tests whether it can be written, and waits for other writers.
    ///
    /// # Errors
    /// A directory that does not exist; a file that cannot be opened within `timeout`, is not a
    /// database, has tables of another version, or has more than one name.
    pub async fn facts(path: impl AsRef<Path>, timeout: Duration) -> Result<SqliteFacts, SqlError> {
        let path = absolute(path.as_ref())?;
        let doubtful_file_system = path.parent().and_then(boot_id::doubtful_file_system);
        let deadline = deadline_after(timeout);
        let facts = async {
            let version = version().await.map_err(|error| errors::failed(error, false, &path))?;
            let file = match path.try_exists() {
                Ok(false) => None,
                _ => Some(inspect(&path, timeout).await?),
            };
            Ok(SqliteFacts { version, doubtful_file_system, file })
        };
        timeout_at(deadline, facts).await.unwrap_or_else(|_| {
            let what = format!("{} could not be read in {timeout:?}", path.display());
            Err(SqlError::new(SqlErrorKind::Unavailable, what))
        })
    }
}

/// Returns the version of the library, which needs no file.
async fn version() -> Result<String, sqlx::Error> {
    let options = SqliteConnectOptions::new().in_memory(true).disable_statement_logging();
    let mut connection = options.connect().await?;
    sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection).await
}

async fn inspect(path: &Path, timeout: Duration) -> Result<SqliteFile, LockError> {
    if let Some(why) = names::inspect(path).ok().and_then(|named| named.unfit()) {
        return Err(misconfigured(path, &why));
    }
    let odd = |error| errors::failed(error, false, path);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(timeout)
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(odd)?;
    let journal = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await;
    let journal = journal.map_err(odd)?;
    let max_lease = match has_tables(&mut connection).await.map_err(odd)? {
        true => Some(settings(&mut connection, path).await?.0),
        false => None,
    };
    let unwritable = match writes_nothing(&mut connection).await.map_err(odd) {
        Ok(()) => None,
        Err(failed) if failed.kind() == LockErrorKind::Unavailable => return Err(failed),
        Err(failed) => Some(failed.into()),
    };
    let _ = connection.close().await; // removes the files that reading has created
    Ok(SqliteFile { journal, max_lease, unwritable })
}

/// Begins a write, and performs none. On a read-only file the beginning succeeds as a read, so the
/// statement sets the version that SQLite keeps for programs to its present value.
async fn writes_nothing(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let version: i64 =
        sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
    let same = AssertSqlSafe(format!("PRAGMA user_version = {version}"));
    sqlx::query(same).execute(&mut *transaction).await?;
    transaction.rollback().await
}
