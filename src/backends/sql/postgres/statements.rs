//! The statements for the server.

use std::fmt::{self, Display};

use crate::backends::sql::row::{Stated, column, millis};
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

/// Bytes as a literal.
struct Bytes<'a>(&'a [u8]);

impl Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("E'\\\\x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("'::bytea")
    }
}

fn or_null(text: Option<String>) -> String {
    text.map_or_else(|| "NULL".to_owned(), |text| Text(&text).to_string())
}

/// A number of milliseconds, as an interval.
struct Millis(i64);

impl Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} * interval '1 millisecond'", self.0)
    }
}

/// The history of the server and of its tables, its present start included. Once it is another one,
/// what was read before may be lost.
const HISTORY: &str = "(SELECT concat_ws('/', incumbent_incarnation(),
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
    (extract(epoch FROM created_at) * 1000000)::bigint) FROM incumbent_settings)";

pub(super) fn load_checkpoint(name: &str) -> String {
    let name = Text(name);
    format!("SELECT version, content FROM incumbent_checkpoints WHERE name = {name}")
}

pub(super) fn store_checkpoint(
    name: &str,
    content: &[u8],
    version: i64,
    expected: Option<i64>,
) -> String {
    let (name, content) = (Text(name), Bytes(content));
    match expected {
        None => format!(
            "INSERT INTO incumbent_checkpoints (name, version, content)
            VALUES ({name}, {version}, {content}) ON CONFLICT (name) DO NOTHING
            RETURNING version AS revision"
        ),
        Some(expected) => format!(
            "UPDATE incumbent_checkpoints
            SET version = {version}, content = {content}, written_at = clock_timestamp()
            WHERE name = {name} AND version = {expected} RETURNING version AS revision"
        ),
    }
}

/// A server that was started since a row was written may run on files that lack later writes. What
/// such a row says is trusted only once every lease of before the start is over.
///
/// The server's clock may be stepped: it proves the end of no lease before a second, which NATS
/// waits as well. Whoever has watched a shorter one counts it by its own clock.
pub(super) fn read(name: &str) -> String {
    format!(
        "SELECT pg_is_in_recovery() AS replica, s.version,
            ceil(extract(epoch FROM s.longest_lease) * 1000)::bigint AS longest_ms,
            t.trusted AND s.created_at + s.longest_lease < clock_timestamp() AS settled,
            s.created_at + s.longest_lease + interval '1 hour' < clock_timestamp() AS old,
            s.incarnation IS NOT DISTINCT FROM incumbent_incarnation() AS same_tables,
            {HISTORY} AS history,
            CASE WHEN t.trusted THEN e.previous END AS previous, e.conceded, e.revision, e.holder, e.advertised, e.token, e.nonce, e.write,
            CASE WHEN t.trusted THEN e.released_by END AS released_by, e.released_cause, e.released_to,
            floor(extract(epoch FROM e.acquired_at) * 1000)::bigint AS acquired_ms,
            ceil(extract(epoch FROM e.lease_duration) * 1000)::bigint AS lease_ms,
            ceil(extract(epoch FROM e.released_left) * 1000)::bigint AS left_ms,
            e.renewed_at + {waited} < clock_timestamp() AND t.trusted
                AND e.incarnation IS NOT DISTINCT FROM incumbent_incarnation() AS expired,
            CASE WHEN e.holder IS NOT NULL AND NOT t.trusted THEN greatest(0, ceil(extract(epoch FROM
                pg_postmaster_start_time() + {waited} - clock_timestamp()) * 1000))::bigint END AS may_lead_ms,
            e.incarnation IS NOT DISTINCT FROM incumbent_incarnation() AS same_history
        FROM incumbent_settings s LEFT JOIN incumbent_elections e ON e.name = {name}
            CROSS JOIN LATERAL (SELECT coalesce(e.started = pg_postmaster_start_time(), false)
                OR pg_postmaster_start_time() + s.longest_lease < clock_timestamp() AS trusted) t",
        waited = "greatest(e.lease_duration, interval '1 second')",
        name = Text(name)
    )
}

/// Writes may be lost, such as one that was `seen`. From here on, only one fact of the past counts:
/// another process may lead.
pub(super) fn forget(name: &str, revision: u64, seen: u64) -> String {
    format!(
        "UPDATE incumbent_elections SET holder = NULL, renewed_at = clock_timestamp(),
            revision = greatest(revision + 1, {after}), token = NULL, nonce = NULL,
            write = NULL, released_by = NULL, released_left = NULL, released_cause = NULL,
            released_to = NULL, advertised = NULL, incarnation = NULL
        WHERE name = {name} AND revision = {revision}",
        name = Text(name),
        revision = column(revision),
        after = column(seen.saturating_add(1)),
    )
}

/// `sure`: whether the row counts only if it was written on the same history. `read_on`: the
/// history that a create relies on. `seen`: the newest revision that a first write must exceed.
pub(super) fn write(
    name: &str,
    write: &Write,
    sure: bool,
    read_on: Option<&str>,
    seen: u64,
) -> String {
    let holder = Text(&write.identity);
    let nonce = write.mark.write.nonce;
    let number = column(write.mark.write.number);
    let lease = Millis(millis(write.ttl.max(write.mark.lease)));
    let advertised = or_null(Stated::of(write).column());
    let name = Text(name);
    // On another history there may have been another row, which is lost.
    let on_history = read_on.map(|history| format!("{HISTORY} = {}", Text(history)));
    match (write.expected, write.mark.token) {
        (None, _) => format!(
            "INSERT INTO incumbent_elections (name, holder, acquired_at, lease_duration,
                revision, token, nonce, write, advertised)
            SELECT {name}, {holder}, clock_timestamp(), {lease}, {after}, {after},
                '{nonce}', {number}, {advertised}{history}
            ON CONFLICT (name) DO NOTHING RETURNING revision",
            after = column(seen.saturating_add(1)),
            history = on_history.map_or(String::new(), |on| format!(" WHERE {on}")),
        ),
        (Some(expected), token) => {
            let term = match token {
                Some(token) => format!("token = {}", column(token.0)),
                // A term that its holder does not know of begins again, without a change of the
                // leader.
                None => format!(
                    "token = revision + 1, acquired_at = clock_timestamp(),
                    transitions = transitions + (nonce IS DISTINCT FROM '{nonce}')::integer"
                ),
            };
            format!(
                "UPDATE incumbent_elections SET holder = {holder}, {term},
                    renewed_at = clock_timestamp(), lease_duration = {lease},
                    revision = revision + 1, nonce = '{nonce}', write = {number},
                    released_by = NULL, released_left = NULL, released_cause = NULL,
                    released_to = NULL, advertised = {advertised}
                WHERE name = {name} AND revision = {expected}{same}{history} RETURNING revision",
                expected = column(expected.0),
                same = on_same_history(sure),
                history = on_history.map_or(String::new(), |on| format!(" AND {on}")),
            )
        }
    }
}

pub(super) fn release(name: &str, release: &Release, sure: bool) -> String {
    format!(
        "UPDATE incumbent_elections SET holder = NULL, renewed_at = clock_timestamp(),
            revision = revision + 1, token = NULL, nonce = NULL, write = NULL,
            released_by = '{by}', released_left = {left}, released_cause = {cause}, released_to = {to},
            advertised = {stated}
        WHERE name = {name} AND revision = {expected}{history} RETURNING revision",
        by = release.by,
        stated = or_null(Stated::of_release(release).column()),
        left = Millis(millis(release.left)),
        cause = Text(&cause_label(release.cause)),
        to = release.to.map_or_else(|| "NULL".to_owned(), |to| format!("'{to}'")),
        name = Text(name),
        expected = column(release.expected.0),
        history = on_same_history(sure),
    )
}

pub(super) const NAMES: &str = "SELECT name FROM incumbent_elections ORDER BY name";

fn on_same_history(sure: bool) -> &'static str {
    if sure { " AND incarnation IS NOT DISTINCT FROM incumbent_incarnation()" } else { "" }
}

/// Writes the notice into the row, so that only a role with the permission to update the row can
/// send it.
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
