//! Removes the oldest rows of a file that has reached its maximum size. Their pages are reused.

use sqlx::{Connection, Error, SqliteConnection};
use time::OffsetDateTime;

use super::{row, runs};

/// Which part of the rows is removed at once.
const PART: i64 = 16;
/// How many pages a transaction needs beside those of its rows.
const MORE: u64 = 8;

/// Whether a transaction that needs this many pages reaches the maximum: else the disk is full.
pub async fn is_at_limit(connection: &mut SqliteConnection, need: u64) -> Result<bool, Error> {
    let (used, max) = pages(connection).await?;
    // Pages are filled by half at worst.
    let need = need.saturating_mul(2).saturating_add(MORE);
    Ok(used.saturating_add(need) >= max)
}

/// How many pages of the file are in use, and how many it may have.
async fn pages(connection: &mut SqliteConnection) -> Result<(u64, u64), Error> {
    let mut read = async |pragma: &'static str| -> Result<u64, Error> {
        let pages: i64 = sqlx::query_scalar(pragma).fetch_one(&mut *connection).await?;
        Ok(u64::try_from(pages).unwrap_or_default())
    };
    let (pages, free) = (read("PRAGMA page_count").await?, read("PRAGMA freelist_count").await?);
    Ok((pages.saturating_sub(free), read("PRAGMA max_page_count").await?))
}

/// Removes a part of the runs if they are more than the transitions. Else a part of the
/// transitions, but the last one of each election, which is its state since then: of the elections
/// with most of them, so that one that flaps does not erase the history of the others. If
/// observations are more, or there are no such transitions, the oldest observations; without those,
/// any runs, and then any transitions. Returns whether it removed any.
pub async fn prune(connection: &mut SqliteConnection, now: OffsetDateTime) -> Result<bool, Error> {
    let now = row::nanos(now);
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let removed = remove_runs_if_more(&mut transaction).await?
        || (observations_are_more(&mut transaction).await?
            && remove_observations(&mut transaction, now).await?)
        || remove_superseded(&mut transaction, now).await?
        || remove_observations(&mut transaction, now).await?
        || remove_runs(&mut transaction).await?
        || remove_any(&mut transaction, now).await?;
    transaction.commit().await?;
    Ok(removed)
}

async fn observations_are_more(connection: &mut SqliteConnection) -> Result<bool, Error> {
    let counts = "SELECT (SELECT count(*) FROM observation) > (SELECT count(*) FROM transition)";
    sqlx::query_scalar(counts).fetch_one(connection).await
}

/// Removes a part of the runs if they fill half of the file. An older version of incumbent, which
/// cannot remove them, continues the file with the other half.
pub async fn prune_runs(connection: &mut SqliteConnection) -> Result<(), Error> {
    let (used, max) = pages(connection).await?;
    if used >= max / 2 {
        remove_runs_if_more(connection).await?;
    }
    Ok(())
}

/// Removes a part of the runs if they are more than the transitions.
async fn remove_runs_if_more(connection: &mut SqliteConnection) -> Result<bool, Error> {
    let are_more = "SELECT (SELECT count(*) FROM run) > (SELECT count(*) FROM transition)";
    Ok(runs::exist(connection).await?
        && sqlx::query_scalar(are_more).fetch_one(&mut *connection).await?
        && remove_runs(connection).await?)
}

/// Removes the oldest runs of the jobs with most of them; the last run of each job only if there
/// are no others. Their numbers say that they are missing.
async fn remove_runs(connection: &mut SqliteConnection) -> Result<bool, Error> {
    if !runs::exist(connection).await? {
        return Ok(false);
    }
    let remove = "DELETE FROM run WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER \
         (PARTITION BY election, job ORDER BY id DESC) AS place FROM run) \
         ORDER BY place DESC, id LIMIT (SELECT count(*) / ? + 1 FROM run))";
    let removed = sqlx::query(remove).bind(PART).execute(connection).await?;
    Ok(removed.rows_affected() > 0)
}

/// A removed row: its election, its number, and when it was learned.
type Removed = (i64, i64, i64);

async fn remove_superseded(connection: &mut SqliteConnection, now: i64) -> Result<bool, Error> {
    let remove = "DELETE FROM transition WHERE id IN (SELECT id FROM (SELECT id, \
         row_number() OVER (PARTITION BY election ORDER BY id DESC) AS place FROM transition) \
         WHERE place > 1 ORDER BY place DESC, id \
         LIMIT (SELECT count(*) / ? + 1 FROM transition)) RETURNING election, id, learned";
    let removed = sqlx::query_as(remove).bind(PART).fetch_all(&mut *connection).await?;
    let mut removed: Vec<Removed> = removed;
    removed.sort_unstable();
    for rows in removed.chunk_by(|one, other| one.0 == other.0) {
        let election = rows.first().map(|row| row.0);
        let until = unknown_until(connection, rows, election, now).await?;
        let set = "UPDATE election \
             SET removed_until = max(min(ifnull(removed_until, ?1), ?2), ?1) WHERE id = ?3";
        sqlx::query(set).bind(until).bind(now).bind(election).execute(&mut *connection).await?;
    }
    Ok(!removed.is_empty())
}

async fn remove_observations(connection: &mut SqliteConnection, now: i64) -> Result<bool, Error> {
    let remove = "DELETE FROM observation WHERE id IN (SELECT id FROM observation \
         WHERE id < (SELECT max(id) FROM observation) \
         ORDER BY id LIMIT (SELECT count(*) / ? + 1 FROM observation)) RETURNING 0, id, end";
    let removed = sqlx::query_as(remove).bind(PART).fetch_all(&mut *connection).await?;
    let mut removed: Vec<Removed> = removed;
    removed.iter_mut().for_each(|(_, _, end)| *end = now.min(*end));
    note_all_removed(connection, &removed, now).await
}

async fn remove_any(connection: &mut SqliteConnection, now: i64) -> Result<bool, Error> {
    let remove = "DELETE FROM transition WHERE id IN (SELECT id FROM transition \
         ORDER BY id LIMIT (SELECT count(*) / ? + 1 FROM transition)) \
         RETURNING election, id, learned";
    let removed = sqlx::query_as(remove).bind(PART).fetch_all(&mut *connection).await?;
    let without = "DELETE FROM election WHERE NOT EXISTS \
         (SELECT 1 FROM transition WHERE election = election.id)";
    sqlx::query(without).execute(&mut *connection).await?;
    note_all_removed(connection, &removed, now).await
}

/// Notes that what was until then is unknown for all elections. Returns whether rows were removed.
async fn note_all_removed(
    connection: &mut SqliteConnection,
    removed: &[Removed],
    now: i64,
) -> Result<bool, Error> {
    if removed.is_empty() {
        return Ok(false);
    }
    let until = unknown_until(connection, removed, None, now).await?;
    let set = "UPDATE recording SET removed_until = max(min(ifnull(removed_until, ?1), ?2), ?1)";
    sqlx::query(set).bind(until).bind(now).execute(&mut *connection).await?;
    Ok(true)
}

/// Until when it is unknown what was, of an election or of all.
async fn unknown_until(
    connection: &mut SqliteConnection,
    removed: &[Removed],
    election: Option<i64>,
    now: i64,
) -> Result<i64, Error> {
    let until = removed.iter().map(|row| row.2).filter(|learned| *learned <= now).max();
    if removed.iter().all(|row| row.2 <= now) {
        return Ok(until.unwrap_or(now));
    }
    // A clock was ahead: it was before the next row that is left, and is not in the future.
    let next = "SELECT learned FROM transition WHERE id > ?1 AND learned <= ?2 \
         AND (election = ?3 OR ?3 IS NULL) ORDER BY id";
    let next: Option<i64> = sqlx::query_scalar(next)
        .bind(removed.iter().map(|row| row.1).max())
        .bind(now)
        .bind(election)
        .fetch_optional(connection)
        .await?;
    Ok(until.unwrap_or(i64::MIN).max(next.unwrap_or(now)))
}
