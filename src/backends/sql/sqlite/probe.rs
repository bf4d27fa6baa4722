//! What a file is like, asked without making or changing anything.

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
use crate::backends::sql::error::{RequestError, SqlError, SqlErrorKind};
use crate::lock::LockErrorKind;
use crate::time::timer::deadline_after;

/// What a file of elections is like.
#[derive(Debug)]
#[non_exhaustive]
pub struct SqliteFacts {
    /// The version of SQLite, which is built in.
    pub version: String,
    /// What kind of file system it is on, unless that is known to be of this machine alone: elsewhere SQLite's locks cannot be
    /// relied on.
    pub doubtful_file_system: Option<String>,
    /// What is in the file; `None`: it is not there yet.
    pub file: Option<SqliteFile>,
}

/// What is in a file of elections.
#[derive(Debug)]
#[non_exhaustive]
pub struct SqliteFile {
    /// Its journal: `wal`, as elections need it, unless nobody has opened it for elections yet.
    pub journal: String,
    /// The longest lease of the tables; `None`: they are not there yet.
    pub max_lease: Option<Duration>,
    /// Why it cannot be written; `None`: it can.
    pub unwritable: Option<SqlError>,
}

impl Sqlite {
    /// Looks at a file without making it or writing to it. Whether it can be written is tried by a transaction without
    /// content, which waits for others that are writing.
    ///
    /// # Errors
    /// A directory that is not there; a file that cannot be opened within `timeout`, is no database, has tables of
    /// another version, or has more than one name.
    pub async fn facts(path: impl AsRef<Path>, timeout: Duration) -> Result<SqliteFacts, SqlError> {
        let path = absolute(path.as_ref())?;
        let doubtful_file_system = path.parent().and_then(boot_id::doubtful_file_system);
        let by = deadline_after(timeout);
        let looked = async {
            let version = version().await.map_err(|error| errors::failed(error, false, &path))?;
            let file = match path.try_exists() {
                Ok(false) => None,
                _ => Some(look(&path, timeout).await?),
            };
            Ok(SqliteFacts { version, doubtful_file_system, file })
        };
        timeout_at(by, looked).await.unwrap_or_else(|_| {
            let what = format!("{} could not be looked at in {timeout:?}", path.display());
            Err(SqlError::new(SqlErrorKind::Unavailable, what))
        })
    }
}

/// That of the library, which needs no file.
async fn version() -> Result<String, sqlx::Error> {
    let options = SqliteConnectOptions::new().in_memory(true).disable_statement_logging();
    let mut connection = options.connect().await?;
    sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection).await
}

async fn look(path: &Path, patience: Duration) -> Result<SqliteFile, RequestError> {
    if let Some(why) = names::look(path).ok().and_then(|named| named.unfit()) {
        return Err(misconfigured(path, &why));
    }
    let odd = |error| errors::failed(error, false, path);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(patience)
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
        Err(failed) if failed.kind == LockErrorKind::Unavailable => return Err(failed),
        Err(failed) => Some(failed.into()),
    };
    let _ = connection.close().await; // which tidies up what reading has made
    Ok(SqliteFile { journal, max_lease, unwritable })
}

/// Begins to write, and leaves it at that. Of a file that is read-only the beginning is no more than one of reading, so the
/// version that SQLite keeps for programs is set to what it is.
async fn writes_nothing(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let version: i64 =
        sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
    let same = AssertSqlSafe(format!("PRAGMA user_version = {version}"));
    sqlx::query(same).execute(&mut *transaction).await?;
    transaction.rollback().await
}
