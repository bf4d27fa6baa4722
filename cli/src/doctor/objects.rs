//! Checks of a bucket of object storage.

use std::time::Instant;

use incumbent::lock::{Lock, LockAdmin, LockError};
use incumbent::object_storage::{Bucket, BucketFacts};
use incumbent::protocol::TimingOptions;
use time::OffsetDateTime;

use super::context::CheckContext;
use super::context::Role::{Administrator, Candidate, Observer};
use super::permissions::{self, Need, ROLES, is_denied, report_missing};
use super::report::Report;
use super::server;
use crate::error::one_line;
use crate::error::{CliError, Code};
use crate::lock::UNUSED_NAME;
use crate::output::time_format;

const STORE: &str = "store";
const CONDITIONS: &str = "conditions";

/// Checks the store by reading, and for roles that write, by writing to an object of its own.
pub async fn check(
    bucket: &Bucket,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    let lock = bucket.lock();
    let wrong = |rule| CliError::new(Code::Usage, rule);
    context.name.map_or(Ok(()), |name| lock.check_name(name)).map_err(wrong)?;
    let start = Instant::now();
    let mut missing = Vec::new();
    let mut lacks = |verb: &str, error: &LockError, needed_by, useful_to| {
        let permission = format!("{verb} objects ({})", one_line(error));
        missing.push(Need { permission, needed_by, useful_to });
    };
    match lock.read(context.name.unwrap_or(UNUSED_NAME), context.timeout).await {
        Ok(_) => report.ok(STORE, "reachable and readable"),
        Err(error) if is_denied(&error) => lacks("reading", &error, &ROLES, &[]),
        Err(error) => {
            report.error(STORE, one_line(&error));
            return Ok(());
        }
    }
    let mut spans = vec![start.elapsed()];
    match lock.names(context.timeout).await {
        Ok(_) => {}
        // Candidates do not list.
        Err(error) if is_denied(&error) => {
            lacks("listing", &error, &[], &[Observer, Administrator]);
        }
        Err(error) => report.error(STORE, one_line(&error)),
    }
    let tried = context.role != Observer;
    let mut offset = None;
    if tried {
        let asked_at = OffsetDateTime::now_utc();
        let began = Instant::now();
        match bucket.probe(context.timeout).await {
            Ok(facts) => {
                check_facts(&facts, report);
                // Some stores have times in whole seconds; the write lies within the probe.
                if let Some(theirs) = facts.clock.and_then(time_format::from_system) {
                    offset = Some(server::clock_offset(theirs, asked_at, began.elapsed()));
                }
                spans = facts.spans;
            }
            Err(error) if is_denied(&error) => {
                lacks("writing", &error, &[Candidate, Administrator], &[]);
            }
            Err(error) => report.error(CONDITIONS, one_line(&error)),
        }
        server::clock(offset, "deadlines that Go's candidates read do", report);
    }
    spans.sort_unstable();
    let options = TimingOptions { lease: context.lease, ..Default::default() };
    server::round_trip(&spans, lock.capabilities().timing(options), report);
    if !tried {
        report.unknown(permissions::CHECK, "rights to write: nothing is written for an observer");
    }
    let roles = if tried { &ROLES[..] } else { &[Observer] };
    let fix = |_: &[&String]| "see docs/object-storage.md for the required rights".to_owned();
    report_missing(&missing, (roles, context.role), String::clone, fix, report);
    Ok(())
}

fn check_facts(facts: &BucketFacts, report: &mut Report) {
    let both = [(facts.refuses_to_create, "If-None-Match"), (facts.refuses_to_replace, "If-Match")];
    let ignored: Vec<_> = both.iter().filter(|(refuses, _)| !refuses).map(|(_, of)| *of).collect();
    match ignored.as_slice() {
        [] => report.ok(CONDITIONS, "conditional writes are refused when they must be"),
        ignored => report.error(
            CONDITIONS,
            format!(
                "the store ignores {}: every candidate would lead; use a store that supports it",
                ignored.join(" and ")
            ),
        ),
    }
    if let Some(why) = &facts.left {
        let fix = "delete it by hand; elections need no right to delete";
        report.warning(
            CONDITIONS,
            format!("the test object {UNUSED_NAME} was not deleted: {}; {fix}", one_line(why)),
        );
    }
}
