//! Checks of a SQLite file.

use std::path::Path;

use incumbent::protocol::{Timing, TimingOptions};
use incumbent::sql::{Sqlite, SqliteFacts, TableSetup};

use super::context::CheckContext;
use super::context::Role::{Administrator, Candidate};
use super::permissions::{Need, ROLES, report_missing};
use super::report::Report;
use super::server::{self, Samples};
use crate::error::one_line;
use crate::output::{directory_of, time_format};

const FILE: &str = "file";

/// Too little for the file and its journal, and little enough for a warning.
const TOO_LITTLE: u64 = 1 << 20;
const LITTLE: u64 = 16 << 20;

/// Checks the file and its directory.
pub async fn check(
    path: &Path,
    tables: TableSetup,
    context: CheckContext<'_>,
    report: &mut Report,
) {
    let ask = async || Sqlite::facts(path, context.timeout).await;
    let (asked, ended) = Samples::take(ask, |_| None).await;
    if let Err(error) = ended {
        return report.error(FILE, one_line(&error));
    }
    let Some(facts) = asked.last else { return };
    report.ok("sqlite", format!("SQLite {}", facts.version));
    state(path, &facts, tables, report);
    let longest = facts.file.as_ref().and_then(|file| file.max_lease);
    let options = TimingOptions { lease: context.lease, ..Default::default() };
    let max_lease = longest.unwrap_or(tables.lease_if_created());
    let timing = Timing::new(options, max_lease);
    server::short_lease(&timing, max_lease, report);
    server::round_trip(&asked.spans, timing, report);
    let there = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = directory_of(&there);
    permissions(path, directory, &facts, context, report);
    place(&facts, report);
    room(directory, report);
}

/// The file, or that it will be created.
fn state(path: &Path, facts: &SqliteFacts, tables: TableSetup, report: &mut Report) {
    let path = path.display();
    let Some(file) = &facts.file else {
        return match tables.creates() {
            true => report.ok(FILE, format!("no {path} yet: the first candidate creates it")),
            false => {
                report.error(FILE, format!("no {path}: remove create=no, or choose another file"))
            }
        };
    };
    match (file.max_lease, tables.creates()) {
        (Some(longest), _) => {
            report.ok(
                FILE,
                format!(
                    "it has the tables, with a maximum lease of {}",
                    time_format::span(longest)
                ),
            );
        }
        (None, true) => report.ok(FILE, "no tables yet: the first candidate creates them"),
        (None, false) => report.error(FILE, "no tables: remove create=no, or choose another file"),
    }
    if file.journal == "wal" {
        report.ok("journal", "wal");
    } else if !(tables.creates() && file.unwritable.is_none()) {
        let what = format!(
            "{}: readers block writers, and a renewal may be late; set it with PRAGMA journal_mode = WAL",
            file.journal
        );
        report.warning("journal", what);
    }
}

/// Readers need the directory too: SQLite has shared files beside the database.
fn permissions(
    path: &Path,
    directory: &Path,
    facts: &SqliteFacts,
    context: CheckContext<'_>,
    report: &mut Report,
) {
    let mut lacking = Vec::new();
    if let Some(why) = facts.file.as_ref().and_then(|file| file.unwritable.as_ref()) {
        lacking.push(format!("writing to {} ({})", path.display(), one_line(why)));
    }
    // An unnamed file, which disappears when it is closed.
    if let Err(why) = tempfile::tempfile_in(directory) {
        lacking.push(format!("creating files in {} ({why})", directory.display()));
    }
    let need =
        |permission| Need { permission, needed_by: &[Candidate, Administrator], useful_to: &[] };
    let missing: Vec<_> = lacking.into_iter().map(need).collect();
    let fix = |_: &[&String]| "grant write access to the file and its directory".to_owned();
    report_missing(&missing, (&ROLES, context.role), String::clone, fix, report);
}

fn place(facts: &SqliteFacts, report: &mut Report) {
    const CHECK: &str = "place";
    match &facts.doubtful_file_system {
        None => report.ok(CHECK, "on a file system of this machine"),
        Some(kind) => report.warning(
            CHECK,
            format!("on a file system that may not be local ({kind}): elections are for the processes of one machine, and rely on SQLite's locks; put the file on a local disk"),
        ),
    }
}

fn room(directory: &Path, report: &mut Report) {
    const CHECK: &str = "room";
    let free = match free_bytes(directory) {
        Ok(free) => free,
        Err(why) => return report.unknown(CHECK, format!("{}: {why}", directory.display())),
    };
    let left = format!("{} free on its disk", time_format::size(free));
    let fix = "a leader that cannot renew stops at its deadline; free some space";
    match free {
        ..TOO_LITTLE => report.error(CHECK, format!("{left}: {fix}")),
        TOO_LITTLE..LITTLE => report.warning(CHECK, format!("{left}: {fix}")),
        LITTLE.. => report.ok(CHECK, left),
    }
}

/// The space that this user may still use on the disk.
#[cfg(unix)]
fn free_bytes(directory: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_directory: &Path) -> std::io::Result<u64> {
    Err(std::io::ErrorKind::Unsupported.into())
}
