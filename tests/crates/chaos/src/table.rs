//! The table at the end of a run.

use crate::checker::FaultReport;
use crate::fault::TABLE;
use crate::run::Outcome;

/// How many broken promises are spelt out.
const SHOWN: usize = 10;

/// Says what a run came to: a line for each fault, then what was wrong.
pub fn print(outcome: &Outcome, say: &mut impl FnMut(&str)) {
    let report = &outcome.report;
    say("");
    say(&format!(
        "{:<34} {:>5} {:>5} {:>10} {:>7} {:>11} {:>7}  {}",
        "fault", "times", "terms", "overlap ms", "told ms", "longest gap", "refused", "causes"
    ));
    for entry in TABLE {
        if let Some(row) = report.faults.get(entry.name) {
            say(&line(row));
        }
    }
    for (name, why) in &outcome.not_run {
        say(&format!("{name:<34} not run: {why}"));
    }
    let times: u64 = report.faults.values().map(|row| row.times).sum();
    say("");
    say(&format!(
        "{times} faults, {} terms, {} lines of log; {} broken promises, {} failures",
        report.terms,
        report.lines,
        report.violations.len(),
        outcome.failures.len()
    ));
    let crate::checker::Replays { histories, events, actions, torn, cut } = &report.replays;
    say(&format!(
        "{histories} histories replayed, {events} events, {actions} actions; {torn} torn, {cut} cut"
    ));
    for violation in report.violations.iter().take(SHOWN) {
        let at = std::time::Duration::from_nanos(violation.t).as_secs_f64();
        say(&format!("VIOLATION at {at:.6}: {}", violation.text));
    }
    if report.violations.len() > SHOWN {
        say(&format!("and {} more", report.violations.len() - SHOWN));
    }
    for failure in &outcome.failures {
        say(&format!("FAILURE: {failure}"));
    }
}

fn line(row: &FaultReport) -> String {
    let millis = |nanos: u64| nanos.div_ceil(1_000_000);
    let gap = std::time::Duration::from_nanos(row.gap).as_secs_f64();
    let causes: Vec<_> =
        row.causes.iter().map(|(cause, times)| format!("{cause} {times}")).collect();
    format!(
        "{:<34} {:>5} {:>5} {:>10} {:>7} {:>9.1} s {:>7}  {}",
        row.fault,
        row.times,
        row.terms,
        millis(row.overlap),
        millis(row.told_overlap),
        gap,
        row.refused,
        causes.join(", ")
    )
}
