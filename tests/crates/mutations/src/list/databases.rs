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
        name: "PostgreSQL: a row that is missing after a failover proves that there was none",
        edits: &[edit(
            "src/backends/sql/postgres/lock.rs",
            "let proof = (created || found.settled) && is_whole;",
            "let proof = (created || found.settled) && (is_whole || self.listens);",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a first write relies on a read from before a failover",
        edits: &[edit(
            "src/backends/sql/postgres/statements.rs",
            "history = on_history.map_or(String::new(), |on| format!(\" WHERE {on}\")),",
            "history = on_history.map_or(String::new(), |_| String::new()),",
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
        name: "SQLite: another boot identifier is a restart of the machine",
        edits: &[edit(
            "src/backends/sql/sqlite/boot_id.rs",
            "if then.boot != now.boot {\n        return None;",
            "if then.boot != now.boot {\n        return Some(true);",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "SQLite: a file is used under several names",
        edits: &[edit("src/backends/sql/sqlite/names.rs", "(self.names > 1)", "(self.names > 9)")],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "SQLite: a file that is mounted by itself is used",
        edits: &[edit(
            "src/backends/sql/sqlite/names.rs",
            "if self.mounted {",
            "if self.mounted && false {",
        )],
        noticed_by: &[Databases],
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
        name: "PostgreSQL: each role sees the server by its own rights",
        edits: &[edit("deploy/postgres.sql", "SECURITY DEFINER", "SECURITY INVOKER")],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a row that is missing in a dump that was read in proves that there was none",
        edits: &[edit(
            "src/backends/sql/postgres/lock.rs",
            "found.same_tables || (self.synchronous && found.old);",
            "found.same_tables || self.synchronous || found.old;",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a first write relies on a read of another election",
        edits: &[edit(
            "src/backends/sql/postgres/basis.rs",
            "state.changed && !state.refused.contains(&campaign.0);",
            "state.changed && state.refused.len() > MAX_ELECTORS + usize::from(campaign.0 == 0);",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a server that takes over numbers first writes by its clock alone",
        edits: &[edit("deploy/postgres.sql", "+ 1000000000 *", "+ 0 *")],
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
        name: "PostgreSQL: the clock of one server judges what was written by another's",
        edits: &[edit(
            "src/backends/sql/postgres/statements.rs",
            "AND e.incarnation IS NOT DISTINCT FROM incumbent_incarnation() AS expired,",
            "AS expired,",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a row of before the server's start counts at once",
        edits: &[edit(
            "src/backends/sql/postgres/statements.rs",
            "OR pg_postmaster_start_time() + s.longest_lease < clock_timestamp() AS trusted",
            "OR true AS trusted",
        )],
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
