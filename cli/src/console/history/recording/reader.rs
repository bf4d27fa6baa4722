//! Reads a recording.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Error, SqliteConnection};
use time::OffsetDateTime;

use super::{file, row, runs};
use crate::console::history::spans::{Event, Period};
use crate::console::history::{History, RunHistory};
use crate::console::model::Transition;
use crate::error::{CliError, Code};

/// The most transitions, periods, and runs of one history: the latest ones.
const MAX_ROWS: i64 = 100_000;
/// The age of the last observation of a recorder that runs.
const RUNNING: Duration = Duration::from_secs(15);

/// A recording, which a recorder may be writing.
#[derive(Debug, Clone)]
pub struct Recording {
    path: PathBuf,
}

impl Recording {
    /// Checks that the file is a recording. Fails with one line.
    pub async fn open(path: &Path) -> Result<Self, CliError> {
        let recording = Self { path: path.to_owned() };
        recording.connect().await?.close().await.map_err(|error| recording.failed(&error))?;
        Ok(recording)
    }

    /// The latest transitions of an election, the latest one last.
    pub async fn transitions(
        &self,
        election: &str,
        limit: u32,
    ) -> Result<Vec<Transition>, CliError> {
        let mut connection = self.connect().await?;
        let read = async {
            let events = events(&mut connection, election, i64::MIN, limit.into()).await?;
            Ok(events.into_iter().map(|event| event.transition).collect())
        };
        let result = read.await.map_err(|error| self.failed(&error));
        self.close(connection, result).await
    }

    /// The history of an election, from a time on or as far as it reaches; `None` if nothing is
    /// recorded of it.
    pub async fn history(
        &self,
        election: &str,
        since: Option<OffsetDateTime>,
    ) -> Result<Option<History>, CliError> {
        self.history_of_rows(election, since, MAX_ROWS).await
    }

    /// The latest runs of the jobs of an election, of slots from a time on or as far as it reaches.
    /// None if no run of it is recorded.
    pub async fn runs(
        &self,
        election: &str,
        since: Option<OffsetDateTime>,
    ) -> Result<RunHistory, CliError> {
        let mut connection = self.connect().await?;
        let read = async {
            // One state of the file, beside a recorder that writes.
            let mut transaction = connection.begin().await?;
            runs::read(&mut transaction, election, MAX_ROWS).await
        };
        let result = read.await.map_err(|error| self.failed(&error));
        let runs = self.close(connection, result).await?;
        Ok(RunHistory::new(election, runs, since))
    }

    /// The latest transitions of an election, at most `limit`. What is before them is unknown.
    pub(super) async fn history_of_rows(
        &self,
        election: &str,
        since: Option<OffsetDateTime>,
        limit: i64,
    ) -> Result<Option<History>, CliError> {
        let mut connection = self.connect().await?;
        let result = history(&mut connection, election, since, limit).await;
        let result = result.map_err(|error| self.failed(&error));
        self.close(connection, result).await
    }

    async fn connect(&self) -> Result<SqliteConnection, CliError> {
        let mut connection = file::open_for_reading(&self.path).await?;
        match file::check(&self.path, &mut connection).await? {
            file::Content::Recording => Ok(connection),
            file::Content::Empty => {
                let message = format!("{} has no recording yet", self.path.display());
                Err(CliError::new(Code::NotFound, message))
            }
        }
    }

    async fn close<T>(
        &self,
        connection: SqliteConnection,
        result: Result<T, CliError>,
    ) -> Result<T, CliError> {
        let closed = connection.close().await.map_err(|error| self.failed(&error));
        result.and_then(|result| closed.map(|()| result))
    }

    fn failed(&self, error: &Error) -> CliError {
        file::failed(&self.path, "read", error)
    }
}

async fn history(
    connection: &mut SqliteConnection,
    election: &str,
    since: Option<OffsetDateTime>,
    limit: i64,
) -> Result<Option<History>, Error> {
    // One state of the file, beside a recorder that writes.
    let mut transaction = connection.begin().await?;
    let from = since.map_or(i64::MIN, row::nanos);
    let events = events(&mut transaction, election, from, limit).await?;
    let Some(first) = events.first() else { return Ok(None) };
    // Earlier rows are left out: what was before these ones is unknown.
    let is_cut = i64::try_from(events.len()).is_ok_and(|count| count >= limit);
    let cut = is_cut.then(|| row::nanos(first.learned));
    let mut periods = periods(&mut transaction, election, from, cut).await?;
    let now = OffsetDateTime::now_utc();
    // A recorder that runs has not written the end of its period yet.
    let last = periods.iter_mut().max_by_key(|period| period.end);
    if let Some(last) = last.filter(|last| (now - last.end).unsigned_abs() <= RUNNING) {
        last.end = now;
    }
    Ok(Some(History::new(election, &events, periods, since, now)))
}

/// The latest events since a time, and the one before them, which shows the state at that time.
async fn events(
    connection: &mut SqliteConnection,
    election: &str,
    since: i64,
    limit: i64,
) -> Result<Vec<Event>, Error> {
    let has_lock_times: bool = sqlx::query_scalar("SELECT has_lock_times FROM recording")
        .fetch_one(&mut *connection)
        .await?;
    let of_election = "t.election = (SELECT id FROM election WHERE name = ?1)";
    let select = format!(
        "SELECT {} FROM transition t JOIN election e ON e.id = t.election WHERE {of_election} \
         AND t.id >= ifnull((SELECT max(t.id) FROM transition t \
         WHERE {of_election} AND learned < ?2), 0) ORDER BY t.id DESC LIMIT ?3",
        row::COLUMNS
    );
    // No part of the statement is of a user.
    let statement = sqlx::query(AssertSqlSafe(select));
    let rows = statement.bind(election).bind(since).bind(limit).fetch_all(connection).await?;
    rows.iter().rev().map(|found| row::event(found, has_lock_times)).collect()
}

/// The times in which the election was observed, of which nothing was removed or cut off.
async fn periods(
    connection: &mut SqliteConnection,
    election: &str,
    since: i64,
    cut: Option<i64>,
) -> Result<Vec<Period>, Error> {
    let removed_until: (Option<i64>, Option<i64>) = sqlx::query_as(
        "SELECT removed_until, (SELECT removed_until FROM election WHERE name = ?) FROM recording",
    )
    .bind(election)
    .fetch_one(&mut *connection)
    .await?;
    let removed = removed_until.0.max(removed_until.1).max(cut).unwrap_or(i64::MIN);
    let from = removed.max(since);
    let read = "SELECT names, begin, end FROM observation WHERE end >= ? ORDER BY id DESC LIMIT ?";
    let found: Vec<(Option<String>, i64, i64)> =
        sqlx::query_as(read).bind(from).bind(MAX_ROWS).fetch_all(connection).await?;
    let includes = |names: &Option<String>| {
        let names = names.as_deref().map(serde_json::from_str::<Vec<String>>);
        names.is_none_or(|names| names.is_ok_and(|names| names.iter().any(|n| n == election)))
    };
    let found = found.into_iter().filter(|(names, ..)| includes(names));
    let periods = found.map(|(_, begin, end)| (begin.max(removed), end));
    Ok(periods
        .map(|(begin, end)| Period { begin: row::time(begin), end: row::time(end) })
        .collect())
}
