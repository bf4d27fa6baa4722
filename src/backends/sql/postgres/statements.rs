//! The statements for the server.

use std::fmt::{self, Display};

use crate::backends::sql::row::{column, millis};
use crate::lock::codec::cause_label;
use crate::lock::{Release, StepDownNotice, Write};

/// Text as a literal whose meaning does not depend on the server's settings.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("E'")?;
        for char in self.0.chars() {
            match char {
                '\'' => f.write_str("''")?,
                '\\' => f.write_str("\\\\")?,
                '\0' => {} // which no text of PostgreSQL has
                char => write!(f, "{char}")?,
            }
        }
        f.write_str("'")
    }
}

/// A number of milliseconds, as an interval.
struct Millis(i64);

impl Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} * interval '1 millisecond'", self.0)
    }
}

/// The number of successive servers in the history; 1 if the server does not report it.
macro_rules! timeline {
    () => {
        "coalesce(('x' || nullif(right(incumbent_incarnation(), 8), ''))::bit(32)::bigint, 1)"
    };
}

/// The revision of a first write, or of one after which the past is unknown: greater than all
/// earlier ones, as long as the writes to an election have not averaged a thousand per second or
/// more. Each server that takes over adds the amount by which its clock may be behind its
/// predecessor's: 11 days.
const AFTER_ALL: &str = concat!(
    "(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + 1000000000 * (",
    timeline!(),
    " - 1))"
);

/// The revision of a write over another one. If that one has another history, the previous server
/// may have assigned the next revisions too, and so may a server between the two whose writes were
/// all lost. Each history therefore has its own million.
const NEXT: &str = concat!(
    "revision + CASE WHEN incarnation IS NOT DISTINCT FROM incumbent_incarnation()
    THEN 1 ELSE 1000000 * ",
    timeline!(),
    " END"
);

pub(super) fn read(name: &str) -> String {
    format!(
        "SELECT pg_is_in_recovery() AS replica, s.version,
            ceil(extract(epoch FROM s.longest_lease) * 1000)::bigint AS longest_ms,
            s.created_at + s.longest_lease < clock_timestamp() AS settled,
            s.created_at + s.longest_lease + interval '1 hour' < clock_timestamp() AS old,
            s.incarnation IS NOT DISTINCT FROM incumbent_incarnation() AS same_tables,
            incumbent_incarnation() AS history,
            e.previous, e.conceded, e.revision, e.holder, e.advertised, e.token, e.nonce, e.write, e.released_by,
            e.released_cause, e.released_to,
            floor(extract(epoch FROM e.acquired_at) * 1000)::bigint AS acquired_ms,
            ceil(extract(epoch FROM e.lease_duration) * 1000)::bigint AS lease_ms,
            ceil(extract(epoch FROM e.released_left) * 1000)::bigint AS left_ms,
            e.renewed_at + e.lease_duration < clock_timestamp()
                AND e.incarnation IS NOT DISTINCT FROM incumbent_incarnation() AS expired,
            e.incarnation IS NOT DISTINCT FROM incumbent_incarnation() AS same_history
        FROM incumbent_settings s LEFT JOIN incumbent_elections e ON e.name = {name}",
        name = Text(name)
    )
}

/// The row was written before a replica took over or a backup was restored, so later writes may be
/// lost, such as one that was `seen`. From here on, only one fact of the past counts: another
/// process may lead. The revision grows by more with every history, since a further failover may
/// also lose this write.
pub(super) fn forget(name: &str, revision: u64, seen: u64) -> String {
    format!(
        "UPDATE incumbent_elections SET holder = NULL, renewed_at = clock_timestamp(),
            revision = greatest(revision + 1000000 * {timeline}, {after}, {AFTER_ALL}), token = NULL, nonce = NULL,
            write = NULL, released_by = NULL, released_left = NULL, released_cause = NULL,
            released_to = NULL, advertised = NULL, incarnation = incumbent_incarnation()
        WHERE name = {name} AND revision = {revision}",
        timeline = timeline!(),
        name = Text(name),
        revision = column(revision),
        after = column(seen.saturating_add(1)),
    )
}

/// `sure`: whether the row counts only if it was written on the same history. `empty_on`: the
/// history on which there was no row. `seen`: the newest revision that a first write must exceed.
pub(super) fn write(
    name: &str,
    write: &Write,
    sure: bool,
    empty_on: Option<&str>,
    seen: u64,
) -> String {
    let holder = Text(&write.identity);
    let nonce = write.mark.write.nonce;
    let number = column(write.mark.write.number);
    let lease = Millis(millis(write.ttl.max(write.mark.lease)));
    let advertised = write.advertisement.as_ref().map(|advertisement| advertisement.to_json());
    let advertised = advertised.as_ref().map_or("NULL".to_owned(), |text| Text(text).to_string());
    let name = Text(name);
    match (write.expected, write.mark.token) {
        // On another history there may have been a row, which is lost.
        (None, _) => format!(
            "INSERT INTO incumbent_elections (name, holder, acquired_at, lease_duration,
                revision, token, nonce, write, advertised, incarnation)
            SELECT {name}, {holder}, clock_timestamp(), {lease}, first.revision, first.revision,
                '{nonce}', {number}, {advertised}, incumbent_incarnation()
            FROM (SELECT greatest({AFTER_ALL}, {after}) AS revision) first{history}
            ON CONFLICT (name) DO NOTHING RETURNING revision",
            after = column(seen.saturating_add(1)),
            history = empty_on.filter(|_| sure).map_or(String::new(), |history| format!(
                " WHERE incumbent_incarnation() IS NOT DISTINCT FROM {}",
                Text(history)
            )),
        ),
        (Some(expected), token) => {
            let term = match token {
                Some(token) => format!("token = {}", column(token.0)),
                // A term that its holder does not know of begins again, without a change of the
                // leader.
                None => format!(
                    "token = {NEXT}, acquired_at = clock_timestamp(),
                    transitions = transitions + (nonce IS DISTINCT FROM '{nonce}')::integer"
                ),
            };
            format!(
                "UPDATE incumbent_elections SET holder = {holder}, {term},
                    renewed_at = clock_timestamp(), lease_duration = {lease},
                    revision = {NEXT}, nonce = '{nonce}', write = {number},
                    released_by = NULL, released_left = NULL, released_cause = NULL,
                    released_to = NULL, advertised = {advertised}, incarnation = incumbent_incarnation()
                WHERE name = {name} AND revision = {expected}{history} RETURNING revision",
                expected = column(expected.0),
                history = on_same_history(sure),
            )
        }
    }
}

pub(super) fn release(name: &str, release: &Release, sure: bool) -> String {
    format!(
        "UPDATE incumbent_elections SET holder = NULL, renewed_at = clock_timestamp(),
            revision = {NEXT}, token = NULL, nonce = NULL, write = NULL,
            released_by = '{by}', released_left = {left}, released_cause = {cause}, released_to = {to},
            advertised = NULL, incarnation = incumbent_incarnation()
        WHERE name = {name} AND revision = {expected}{history} RETURNING revision",
        by = release.by,
        left = Millis(millis(release.left)),
        cause = Text(&cause_label(release.cause)),
        to = release.to.map_or_else(|| "NULL".to_owned(), |to| format!("'{to}'")),
        name = Text(name),
        expected = column(release.expected.0),
        history = on_same_history(sure),
    )
}

pub(super) const NAMES: &str = "SELECT name FROM incumbent_elections ORDER BY name";

/// Does what an administrator does by hand: a trigger completes the write.
pub(super) fn evict(name: &str, expected: u64) -> String {
    format!(
        "UPDATE incumbent_elections SET holder = NULL, advertised = NULL
        WHERE name = {name} AND revision = {expected} RETURNING revision",
        name = Text(name),
        expected = column(expected),
    )
}

fn on_same_history(sure: bool) -> &'static str {
    if sure { " AND incarnation IS NOT DISTINCT FROM incumbent_incarnation()" } else { "" }
}

/// Writes the notice into the row, so that only a role with the right to update the row can send
/// it.
pub(super) fn notify_step_down(name: &str, notice: &StepDownNotice) -> String {
    let payload = serde_json::json!({
        "by": notice.by.to_string(),
        "token": notice.token.0,
        "revision": notice.revision.0,
        "left_ms": millis(notice.left),
    });
    format!(
        "UPDATE incumbent_elections SET conceded = {payload} WHERE name = {name}",
        payload = Text(&payload.to_string()),
        name = Text(name),
    )
}

pub(super) fn notify(channel: &str, payload: &str) -> String {
    format!("SELECT pg_notify({}, {})", Text(channel), Text(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_end_its_literal() {
        let literal = |text| Text(text).to_string();
        assert_eq!(literal("c1.example.net"), "E'c1.example.net'");
        assert_eq!(literal(r"'; DROP TABLE x; --"), r"E'''; DROP TABLE x; --'");
        assert_eq!(literal(r"\'; --"), r"E'\\''; --'");
        assert_eq!(literal("a\0b"), "E'ab'");
    }
}
