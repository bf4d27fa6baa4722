//! What PostgreSQL's errors mean.

use std::io::ErrorKind;

use sqlx::Error;

use crate::backends::sql::error::RequestError;
use crate::lock::LockErrorKind;

/// What a request may do to the database, should its answer get lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Read,
    Write,
}

/// Why there is no connection. Nothing was asked.
pub(super) fn no_connection(error: Error, place: &str) -> RequestError {
    let (kind, what) = match code_of(&error).as_deref() {
        Some(code) if code.starts_with("28") => {
            (LockErrorKind::Denied, format!("{place} does not let us in"))
        }
        Some("42501") => (LockErrorKind::Denied, format!("{place} does not let us in")),
        Some("3D000") => (LockErrorKind::Misconfigured, format!("there is no database {place}")),
        // A socket that is missing is that of a server that is not there yet.
        _ if is_missing_file(&error) && !place.starts_with('/') => (
            LockErrorKind::Misconfigured,
            format!("a file that sslrootcert, sslcert or sslkey names for {place} does not exist"),
        ),
        _ => (LockErrorKind::Unavailable, format!("no connection to {place}")),
    };
    RequestError::because(kind, what, error)
}

/// Why a statement failed.
pub(super) fn failed(error: Error, effect: Effect, place: &str) -> RequestError {
    let lost = match effect {
        Effect::Read => LockErrorKind::Unavailable,
        Effect::Write => LockErrorKind::OutcomeUnknown,
    };
    let Some(code) = code_of(&error) else {
        return RequestError::because(lost, format!("the connection to {place} was lost"), error);
    };
    let (kind, what) = match &*code {
        "42501" => (LockErrorKind::Denied, format!("a right is missing at {place}")),
        "25006" => (LockErrorKind::Unavailable, read_only(place)),
        "42P01" | "42703" | "42883" | "42P10" | "3F000" => (
            LockErrorKind::Misconfigured,
            format!("the tables at {place} are not those of this version: run deploy/postgres.sql"),
        ),
        "57014" => (LockErrorKind::Unavailable, format!("{place} did not do it in time")),
        // The server ends the connection, maybe after it has written what it was told to.
        code if code.starts_with("57P") || code.starts_with("08") || code == "40003" => {
            (lost, format!("{place} has ended the connection"))
        }
        _ => (LockErrorKind::Unavailable, format!("{place} could not do it")),
    };
    RequestError::because(kind, what, error)
}

/// Whether something came that was not an answer: a notification, where a pooler gives whoever notifies the connection of
/// whoever listens.
pub(super) fn is_out_of_turn(failed: &RequestError) -> bool {
    let error = failed.source.as_ref().and_then(|source| source.downcast_ref::<Error>());
    matches!(error, Some(Error::Protocol(_)))
}

pub(super) fn read_only(place: &str) -> String {
    format!("{place} is a replica or read-only: elections are held on the primary")
}

fn is_missing_file(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == ErrorKind::NotFound)
}

fn code_of(error: &Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}
