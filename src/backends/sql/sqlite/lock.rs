//! The lock in a SQLite file.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;
use tokio::time::Instant;

use super::boot_id;
use super::errors;
use super::file::Statement;
use super::listener;
use super::state::LockState;
use super::statements;
use crate::backends::seen::SeenRevisions;
use crate::backends::sql::hints::Subscribers;
use crate::backends::sql::lock::{Database, SqlLock};
use crate::backends::sql::row::{Stated, column, millis};
use crate::lock::codec::cause_label;
use crate::lock::{LockError, Reading, Release, Revision, Write};
use crate::time::timer::deadline_after;
use crate::util::per_key::PerKey;

/// The lock in a SQLite file.
///
/// Cheap to clone. Clones share connections and hints.
pub type SqliteLock = SqlLock<LockState>;

impl Database for LockState {
    type Statement = Statement;

    fn max_lease(&self) -> Duration {
        self.file.max_lease()
    }

    fn seen(&self) -> &PerKey<SeenRevisions> {
        &self.seen
    }

    fn subscribers(&self) -> &Subscribers {
        &self.subscribers
    }

    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        listener::run(self)
    }

    async fn read(&self, name: &str, keep: bool, timeout: Duration) -> Result<Reading, LockError> {
        let by = deadline_after(timeout);
        let of_election = if keep { self.seen.get(name) } else { self.seen.peek(name) };
        loop {
            let left = by.saturating_duration_since(Instant::now());
            let read = sqlx::query(statements::READ).bind(name.to_owned());
            let Some(answer) = self.file.execute(read, false, left).await? else {
                return Ok(Reading::Empty { proof: false });
            };
            let Some(row) = answer.rows.first() else {
                // A row is never deleted, so the election had no holder yet, unless the file was
                // created again.
                let proof = answer.settled && of_election.newest().is_none();
                return Ok(Reading::Empty { proof });
            };
            let row = self.row_of(row).map_err(|e| errors::failed(e, false, self.file.path()))?;
            let seen = of_election.see(Revision(row.revision)).0;
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

    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        let answer = self.file.execute(sqlx::query(statements::NAMES), false, timeout).await?;
        let rows = answer.ok_or_else(|| self.file.gone())?.rows;
        let names = rows.iter().map(|row| row.try_get("name")).collect::<Result<_, _>>();
        names.map_err(|error| errors::failed(error, false, self.file.path()))
    }

    async fn put(&self, statement: Statement, timeout: Duration) -> Result<Option<i64>, LockError> {
        let answer = self.file.execute(statement, true, timeout).await?;
        let rows = answer.ok_or_else(|| self.file.gone())?.rows;
        let revision = rows.first().map(|row| row.try_get("revision")).transpose();
        revision.map_err(|error| errors::failed(error, true, self.file.path()))
    }

    fn write(&self, name: &str, write: &Write) -> Result<Statement, LockError> {
        let now = boot_id::now();
        let create = write.expected.is_none();
        let statement = if create { statements::CREATE } else { statements::WRITE };
        let query = sqlx::query(statement)
            .bind(name.to_owned())
            .bind(write.identity.to_string())
            .bind(millis(write.ttl.max(write.mark.lease)))
            .bind(write.mark.write.nonce.to_string())
            .bind(column(write.mark.write.number))
            .bind(now.as_ref().map(|now| now.boot.clone()))
            .bind(now.map(|now| now.ms))
            .bind(Stated::of(write).column());
        Ok(match write.expected {
            None => query,
            Some(expected) => {
                query.bind(column(expected.0)).bind(write.mark.token.map(|token| column(token.0)))
            }
        })
    }

    async fn load_checkpoint(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<(i64, Vec<u8>)>, LockError> {
        let load = sqlx::query(statements::LOAD_CHECKPOINT).bind(name.to_owned());
        let answer = self.file.execute(load, false, timeout).await?;
        let rows = answer.ok_or_else(|| self.file.gone())?.rows;
        let found = rows.first().map(|row| Ok((row.try_get("version")?, row.try_get("content")?)));
        found.transpose().map_err(|error| errors::failed(error, false, self.file.path()))
    }

    fn store_checkpoint(
        &self,
        name: &str,
        content: Vec<u8>,
        version: i64,
        expected: Option<i64>,
    ) -> Statement {
        let statement = match expected {
            None => statements::CREATE_CHECKPOINT,
            Some(_) => statements::STORE_CHECKPOINT,
        };
        let query = sqlx::query(statement).bind(name.to_owned()).bind(version).bind(content);
        match expected {
            None => query,
            Some(expected) => query.bind(expected),
        }
    }

    fn release(&self, name: &str, release: &Release) -> Statement {
        let now = boot_id::now();
        sqlx::query(statements::RELEASE)
            .bind(name.to_owned())
            .bind(column(release.expected.0))
            .bind(release.by.to_string())
            .bind(millis(release.left))
            .bind(cause_label(release.cause))
            .bind(now.as_ref().map(|now| now.boot.clone()))
            .bind(now.map(|now| now.ms))
            .bind(release.to.map(|to| to.to_string()))
            .bind(Stated::of_release(release).column())
    }
}

partial_debug!(LockState, self, path: self.file.path());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::sql::Sqlite;
    use crate::lock::{Lock, LockAdmin, Mark, Nonce, WriteId};

    const TTL: Duration = Duration::from_secs(10);

    /// The names come from the lock, and there is no end of them.
    #[tokio::test]
    async fn a_list_keeps_nothing_of_its_elections() {
        let directory = tempfile::tempdir().unwrap();
        let database = Sqlite::open(directory.path().join("elections.db")).await.unwrap();
        let write = Write {
            expected: None,
            identity: "a".into(),
            mark: Mark::new(WriteId { nonce: Nonce(1), number: 1 }, TTL, None),
            ttl: TTL,
            advertisement: None,
            timeout: TTL,
        };
        let written = Lock::write(&database.lock(), "e", write).await.unwrap();
        let observer = database.lock();
        let newest = || observer.database.seen.peek("e").newest();
        assert_eq!(observer.list(TTL).await.unwrap().len(), 1);
        assert_eq!(newest(), None);
        Lock::read(&observer, "e", TTL).await.unwrap();
        assert_eq!(newest(), Some(written));
    }
}
