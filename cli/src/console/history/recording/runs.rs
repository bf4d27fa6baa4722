//! Rows of runs.

use std::collections::HashMap;
use std::time::Duration;

use incumbent::Token;
use incumbent::schedule::RunState;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row, SqliteConnection};

use super::row;
use crate::console::history::runs::KnownRun;

/// The bytes of a row beside its texts, with those of the index.
const FIXED: u64 = 120;

/// A run, and its election.
#[derive(Debug, Clone)]
pub struct ElectionRun {
    pub election: String,
    pub run: KnownRun,
}

/// How many bytes a row has, and a little more. Its texts are in the index, too.
pub fn size(run: &ElectionRun) -> u64 {
    2 * (run.election.len() + run.run.job.len()) as u64 + FIXED
}

/// Adds the table to a file without one.
pub async fn create(connection: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::raw_sql(include_str!("runs.sql")).execute(connection).await.map(drop)
}

/// Adds a run, or what was learned of one.
pub async fn insert(connection: &mut SqliteConnection, run: &ElectionRun) -> Result<(), Error> {
    let ElectionRun { election, run } = run;
    let (state, code, took) = run.end();
    // Found again it is as it was learned. A run that was cut short may begin again in its term.
    let insert = "INSERT INTO run \
         (election, number, job, slot, token, state, code, duration_ms, learned) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (election, job, slot, token) DO UPDATE SET \
         state = excluded.state, code = excluded.code, duration_ms = excluded.duration_ms, \
         learned = excluded.learned WHERE run.state <> 'ended' AND (run.state <> excluded.state \
         OR run.code IS NOT excluded.code OR run.duration_ms IS NOT excluded.duration_ms)";
    sqlx::query(insert)
        .bind(election)
        .bind(run.number.cast_signed())
        .bind(row::cut(&run.job))
        .bind(row::nanos(run.slot))
        .bind(row::token(run.token))
        .bind(state)
        .bind(code)
        .bind(took.map(row::span))
        .bind(row::nanos(run.learned))
        .execute(connection)
        .await
        .map(drop)
}

/// Whether the file has the table.
pub async fn exist(connection: &mut SqliteConnection) -> Result<bool, Error> {
    let read = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'run'";
    let tables: i64 = sqlx::query_scalar(read).fetch_one(connection).await?;
    Ok(tables > 0)
}

/// The latest runs of an election, in the order in which they began.
pub async fn read(
    connection: &mut SqliteConnection,
    election: &str,
    limit: i64,
) -> Result<Vec<KnownRun>, Error> {
    if !exist(connection).await? {
        return Ok(Vec::new());
    }
    let leaders = "SELECT token, leader FROM transition WHERE leader IS NOT NULL \
         AND token IS NOT NULL AND election = (SELECT id FROM election WHERE name = ?) GROUP BY token";
    let leaders: Vec<(i64, String)> =
        sqlx::query_as(leaders).bind(election).fetch_all(&mut *connection).await?;
    let leaders: HashMap<_, _> = leaders.into_iter().collect();
    let read = "SELECT number, job, slot, token, state, code, duration_ms, learned FROM run \
         WHERE election = ? ORDER BY id DESC LIMIT ?";
    let rows = sqlx::query(read).bind(election).bind(limit).fetch_all(connection).await?;
    rows.iter().rev().map(|row| known(row, &leaders)).collect()
}

fn known(row: &SqliteRow, leaders: &HashMap<i64, String>) -> Result<KnownRun, Error> {
    let code: Option<u8> = row.try_get("code")?;
    let took = row.try_get::<Option<i64>, _>("duration_ms")?;
    let took = took.map(|ms| Duration::from_millis(ms.cast_unsigned()));
    let state = match (row.try_get::<&str, _>("state")?, code) {
        ("begun", _) => Some(RunState::Begun),
        ("ended", Some(code)) => Some(RunState::Ended { code, took: took.unwrap_or_default() }),
        ("cut_short", _) => Some(RunState::CutShort { took }),
        _ => None,
    };
    let token: i64 = row.try_get("token")?;
    Ok(KnownRun {
        number: row.try_get::<i64, _>("number")?.cast_unsigned(),
        job: row.try_get("job")?,
        slot: row::time(row.try_get("slot")?),
        token: Token(token.cast_unsigned()),
        state,
        learned: row::time(row.try_get("learned")?),
        leader: leaders.get(&token).cloned(),
    })
}
