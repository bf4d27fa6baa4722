//! State shared by the clones of a lock, and its requests to the file.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use tokio::time::Instant;

use super::errors;
use super::file::{File, moment_of};
use super::statements;
use crate::backends::sql::hints::Subscribers;
use crate::backends::sql::row::{Row, column, span};
use crate::backends::sql::seen::NewestRevisions;
use crate::lock::{LockError, Reading};
use crate::time::timer::deadline_after;

/// The state of a lock.
pub struct LockState {
    pub(super) file: Arc<File>,
    pub(super) subscribers: Subscribers,
    pub(super) seen: NewestRevisions,
}

impl LockState {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, subscribers: Subscribers::default(), seen: NewestRevisions::default() }
    }

    pub(super) async fn read_row(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Reading, LockError> {
        let by = deadline_after(timeout);
        loop {
            let left = by.saturating_duration_since(Instant::now());
            let read = sqlx::query(statements::READ).bind(name.to_owned());
            let Some(answer) = self.file.execute(read, false, left).await? else {
                return Ok(Reading::Empty { proof: false });
            };
            let Some(row) = answer.rows.first() else {
                // A row is never deleted, so the election had no holder yet, unless the file was
                // created again.
                let proof = answer.settled && self.seen.newest(name) == 0;
                return Ok(Reading::Empty { proof });
            };
            let row = self.row_of(row).map_err(|e| errors::failed(e, false, self.file.path()))?;
            let seen = self.seen.see(name, row.revision);
            if row.revision >= seen {
                return Ok(Reading::Found(row.record()));
            }
            let left = by.saturating_duration_since(Instant::now());
            let forget = sqlx::query(statements::FORGET)
                .bind(name.to_owned())
                .bind(column(row.revision))
                .bind(column(seen.saturating_add(1)));
            self.file.execute(forget, true, left).await?;
        }
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
