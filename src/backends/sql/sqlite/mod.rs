//! SQLite.

mod announce;
mod boot_id;
mod errors;
mod file;
mod listener;
mod lock;
mod names;
mod probe;
mod state;
mod statements;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::SqlError;
use super::setup::TableSetup;
use file::File;
pub use lock::SqliteLock;
pub use probe::{SqliteFacts, SqliteFile};

/// A SQLite file with the tables of elections in it, for the processes of one machine.
///
/// Cheap to clone. The file should be on a disk of this machine: on a network file system SQLite's own locks cannot be relied on,
/// which is told in the log.
#[derive(Clone)]
pub struct Sqlite {
    file: Arc<File>,
}

impl Sqlite {
    /// Opens the file at `path`, and makes it, and the tables, where they are not there.
    ///
    /// # Errors
    /// A file that cannot be opened, made or written; one that is no database; tables of another version.
    ///
    /// # Cancel safety
    /// Dropped, a file and tables may be left behind.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, SqlError> {
        Self::open_with(path, TableSetup::create()).await
    }

    /// The same, with `tables` saying what to do where they are not there.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// Dropped, a file and tables may be left behind.
    pub async fn open_with(path: impl AsRef<Path>, tables: TableSetup) -> Result<Self, SqlError> {
        Ok(Self { file: Arc::new(File::open(path.as_ref(), tables).await?) })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The longest lease that anybody may hold here.
    pub fn max_lease(&self) -> Duration {
        self.file.max_lease()
    }

    /// The lock, for any number of elections.
    pub fn lock(&self) -> SqliteLock {
        SqliteLock::new(Arc::clone(&self.file))
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path()).finish_non_exhaustive()
    }
}
