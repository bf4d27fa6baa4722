//! Rules of the locks in databases.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Databases, Differential};

pub(super) const OF_DATABASES: &[Mutation] = &[
    Mutation {
        name: "PostgreSQL: a write is unconditional",
        edits: &[edit(
            "src/backends/sql/postgres/statements.rs",
            "advertised = {advertised}\n                WHERE name = {name} AND revision = {expected}{same}{history} RETURNING revision",
            "advertised = {advertised}\n                WHERE name = {name} AND {expected} > 0{same}{history} RETURNING revision",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a row of before a failover counts",
        edits: &[edit(
            "src/backends/sql/postgres/lock.rs",
            "if found.same_history && row.revision >= seen {",
            "if row.revision >= seen {",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "SQLite: a write is unconditional",
        edits: &[edit(
            "src/backends/sql/sqlite/statements.rs",
            "WHERE name = ?1 AND revision = ?9 RETURNING revision",
            "WHERE name = ?1 AND ?9 > 0 RETURNING revision",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "PostgreSQL: a renewal that is visible and not replicated extends the term",
        edits: &[edit(
            "src/backends/sql/postgres/lock.rs",
            "fn reads_are_durable(&self) -> bool {\n        !self.synchronous",
            "fn reads_are_durable(&self) -> bool {\n        !self.synchronous || self.synchronous",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a write runs the functions of strangers",
        edits: &[edit(
            "deploy/postgres.sql",
            "incumbent_tell() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp",
            "incumbent_tell() RETURNS trigger LANGUAGE plpgsql",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: two primaries give out one revision",
        edits: &[
            edit("deploy/postgres.sql", "OLD.revision + 1000000 *", "OLD.revision + 0 *"),
            edit("deploy/postgres.sql", "1000000000 * (timeline - 1)", "0 * (timeline - 1)"),
        ],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a create relies on what was read before the server's start",
        edits: &[edit(
            "src/backends/sql/postgres/statements.rs",
            "history = on_history.map_or(String::new(), |on| format!(\" AND {on}\")),",
            "history = on_history.map_or(String::new(), |_| String::new()),",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: an entry of before the server's start is replaced at once",
        edits: &[edit(
            "src/backends/sql/postgres/basis.rs",
            "if Some(held) == expected && Instant::now() < until => {",
            "if Some(held) == expected && Instant::now() > until + std::time::Duration::from_secs(9999) => {",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a restored server gives out the revisions of before again",
        edits: &[edit(
            "deploy/postgres.sql",
            " AND OLD.started = pg_postmaster_start_time() THEN",
            " THEN",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a restore that an operator states moves no revision on",
        edits: &[edit(
            "deploy/postgres.sql",
            "advertised = NULL, incarnation = NULL;",
            "advertised = NULL;",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "SQLite: a backup that is put back counts",
        edits: &[edit(
            "src/backends/sql/sqlite/lock.rs",
            "if row.revision >= seen {",
            "if row.revision >= seen || row.revision > 0 {",
        )],
        noticed_by: &[Databases],
    },
];
