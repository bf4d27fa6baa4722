//! Elections in SQL databases: PostgreSQL, and SQLite for the processes of one machine.
//!
//! An election is a row, and a write names the *revision* that its writer has seen: the statement
//! changes nothing if the row has another one. Revisions only grow. A row that was released, or
//! deleted by hand, stays with its revision, so a token is never repeated.
#![cfg_attr(feature = "postgres", doc = "```no_run")]
#![cfg_attr(not(feature = "postgres"), doc = "```ignore")]
//! use incumbent::new_election;
//! use incumbent::sql::Postgres;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Postgres::connect("postgres://candidate@db.example.net/app").await?;
//! let election = new_election("my_app", database.lock()).start()?;
//! let leadership = election.won().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Why not a session lock
//! An advisory lock, or a row that a transaction locks, belongs to a connection, and its holder is
//! not notified when the connection ends: when the server ends the backend, when a pool hands the
//! connection to another client, when a replica takes over. The server then grants the lock to the
//! next candidate while the first one believes that it leads. A lease ends on its holder's own
//! clock, whatever happens to the connection. See `docs/sql.md` in the repository.
//!
//! # Expiry
//! No statement frees the row of a holder that went silent; a candidate writes over it. A candidate
//! that has watched the row waits until it has seen the row unchanged for the holder's lease on its
//! own clock. A candidate that has just started asks the database, which compares its clock with
//! the time that the same clock showed when the row was written. The clocks of two candidates are
//! never compared.

mod hints;
mod lock;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
mod setup;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use lock::SqlLock;
#[cfg(feature = "postgres")]
pub use postgres::{
    Postgres, PostgresFacts, PostgresLock, PostgresProbe, TableFacts, TablePermission,
};
pub use setup::{SqlError, SqlErrorKind, TableSetup};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteFacts, SqliteFile, SqliteLock};

use crate::lock::check_plain_name;

/// The maximum length of an election's name in bytes: the name is a key of an index, and part of
/// every notification.
const MAX_NAME_LEN: usize = 255;

fn check_name(name: &str) -> Result<(), String> {
    check_plain_name(name, MAX_NAME_LEN)
}
