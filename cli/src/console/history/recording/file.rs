//! The file: how it is opened, what it must be, and what its errors mean.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Error, SqliteConnection};

use crate::error::one_line;
use crate::error::{CliError, Code};

/// Which program the file is of: "INCR".
pub const APPLICATION_ID: i64 = 0x494e_4352;
/// The version of the tables.
pub const VERSION: i64 = 1;
/// How long another process may hold the file.
const BUSY: Duration = Duration::from_secs(5);

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// It has no tables yet.
    Empty,
    Recording,
}

/// Opens a file for reading. Nothing is written but what SQLite needs beside a file in use.
pub async fn open_for_reading(path: &Path) -> Result<SqliteConnection, CliError> {
    if let Err(error) = std::fs::metadata(path) {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => Code::NotFound,
            _ => Code::Failed,
        };
        let hint = "`incumbent record --to FILE` writes one";
        let message = format!("cannot read {}: {error}; {hint}", path.display());
        return Err(CliError::new(code, message));
    }
    let options = || options(path).read_only(true);
    let opened = match connect_and_read(options()).await {
        // Files in use have a log, and its index, which cannot be created in this directory.
        Err(error) if matches!(code(&error), Some(8 | 14)) && !log(path).exists() => {
            connect_and_read(options().immutable(true)).await
        }
        opened => opened,
    };
    opened.map_err(|error| failed(path, "read", &error))
}

/// Opens a file for writing, with at most this many pages, and creates it if it is missing.
pub async fn open_for_writing(path: &Path, pages: u64) -> Result<SqliteConnection, Error> {
    let options = options(path)
        .create_if_missing(true)
        .pragma("synchronous", "NORMAL")
        .pragma("temp_store", "MEMORY")
        .pragma("max_page_count", pages.to_string())
        // A log of 1 MiB at most, while nobody reads for long.
        .pragma("wal_autocheckpoint", "128")
        .pragma("journal_size_limit", "524288");
    connect_and_read(options).await
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY)
        .foreign_keys(false)
        .disable_statement_logging()
}

/// Connects, and reads something: connecting alone reads nothing.
async fn connect_and_read(options: SqliteConnectOptions) -> Result<SqliteConnection, Error> {
    let mut connection = options.connect().await?;
    let read = "SELECT count(*) FROM sqlite_master";
    if let Err(error) = sqlx::query_scalar::<_, i64>(read).fetch_one(&mut connection).await {
        let _ = connection.close().await;
        return Err(error);
    }
    Ok(connection)
}

/// Refuses a file of another program, or of a newer version.
pub async fn check(path: &Path, connection: &mut SqliteConnection) -> Result<Content, CliError> {
    let refuse = |why: &str| CliError::new(Code::Failed, format!("{} {why}", path.display()));
    let odd = |error| failed(path, "read", &error);
    let read = "SELECT (SELECT count(*) FROM sqlite_master), \
         (SELECT application_id FROM pragma_application_id), \
         (SELECT user_version FROM pragma_user_version)";
    let found: (i64, i64, i64) =
        sqlx::query_as(read).fetch_one(&mut *connection).await.map_err(odd)?;
    match found {
        (0, 0, 0) => Ok(Content::Empty),
        (_, APPLICATION_ID, VERSION) => Ok(Content::Recording),
        (_, APPLICATION_ID, version) if version > VERSION => Err(refuse(&format!(
            "was recorded by a newer version of incumbent (format {version}): use that version"
        ))),
        _ => Err(refuse("is a database of another program: choose another file")),
    }
}

/// The log of a file in use.
pub fn log(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// A file beside this one.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The error code of SQLite, without its extension.
pub fn code(error: &Error) -> Option<u32> {
    let code: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// Whether the same write may succeed later.
pub fn is_passing(error: &Error) -> bool {
    // Busy, locked, read only, an error of the disk, full, cannot be opened.
    matches!(code(error), Some(5 | 6 | 8 | 10 | 13 | 14))
}

/// The error of a statement.
pub fn failed(path: &Path, verb: &str, error: &Error) -> CliError {
    let shown = path.display();
    let message = match code(error) {
        Some(5 | 6) => format!("{shown} is busy: another process holds it"),
        Some(11) => format!("{shown} is damaged: record to another file"),
        Some(13) => format!("{shown} cannot be {verb}: the disk is full"),
        Some(26) => format!("{shown} is not a SQLite file"),
        Some(3 | 8 | 14 | 23) => {
            format!("{shown} cannot be {verb}: check the permissions of it and of its directory")
        }
        _ => format!("{shown} cannot be {verb}: {}", one_line(error)),
    };
    CliError::new(Code::Failed, message)
}
