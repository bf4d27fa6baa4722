//! The meaning of PostgreSQL's errors.

use std::error::Error as _;
use std::io::ErrorKind;

use sqlx::Error;

use crate::lock::{Effect, LockError, LockErrorKind};

/// Converts the failure of a connection attempt. No request was sent.
pub(super) fn no_connection(error: Error, place: &str) -> LockError {
    let (kind, what) = match code_of(&error).as_deref() {
        Some(code) if code.starts_with("28") => {
            (LockErrorKind::Denied, format!("{place} refuses the credentials"))
        }
        Some("42501") => (LockErrorKind::Denied, format!("{place} refuses the connection")),
        Some("3D000") => (LockErrorKind::Misconfigured, format!("there is no database {place}")),
        // A missing socket belongs to a server that has not started yet.
        _ if is_missing_file(&error) && !place.starts_with('/') => (
            LockErrorKind::Misconfigured,
            format!("a file that sslrootcert, sslcert or sslkey names for {place} does not exist"),
        ),
        _ => (LockErrorKind::Unavailable, format!("no connection to {place}")),
    };
    LockError::with_source(kind, what, cause_of(error))
}

/// Converts the failure of a statement.
pub(super) fn failed(error: Error, effect: Effect, place: &str) -> LockError {
    let lost = effect.lost();
    let Some(code) = code_of(&error) else {
        return LockError::with_source(lost, format!("the connection to {place} was lost"), error);
    };
    let (kind, what) = match &*code {
        "42501" => (LockErrorKind::Denied, format!("a right is missing at {place}")),
        "25006" => (LockErrorKind::Unavailable, read_only(place)),
        "42P01" | "42703" | "42883" | "42P10" | "3F000" => (
            LockErrorKind::Misconfigured,
            format!("the tables at {place} are not those of this version: run deploy/postgres.sql"),
        ),
        "57014" => (LockErrorKind::Unavailable, format!("{place} did not do it in time")),
        // The server ends the connection, perhaps after it has performed the write.
        code if code.starts_with("57P") || code.starts_with("08") || code == "40003" => {
            (lost, format!("{place} has ended the connection"))
        }
        _ => (LockErrorKind::Unavailable, format!("{place} could not do it")),
    };
    LockError::with_source(kind, what, cause_of(error))
}

/// Whether a message arrived that is not a response: a notification, when a pooler assigns the
/// listener's connection to the client that notifies.
pub(super) fn is_out_of_turn(failed: &LockError) -> bool {
    let error = failed.source().and_then(|source| source.downcast_ref::<Error>());
    matches!(error, Some(Error::Protocol(_)))
}

pub(super) fn read_only(place: &str) -> String {
    format!("{place} is a replica or read-only: elections are held on the primary")
}

fn is_missing_file(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == ErrorKind::NotFound)
}

/// What the server or the system said: sqlx's own text repeats it.
fn cause_of(error: Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        Error::Database(error) => error.into_error(),
        Error::Io(error) => error.into(),
        error => error.into(),
    }
}

fn code_of(error: &Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}
