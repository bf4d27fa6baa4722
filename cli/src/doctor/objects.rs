//! Checks of a bucket of object storage.

use std::time::Instant;

use incumbent::lock::{Lock, LockAdmin, LockError, LockErrorKind};
use incumbent::object_storage::{Bucket, BucketFacts};
use incumbent::protocol::TimingOptions;
use time::OffsetDateTime;

use super::context::CheckContext;
use super::context::Role::{self, Administrator, Candidate, Observer};
use super::report::Report;
use super::rights::{self, MissingRights, UNUSED_NAME};
use super::server;
use crate::error::one_line;
use crate::error::{CliError, Code};
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
    let mut lacking = Vec::new();
    match lock.read(context.name.unwrap_or(UNUSED_NAME), context.timeout).await {
        Ok(_) => report.ok(STORE, "reachable and readable"),
        Err(error) if is_a_right(&error) => lacking.push(Right::Get(one_line(&error))),
        Err(error) => {
            report.error(STORE, one_line(&error));
            return Ok(());
        }
    }
    let mut spans = vec![start.elapsed()];
    match lock.names(context.timeout).await {
        Ok(_) => {}
        Err(error) if is_a_right(&error) => lacking.push(Right::List(one_line(&error))),
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
            Err(error) if is_a_right(&error) => lacking.push(Right::Put(one_line(&error))),
            Err(error) => report.error(CONDITIONS, one_line(&error)),
        }
        server::clock(offset, "deadlines that Go's candidates read do", report);
    }
    spans.sort_unstable();
    let options = TimingOptions { lease: context.lease, ..Default::default() };
    server::round_trip(&spans, lock.capabilities().timing(options), report);
    if !tried {
        report.unknown(rights::CHECK, "rights to write: nothing is written for an observer");
    }
    for of in [Observer, Candidate, Administrator] {
        if tried || of == Observer {
            missing(of, &lacking).report(of, context.role, report);
        }
    }
    Ok(())
}

/// A missing permission, with the message of the store.
enum Right {
    Get(String),
    List(String),
    Put(String),
}

fn missing(of: Role, lacking: &[Right]) -> MissingRights {
    let (mut needed, mut useful) = (Vec::new(), Vec::new());
    for right in lacking {
        match right {
            Right::Get(why) => needed.push(format!("reading objects ({why})")),
            Right::Put(why) if of != Observer => needed.push(format!("writing objects ({why})")),
            Right::Put(_) => {}
            Right::List(_) if of == Candidate => {} // candidates do not list
            Right::List(why) => useful.push(format!("listing objects ({why})")),
        }
    }
    let fix = "see docs/object-storage.md for the required rights".to_owned();
    MissingRights {
        needed: needed.join(", "),
        useful: useful.join(", "),
        fix_needed: fix.clone(),
        fix_useful: fix,
    }
}

fn is_a_right(error: &LockError) -> bool {
    error.kind() == LockErrorKind::Denied
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
