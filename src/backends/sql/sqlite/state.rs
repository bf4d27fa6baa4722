//! State shared by the clones of a lock, and its requests to the file.

use std::sync::Arc;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::file::{File, moment_of};
use crate::backends::seen::SeenRevisions;
use crate::backends::sql::hints::Subscribers;
use crate::backends::sql::row::{Row, span};
use crate::util::per_key::PerKey;

/// The state of a lock.
pub struct LockState {
    pub(super) file: Arc<File>,
    pub(super) subscribers: Subscribers,
    pub(super) seen: PerKey<SeenRevisions>,
}

impl LockState {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, subscribers: Subscribers::default(), seen: PerKey::default() }
    }

    pub(super) fn row_of(&self, row: &SqliteRow) -> Result<Row, sqlx::Error> {
        let lease_ms = row.try_get("lease_ms")?;
        let then = moment_of(row)?;
        Ok(Row {
            revision: u64::try_from(row.try_get::<i64, _>("revision")?).unwrap_or_default(),
            holder: row.try_get("holder")?,
            acquired_ms: row.try_get("acquired_ms")?,
            lease_ms,
            token: row.try_get("token")?,
            nonce: row.try_get("nonce")?,
            write: row.try_get("write")?,
            released_by: row.try_get("released_by")?,
            left_ms: row.try_get("left_ms")?,
            released_cause: row.try_get("released_cause")?,
            released_to: row.try_get("released_to")?,
            advertised: row.try_get("advertised")?,
            expired: self.file.is_past(then.as_ref(), span(lease_ms)),
        })
    }
}
