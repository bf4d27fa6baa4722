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
/// How many runs are added before the file is looked at again.
const UNPRUNED: i64 = 16;
/// How much later than a run its leader may be learned.
const SOON: Duration = Duration::from_secs(30);

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

/// Adds runs, or what was learned of them. A restarted recorder finds those in a checkpoint again
/// that were removed from the file: they stay removed. Returns whether it is time to prune.
pub async fn insert_all(
    connection: &mut SqliteConnection,
    runs: &[ElectionRun],
) -> Result<bool, Error> {
    // The greatest number of those that are in the file, of each election.
    let (mut followed, mut kept) = (HashMap::<&str, u64>::new(), Vec::new());
    for run in runs.iter().rev() {
        let (greatest, number) = (followed.entry(&run.election).or_default(), run.run.number);
        if is_recorded(connection, run).await? {
            *greatest = number.max(*greatest);
        } else if number < *greatest {
            continue;
        }
        kept.push(run);
    }
    let before = last_id(connection).await?;
    for run in kept.into_iter().rev() {
        insert(connection, run).await?;
    }
    Ok(before / UNPRUNED < last_id(connection).await? / UNPRUNED)
}

async fn is_recorded(connection: &mut SqliteConnection, run: &ElectionRun) -> Result<bool, Error> {
    let ElectionRun { election, run } = run;
    let read = "SELECT EXISTS \
         (SELECT 1 FROM run WHERE election = ? AND job = ? AND slot = ? AND token = ?)";
    sqlx::query_scalar(read)
        .bind(election)
        .bind(row::cut(&run.job))
        .bind(row::nanos(run.slot))
        .bind(row::token(run.token))
        .fetch_one(connection)
        .await
}

async fn last_id(connection: &mut SqliteConnection) -> Result<i64, Error> {
    sqlx::query_scalar("SELECT ifnull(max(id), 0) FROM run").fetch_one(connection).await
}

async fn insert(connection: &mut SqliteConnection, run: &ElectionRun) -> Result<(), Error> {
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
    let leaders = "SELECT token, learned, leader FROM transition WHERE leader IS NOT NULL \
         AND token IN (SELECT token FROM run WHERE election = ?1) \
         AND election = (SELECT id FROM election WHERE name = ?1) ORDER BY id";
    let leaders: Vec<(i64, i64, String)> =
        sqlx::query_as(leaders).bind(election).fetch_all(&mut *connection).await?;
    let mut terms = Terms::new();
    for (token, learned, leader) in leaders {
        terms.entry(token).or_default().push((learned, leader));
    }
    let read = "SELECT number, job, slot, token, state, code, duration_ms, learned FROM run \
         WHERE election = ? ORDER BY id DESC LIMIT ?";
    let rows = sqlx::query(read).bind(election).bind(limit).fetch_all(connection).await?;
    rows.iter().rev().map(|row| known(row, &terms)).collect()
}

/// When the leaders of a token were learned, by token: the tokens of a new lock begin again.
type Terms = HashMap<i64, Vec<(i64, String)>>;

/// Who led when this was learned of a run of this token: it may be learned before its leader is.
fn leader(terms: &Terms, token: i64, learned: i64) -> Option<String> {
    let leaders = terms.get(&token)?;
    let before = leaders.iter().rfind(|(since, _)| *since <= learned);
    let soon = learned.saturating_add(SOON.as_nanos() as i64);
    let after = || leaders.iter().find(|(since, _)| *since <= soon);
    before.or_else(after).map(|(_, leader)| leader.clone())
}

fn known(row: &SqliteRow, terms: &Terms) -> Result<KnownRun, Error> {
    let code: Option<u8> = row.try_get("code")?;
    let took = row.try_get::<Option<i64>, _>("duration_ms")?;
    let took = took.map(|ms| Duration::from_millis(ms.cast_unsigned()));
    let state = match (row.try_get::<&str, _>("state")?, code) {
        ("begun", _) => Some(RunState::Begun),
        ("ended", Some(code)) => Some(RunState::Ended { code, took: took.unwrap_or_default() }),
        ("cut_short", _) => Some(RunState::CutShort { took }),
        _ => None,
    };
    let (token, learned) = (row.try_get("token")?, row.try_get("learned")?);
    Ok(KnownRun {
        number: row.try_get::<i64, _>("number")?.cast_unsigned(),
        job: row.try_get("job")?,
        slot: row::time(row.try_get("slot")?),
        token: Token(i64::cast_unsigned(token)),
        state,
        learned: row::time(learned),
        leader: leader(terms, token, learned),
    })
}
