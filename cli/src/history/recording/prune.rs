//! Removes the oldest rows of a file that has reached its maximum size. Their pages are reused.

use sqlx::{Connection, Error, SqliteConnection};
use time::OffsetDateTime;

use super::row;

/// Which part of the rows is removed at once.
const PART: i64 = 16;
/// How many pages a transaction needs beside those of its rows.
const MORE: u64 = 8;

/// Whether a transaction that needs so many pages reaches the maximum: else the disk is full.
pub async fn is_at_limit(connection: &mut SqliteConnection, need: u64) -> Result<bool, Error> {
    let mut read = async |pragma: &'static str| -> Result<u64, Error> {
        let pages: i64 = sqlx::query_scalar(pragma).fetch_one(&mut *connection).await?;
        Ok(u64::try_from(pages).unwrap_or_default())
    };
    let (pages, free) = (read("PRAGMA page_count").await?, read("PRAGMA freelist_count").await?);
    let max = read("PRAGMA max_page_count").await?;
    // Pages are filled by half at worst.
    let need = need.saturating_mul(2).saturating_add(MORE);
    Ok(pages.saturating_sub(free).saturating_add(need) >= max)
}

/// Removes the oldest part of the transitions, but the last one of each election, which is its
/// state since then; without any, the oldest observations; without those, any transitions.
/// Returns whether it removed any.
pub async fn prune(connection: &mut SqliteConnection, now: OffsetDateTime) -> Result<bool, Error> {
    let now = row::nanos(now);
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let superseded = "DELETE FROM transition WHERE id IN (SELECT id FROM transition t \
         WHERE EXISTS (SELECT 1 FROM transition l WHERE l.election = t.election AND l.id > t.id) \
         ORDER BY id LIMIT (SELECT count(*) / ?1 + 1 FROM transition)) RETURNING id, learned";
    let observations = "DELETE FROM observation WHERE id IN (SELECT id FROM observation \
         WHERE id < (SELECT max(id) FROM observation) \
         ORDER BY id LIMIT (SELECT count(*) / ?1 + 1 FROM observation)) RETURNING NULL, end";
    let any = "DELETE FROM transition WHERE id IN (SELECT id FROM transition \
         ORDER BY id LIMIT (SELECT count(*) / ?1 + 1 FROM transition)) RETURNING id, learned";
    let mut removed: Vec<(Option<i64>, i64)> = Vec::new();
    for statement in [superseded, observations, any] {
        if removed.is_empty() {
            removed = sqlx::query_as(statement).bind(PART).fetch_all(&mut *transaction).await?;
        }
    }
    if removed.is_empty() {
        return Ok(false);
    }
    let mut until = removed.iter().map(|(_, time)| *time).filter(|time| *time <= now).max();
    if removed.iter().any(|(_, time)| *time > now) {
        // A clock was ahead: it was before the next row that is left, and is not in the future.
        let next = "SELECT learned FROM transition WHERE id > ? AND learned <= ? ORDER BY id";
        let last = removed.iter().filter_map(|(id, _)| *id).max();
        let next: Option<i64> = sqlx::query_scalar(next)
            .bind(last.unwrap_or(i64::MAX))
            .bind(now)
            .fetch_optional(&mut *transaction)
            .await?;
        until = until.max(Some(next.unwrap_or(now)));
    }
    let until = until.unwrap_or(now);
    let set = "UPDATE recording SET removed_until = max(min(ifnull(removed_until, ?1), ?2), ?1)";
    sqlx::query(set).bind(until).bind(now).execute(&mut *transaction).await?;
    sqlx::query("DELETE FROM observation WHERE end <= ?")
        .bind(until)
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "DELETE FROM election WHERE NOT EXISTS \
         (SELECT 1 FROM transition WHERE election = election.id)",
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(true)
}
