//! Rules of the locks in databases.

use super::{Mutation, edit};
use crate::instrument::Instrument::Databases;

pub(super) const OF_DATABASES: &[Mutation] = &[
    Mutation {
        name: "PostgreSQL: a write goes over whatever stands there",
        edits: &[edit(
            "src/sql/postgres/statements.rs",
            "advertised = {advertised}, incarnation = incumbent_incarnation()\n                WHERE name = {name} AND revision = {expected}{history} RETURNING revision",
            "advertised = {advertised}, incarnation = incumbent_incarnation()\n                WHERE name = {name} AND {expected} > 0{history} RETURNING revision",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a row of before a failover counts",
        edits: &[edit(
            "src/sql/postgres/lock.rs",
            "if found.same_history && row.revision >= seen {",
            "if row.revision >= seen {",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a row that is missing after a failover proves that there was none",
        edits: &[edit(
            "src/sql/postgres/lock.rs",
            "let proof = (self.opened.made || found.settled) && is_whole;",
            "let proof = (self.opened.made || found.settled) && (is_whole || self.listens);",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a first write rests on a look from before a failover",
        edits: &[edit(
            "src/sql/postgres/statements.rs",
            "empty_on.filter(|_| sure)",
            "empty_on.filter(|_| !sure)",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "SQLite: a write goes over whatever stands there",
        edits: &[edit(
            "src/sql/sqlite/statements.rs",
            "WHERE name = ?1 AND revision = ?9 RETURNING revision",
            "WHERE name = ?1 AND ?9 > 0 RETURNING revision",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "SQLite: a lease of before a restart of the machine goes on",
        edits: &[edit(
            "src/sql/sqlite/machine.rs",
            "if then.boot != now.boot {",
            "if then.boot != now.boot && !alone {",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "SQLite: a backup that is put back counts",
        edits: &[edit(
            "src/sql/sqlite/lock.rs",
            "if row.revision >= seen {",
            "if row.revision >= seen || row.revision > 0 {",
        )],
        noticed_by: &[Databases],
    },
];
