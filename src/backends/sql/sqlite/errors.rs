//! The meaning of SQLite's errors.

use std::error::Error as _;
use std::path::Path;

use sqlx::Error;

use crate::lock::{LockError, LockErrorKind};

/// Converts the failure of a statement. `in_doubt`: the failed statement was the commit.
pub(super) fn failed(error: Error, in_doubt: bool, path: &Path) -> LockError {
    let path = path.display();
    let (kind, what) = match code_of(&error).map(|code| (code, code & 0xff)) {
        // The file was moved or deleted after it was opened.
        Some((1032, _)) => (LockErrorKind::Unavailable, format!("{path} was moved")),
        Some((_, 3 | 23)) => (LockErrorKind::Denied, format!("{path} may not be used")),
        Some((_, 8)) => (LockErrorKind::Denied, format!("{path} cannot be written")),
        Some((_, 5 | 6)) => (LockErrorKind::Unavailable, format!("{path} is busy")),
        Some((_, 13)) => (LockErrorKind::Unavailable, format!("the disk of {path} is full")),
        Some((_, 14)) => (
            LockErrorKind::Unavailable,
            format!("{path} cannot be opened: check that it and its directory may be written"),
        ),
        Some((_, 11 | 26)) => (
            LockErrorKind::Misconfigured,
            format!("{path} is not a SQLite database, or is damaged"),
        ),
        Some((_, 1)) => (
            LockErrorKind::Misconfigured,
            format!("the tables in {path} are not those of this version"),
        ),
        _ => (LockErrorKind::Unavailable, format!("{path} could not be used")),
    };
    let kind = if in_doubt { LockErrorKind::OutcomeUnknown } else { kind };
    LockError::with_source(kind, what, error)
}

/// Whether another process held the file: a retry helps.
pub(super) fn is_busy(failed: &LockError) -> bool {
    matches!(code(failed), Some(5 | 6))
}

/// Whether the tables do not exist.
pub(super) fn has_no_tables(failed: &LockError) -> bool {
    code(failed) == Some(1)
}

fn code(failed: &LockError) -> Option<u32> {
    let error = failed.source()?.downcast_ref::<Error>()?;
    code_of(error).map(|code| code & 0xff)
}

fn code_of(error: &Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}
