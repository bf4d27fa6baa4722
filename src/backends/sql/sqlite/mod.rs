//! Elections in SQLite.

mod boot_id;
mod errors;
mod file;
mod listener;
mod lock;
mod names;
mod probe;
mod state;
mod statements;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::setup::{SqlError, TableSetup};
use file::File;
pub use lock::SqliteLock;
pub use probe::{SqliteFacts, SqliteFile};
use state::LockState;

/// A SQLite file with the tables of elections, for the processes of one machine.
///
/// Cheap to clone. The file should be on a disk of this machine: on a network file system SQLite's
/// own locks are unreliable, which is logged as a warning.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let file = incumbent::sql::Sqlite::open("/var/lib/my_app/elections.db").await?;
/// let election = incumbent::new_election("my_app", file.lock()).start()?;
/// let leadership = election.won().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sqlite {
    file: Arc<File>,
}

impl Sqlite {
    /// Opens the file at `path`, and creates the file and the tables if they do not exist.
    ///
    /// # Errors
    /// A file that cannot be opened, created or written; a file that is not a database; tables of
    /// another version.
    ///
    /// # Cancel safety
    /// If dropped, a file and tables may be left behind.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, SqlError> {
        Self::open_with(path, TableSetup::create()).await
    }

    /// As [`open`](Self::open), with `tables` for the creation of missing tables.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// If dropped, a file and tables may be left behind.
    pub async fn open_with(path: impl AsRef<Path>, tables: TableSetup) -> Result<Self, SqlError> {
        Ok(Self { file: Arc::new(File::open(path.as_ref(), tables).await?) })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the maximum lease of this file.
    pub fn max_lease(&self) -> Duration {
        self.file.max_lease()
    }

    /// Returns the lock, for any number of elections.
    pub fn lock(&self) -> SqliteLock {
        SqliteLock::new(LockState::new(Arc::clone(&self.file)))
    }
}

partial_debug!(Sqlite, self, path: self.path());
