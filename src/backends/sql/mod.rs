//! Elections in SQL databases: PostgreSQL, and SQLite for the processes of one machine.
//!
//! An election is a row, and whoever wants to write it names the *revision* that it has seen: the statement changes nothing
//! where another one stands there. Revisions only grow; a row that was released, or deleted by hand, stays with the revision
//! that it had, so a token never comes again.
//!
#![cfg_attr(feature = "postgres", doc = "```no_run")]
#![cfg_attr(not(feature = "postgres"), doc = "```ignore")]
//! use incumbent::new_election;
//! use incumbent::sql::Postgres;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Postgres::connect("postgres://campaigner@db.example.net/app").await?;
//! let election = new_election("my_app", database.lock()).start()?;
//! let leadership = election.won().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Why no session lock
//! An advisory lock, or a row that a transaction holds, belongs to a connection, and the holder of the office is not told when
//! the connection ends: when the server ends the backend, when a pool hands the connection to somebody else, when a
//! replica takes over. The server then gives the lock to the next one while the first believes that it leads. A lease ends on
//! its holder's own clock, whatever becomes of the connection. See `docs/sql.md` in the repository.
//!
//! # Expiry
//! Nobody's statement frees a row whose holder went silent; a candidate writes over it. A candidate that has watched the row waits
//! until it has seen it unchanged for the holder's lease on its own clock. One that has just come asks the database, which compares its
//! own clock with what the same clock said when the row was written. No clock of one campaigner is compared with another's.

mod error;
mod hints;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
mod seen;
mod setup;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use error::{SqlError, SqlErrorKind};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresFacts, PostgresLock, PostgresProbe, TableFacts, TableRight};
pub use setup::TableSetup;
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteFacts, SqliteFile, SqliteLock};

use crate::lock::check_not_empty;

/// The most bytes of an identity.
const MAX_IDENTITY_LEN: usize = 1024;
/// The most bytes of an election's name: it is a key of an index, and part of every notification.
const LONGEST_NAME: usize = 255;

fn check_name(name: &str) -> Result<(), String> {
    check_not_empty(name)?;
    if name.len() > LONGEST_NAME {
        return Err(format!("the name of an election may have {LONGEST_NAME} bytes at the most"));
    }
    if name.contains(char::is_control) {
        return Err("the name of an election may have no control characters".to_owned());
    }
    Ok(())
}
