//! Rows of transitions.

use std::time::Duration;

use incumbent::Token;
use incumbent::lock::Revision;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row};
use time::OffsetDateTime;

use crate::console::history::spans::Event;
use crate::console::model::Transition;
use crate::lock::elections::{ElectionState, Holder};
use crate::output::time_format::millis;

/// The most bytes of a name that are stored.
const MAX_TEXT: usize = 1024;

/// The bytes of a row beside its texts, with those of the indices.
const FIXED: u64 = 150;

/// The columns that `event` reads.
pub const COLUMNS: &str = "name, revision, time, learned, found, leader, token, since, before, \
     before_token, cause, leaderless_ms, unrenewed_ms";

/// A time as a column; the nearest one if it is out of range.
pub fn nanos(time: OffsetDateTime) -> i64 {
    let nanos = time.unix_timestamp_nanos();
    nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

pub fn time(nanos: i64) -> OffsetDateTime {
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanos.into());
    time.unwrap_or(OffsetDateTime::UNIX_EPOCH) // never: the range is that of 64 bits
}

pub fn span(span: Duration) -> i64 {
    i64::try_from(millis(span)).unwrap_or(i64::MAX)
}

/// A token as a column.
pub fn token(token: Token) -> i64 {
    token.0.cast_signed()
}

/// The start of a text of another program.
pub fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default()
}

/// How many bytes a row has, and a little more.
pub fn size(event: &Event) -> u64 {
    let transition = &event.transition;
    let leader = transition.outcome().map_or_else(|cause| cause, |holder| &*holder.identity);
    let before = transition.before.as_ref().map_or("", |before| &*before.identity);
    let texts = [&*transition.election, cut(leader), cut(before)];
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    bytes as u64 + FIXED
}

/// The event of a row.
pub fn event(row: &SqliteRow, has_lock_times: bool) -> Result<Event, Error> {
    let learned = time(row.try_get("learned")?);
    let dated = time(row.try_get("time")?);
    let number =
        |column| Ok::<_, Error>(row.try_get::<Option<i64>, _>(column)?.map(i64::cast_unsigned));
    let length = |column| Ok::<_, Error>(number(column)?.map(Duration::from_millis));
    let since = row.try_get::<Option<i64>, _>("since")?.map(|since| time(since).into());
    let token = |column| Ok::<_, Error>(number(column)?.map(Token));
    let (leader, before): (Option<String>, Option<String>) =
        (row.try_get("leader")?, row.try_get("before")?);
    let before_token = token("before_token")?;
    let now = match leader {
        Some(leader) => {
            ElectionState::Held(Holder { since, ..Holder::new(leader, token("token")?) })
        }
        None => {
            let cause = row.try_get::<Option<String>, _>("cause")?.unwrap_or_default();
            ElectionState::Vacant(cause.as_str().into())
        }
    };
    let transition = Transition {
        election: row.try_get("name")?,
        time: dated,
        revision: Revision(row.try_get::<i64, _>("revision")?.cast_unsigned()),
        before: before.map(|before| Holder::new(before, before_token)),
        now,
        found: row.try_get("found")?,
        leaderless: length("leaderless_ms")?,
        unrenewed: length("unrenewed_ms")?,
    };
    Ok(Event { transition, at: if has_lock_times { dated } else { learned }, learned })
}
