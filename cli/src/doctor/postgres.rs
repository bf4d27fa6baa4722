//! Checks of a PostgreSQL database.

use std::time::Duration;

use incumbent::protocol::{Timing, TimingOptions};
use incumbent::sql::{PostgresFacts, PostgresProbe, TableFacts, TablePermission, TableSetup};

use super::context::CheckContext;
use super::context::Role::{Administrator, Candidate};
use super::permissions::{self, Need, ROLES, report_missing};
use super::report::Report;
use super::server::{self, Samples};
use crate::error::one_line;
use crate::output::text::printable;

const SERVER: &str = "server";
const TABLES: &str = "tables";
const HINTS: &str = "hints";

/// The oldest supported server.
const OLDEST: i32 = 120_000;
/// How long a notification may take; candidates wait for as long.
const MAX_DELAY: Duration = Duration::from_secs(5);
/// The file that creates the tables.
const FILE: &str = "deploy/postgres.sql";

/// Checks the server, then the tables.
pub async fn check(
    probe: &PostgresProbe,
    tables: TableSetup,
    context: CheckContext<'_>,
    report: &mut Report,
) {
    // The first duration includes the connection, and gives the least accurate clock.
    let clock = |facts: &PostgresFacts| Some((facts.clock.into(), time::Duration::ZERO));
    let ask = async || probe.server(context.timeout).await;
    let (asked, ended) = Samples::take(ask, clock).await;
    if let Err(error) = ended {
        return report.error(SERVER, one_line(&error));
    }
    let Some(facts) = asked.last else { return };
    let writable = check_facts(&facts, report);
    server::clock(asked.offset, "times that psql shows do", report);
    let found = probe.tables(context.timeout).await;
    let longest = found.as_ref().ok().and_then(|found| found.max_lease);
    let options = TimingOptions { lease: context.lease, ..Default::default() };
    let max_lease = longest.unwrap_or(tables.lease_if_created());
    let timing = Timing::new(options, max_lease);
    server::short_lease(&timing, max_lease, report);
    server::round_trip(&asked.spans, timing, report);
    match found {
        Err(error) => report.error(TABLES, one_line(&error)),
        Ok(found) => {
            let may_make = tables.creates() && writable;
            check_tables(&found, may_make, report);
            check_table_rights(&found, context, report);
        }
    }
    durability(&facts, report);
    if let percent @ 1.. = facts.notification_queue_percent {
        report.warning(
            HINTS,
            format!("{percent} % of the queue of notifications is in use, and once it is full every write of an election fails: a client that listens does not read; find it in pg_stat_activity by wait_event = 'ClientWrite', and end it with pg_terminate_backend"),
        );
    }
    if writable {
        hints(probe, context.timeout, report).await;
    }
}

/// Whether elections can be held there.
fn check_facts(facts: &PostgresFacts, report: &mut Report) -> bool {
    let named = format!("PostgreSQL {}", printable(&facts.version));
    if facts.version_number < OLDEST {
        report.error(SERVER, format!("{named} is not supported; upgrade to 12 or later"));
    } else if facts.replica {
        let fix = "use an address that follows the primary";
        report.error(
            SERVER,
            format!("{named}, a replica or in recovery: elections are held on the primary; {fix}"),
        );
    } else {
        report.ok(SERVER, format!("{named}, a primary"));
    }
    !facts.replica
}

fn check_tables(found: &TableFacts, may_make: bool, report: &mut Report) {
    let fix = format!("run {FILE} as a user that may create tables");
    match (&found.schema, &found.first_schema) {
        (Some(schema), _) if found.complete => {
            let schema = printable(schema);
            report.ok(TABLES, format!("complete, in schema {schema}"));
            if let Some(older @ 1..) = found.older_than_start {
                report.ok(
                    TABLES,
                    format!("{older} elections were last written before the server was started; if its files were restored from a base backup or a snapshot, have their owner run SELECT incumbent_restored()"),
                );
            }
            if found.reports_history == Some(false) {
                report.warning(
                    TABLES,
                    "the server's timeline is not readable, so a failover that loses writes is not noticed; grant EXECUTE on pg_control_system to the owner of the tables",
                );
            }
            if found.reports_history == Some(true) && found.created_here == Some(false) {
                report.warning(
                    TABLES,
                    "they were created before a failover or on another server, so the first term of each new election waits for the maximum lease; once that time has passed, have their owner UPDATE incumbent_settings SET incarnation = incumbent_incarnation()",
                );
            }
        }
        (Some(schema), _) => {
            let schema = printable(schema);
            report.error(
                TABLES,
                format!("a table, a function or a trigger is missing in schema {schema}; {fix}"),
            );
        }
        (None, Some(schema)) if found.may_create && may_make => {
            let schema = printable(schema);
            report.ok(
                TABLES,
                format!("none yet: the first candidate creates them, in schema {schema}"),
            );
        }
        (None, None) => {
            report.error(
                TABLES,
                "none, and no schema of the search_path exists; create it, or set another",
            );
        }
        (None, Some(_)) => {
            report.error(TABLES, format!("none, and this user may not create them; {fix}"))
        }
    }
}

fn check_table_rights(found: &TableFacts, context: CheckContext<'_>, report: &mut Report) {
    if found.schema.is_none() {
        return report.unknown(permissions::CHECK, "rights on tables that do not exist");
    }
    let checkpoint = context.checkpoint.then_some(&found.lacking_for_checkpoints);
    let missing = found.lacking.iter().chain(checkpoint.into_iter().flatten()).map(|permission| {
        let needed_by = match permission.verb {
            "SELECT" => &ROLES[..],
            "INSERT" => &[Candidate], // an administrator evicts
            _ => &[Candidate, Administrator],
        };
        Need { permission, needed_by, useful_to: &[] }
    });
    let missing: Vec<_> = missing.collect();
    let name =
        |permission: &&TablePermission| format!("{} on {}", permission.verb, permission.table);
    let fix = |permissions: &[&&TablePermission]| {
        let grants = permissions
            .iter()
            .map(|permission| format!("GRANT {} ON {} TO …", permission.verb, permission.table));
        grants.collect::<Vec<_>>().join("; ")
    };
    report_missing(&missing, (&ROLES, context.role), name, fix, report);
}

/// Whether acknowledged writes are kept; see docs/sql.md.
fn durability(facts: &PostgresFacts, report: &mut Report) {
    const CHECK: &str = "durability";
    let waits = !facts.synchronous_standby_names.is_empty();
    if !facts.syncs {
        report.warning(
            CHECK,
            "fsync is off: a crash of the machine may lose acknowledged writes, and then two may lead; turn it on",
        );
    }
    let commit = facts.synchronous_commit.as_str();
    match (facts.replicas, waits) {
        (0, false) if facts.syncs => report.ok(CHECK, "writes are synced to disk, and there is no replica"),
        (0, false) => {}
        (0, true) => report.warning(
            CHECK,
            "synchronous_standby_names is set without a replica: no write is acknowledged; start a replica",
        ),
        (_, true) if ["on", "remote_apply"].contains(&commit) => {
            report.ok(CHECK, format!("replicas have every acknowledged write (synchronous_commit = {commit})"));
        }
        (replicas, true) => report.warning(
            CHECK,
            format!("{replicas} replicas may lack acknowledged writes (synchronous_commit = {commit}); set it to remote_apply"),
        ),
        (replicas, false) => report.warning(
            CHECK,
            format!(
                "{replicas} asynchronous replicas: a failover ends the term, and the next leader waits for the maximum lease; set synchronous_standby_names"
            ),
        ),
    }
}

async fn hints(probe: &PostgresProbe, timeout: Duration, report: &mut Report) {
    match probe.receives_notifications(timeout.min(MAX_DELAY)).await {
        Ok(true) => report.ok(HINTS, "notifications arrive (LISTEN)"),
        Ok(false) => report.warning(
            HINTS,
            "notifications do not arrive, as behind a pooler in transaction mode: standbys poll; connect to the server itself, or ignore this",
        ),
        Err(error) => report.warning(HINTS, format!("standbys poll: {}", one_line(&error))),
    }
}
