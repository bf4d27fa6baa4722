//! The statements for SQLite.

pub(super) const SCHEMA: &str = include_str!("schema.sql");

/// The revision of a first write, or of one after which the past is unknown: greater than all
/// earlier ones, as long as the writes to an election have not averaged a thousand per second or
/// more.
macro_rules! after_all {
    () => {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    };
}

macro_rules! wall_clock {
    () => {
        "strftime('%Y-%m-%dT%H:%M:%fZ')"
    };
}

pub(super) const SETTINGS: &str =
    "SELECT version, longest_lease_ms, boot, boot_ms FROM incumbent_settings";

pub(super) const SETTLE: &str = concat!(
    "INSERT INTO incumbent_settings (single, version, longest_lease_ms, created_at, boot, boot_ms)
    VALUES (1, 1, ?1, ",
    wall_clock!(),
    ", ?2, ?3) ON CONFLICT (single) DO NOTHING"
);

pub(super) const READ: &str =
    "SELECT revision, holder, advertised, token, nonce, write, released_by, released_cause, released_to,
        CAST(round(unixepoch(acquired_at, 'subsec') * 1000) AS INTEGER) AS acquired_ms,
        lease_duration_ms AS lease_ms, released_left_ms AS left_ms, boot, boot_ms
    FROM incumbent_elections WHERE name = ?1";

/// Value: the names, as a JSON array.
pub(super) const REVISIONS: &str = "SELECT name, revision FROM incumbent_elections
    WHERE name IN (SELECT value FROM json_each(?1))";

/// Values: name, holder, lease, nonce, write, boot, boot_ms, advertised.
pub(super) const CREATE: &str = concat!(
    "INSERT INTO incumbent_elections (name, holder, acquired_at, renewed_at, lease_duration_ms,
        revision, token, nonce, write, boot, boot_ms, advertised)
    SELECT ?1, ?2, now, now, ?3, first, first, ?4, ?5, ?6, ?7, ?8
    FROM (SELECT ",
    after_all!(),
    " AS first, ",
    wall_clock!(),
    " AS now) WHERE true ON CONFLICT (name) DO NOTHING RETURNING revision"
);

/// Values: name, holder, lease, nonce, write, boot, boot_ms, advertised, expected, token (`NULL`: a
/// term begins).
pub(super) const WRITE: &str = concat!(
    "UPDATE incumbent_elections SET holder = ?2, renewed_at = ",
    wall_clock!(),
    ", acquired_at = CASE WHEN ?10 IS NULL THEN ",
    wall_clock!(),
    " ELSE acquired_at END, lease_duration_ms = ?3, token = coalesce(?10, revision + 1),
        transitions = transitions + (?10 IS NULL AND nonce IS NOT ?4),
        revision = revision + 1, nonce = ?4, write = ?5, released_by = NULL,
        released_left_ms = NULL, released_cause = NULL, released_to = NULL, advertised = ?8, boot = ?6, boot_ms = ?7
    WHERE name = ?1 AND revision = ?9 RETURNING revision"
);

/// Values: name, expected, by, left, cause, boot, boot_ms, to, advertised.
pub(super) const RELEASE: &str = concat!(
    "UPDATE incumbent_elections SET holder = NULL, renewed_at = ",
    wall_clock!(),
    ", revision = revision + 1, token = NULL, nonce = NULL, write = NULL, released_by = ?3,
        released_left_ms = ?4, released_cause = ?5, released_to = ?8, advertised = ?9, boot = ?6, boot_ms = ?7
    WHERE name = ?1 AND revision = ?2 RETURNING revision"
);

/// The row is older than one that was seen: an older copy was restored. From here on, only one fact
/// of the past counts: another process may lead. Values: name, expected, seen.
pub(super) const FORGET: &str = concat!(
    "UPDATE incumbent_elections SET holder = NULL, renewed_at = ",
    wall_clock!(),
    ", revision = max(?3, revision + 1000000, ",
    after_all!(),
    "), token = NULL, nonce = NULL, write = NULL, released_by = NULL, released_left_ms = NULL,
        released_cause = NULL, released_to = NULL, boot = NULL, boot_ms = NULL
    WHERE name = ?1 AND revision = ?2 RETURNING revision"
);

pub(super) const LOAD_CHECKPOINT: &str =
    "SELECT version, content FROM incumbent_checkpoints WHERE name = ?1";

/// Values: name, version, content.
pub(super) const CREATE_CHECKPOINT: &str = concat!(
    "INSERT INTO incumbent_checkpoints (name, version, content, written_at)
    VALUES (?1, ?2, ?3, ",
    wall_clock!(),
    ") ON CONFLICT (name) DO NOTHING RETURNING version AS revision"
);

/// Values: name, version, content, expected.
pub(super) const STORE_CHECKPOINT: &str = concat!(
    "UPDATE incumbent_checkpoints SET version = ?2, content = ?3, written_at = ",
    wall_clock!(),
    " WHERE name = ?1 AND version = ?4 RETURNING version AS revision"
);

pub(super) const NAMES: &str = "SELECT name FROM incumbent_elections ORDER BY name";
