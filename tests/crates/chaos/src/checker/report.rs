//! The report of the checker.

use std::collections::BTreeMap;

use super::term::{Key, Term};
use super::{Checker, Replays, Window};

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When, on the log's clock.
    pub t: u64,
    /// In or after which fault of the run, counted from 0; none before the first.
    pub fault: Option<usize>,
    /// What.
    pub text: String,
}

/// What one fault did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Its name.
    pub fault: String,
    /// How often it was run.
    pub times: u64,
    /// The terms that began meanwhile.
    pub terms: u64,
    /// The longest time for which two led at once, in nanoseconds.
    pub overlap: u64,
    /// The longest time between "won" and "lost" that two terms had in common, in nanoseconds. Not
    /// a violation: a paused process reports late.
    pub told_overlap: u64,
    /// The longest time without a leader, in nanoseconds.
    pub gap: u64,
    /// Writes that the fenced store refused.
    pub refused: u64,
    /// How terms ended meanwhile.
    pub causes: BTreeMap<String, u64>,
}

/// The report about a log.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Lines read.
    pub lines: u64,
    /// VimeoTiming seen.
    pub terms: u64,
    /// What the histories of the processes came to.
    pub replays: Replays,
    /// Each fault, by name.
    pub faults: BTreeMap<String, FaultReport>,
    /// What was wrong, in the order of time. Empty is good.
    pub violations: Vec<Violation>,
}

pub(super) fn build(checker: &Checker, complete: bool) -> Report {
    let mut report = Report {
        lines: checker.lines,
        terms: u64::try_from(checker.terms.len()).unwrap_or(u64::MAX),
        replays: checker.replays.clone(),
        faults: by_name(&checker.windows),
        violations: checker.found.clone(),
    };
    let mut terms: Vec<_> = checker.terms.iter().filter(|(_, t)| t.signs.is_some()).collect();
    terms.sort_by_key(|(_, term)| term.signs);
    for (key, term) in &terms {
        count(checker, &mut report, term);
        single(checker, &mut report, key, term);
    }
    for (index, (key, term)) in terms.iter().enumerate() {
        let earlier = terms.iter().take(index);
        for (before, other) in earlier.filter(|(_, other)| other.election == term.election) {
            pair(checker, &mut report, (before, other), (key, term));
        }
    }
    if complete {
        for ((who, life), process) in &checker.lives {
            if !process.ended && !process.election.is_empty() {
                let text = format!("{who}/{life}: neither stopped nor was killed");
                report.violations.push(Violation { t: u64::MAX, fault: None, text });
            }
        }
    }
    report.violations.sort_by_key(|violation| violation.t);
    report
}

fn by_name(windows: &[Window]) -> BTreeMap<String, FaultReport> {
    let mut faults = BTreeMap::<String, FaultReport>::new();
    for window in windows {
        let fault = faults.entry(window.fault.clone()).or_default();
        window.fault.clone_into(&mut fault.fault);
        fault.times += 1;
        fault.gap = fault.gap.max(window.gap);
        fault.refused += window.refused;
    }
    faults
}

fn fault_of<'a>(
    checker: &Checker,
    report: &'a mut Report,
    t: u64,
    within: bool,
) -> Option<&'a mut FaultReport> {
    let window = checker.windows.get(checker.fault_at(t)?)?;
    if within && window.end.is_some_and(|end| end < t) {
        return None;
    }
    report.faults.get_mut(&window.fault)
}

fn count(checker: &Checker, report: &mut Report, term: &Term) {
    if let Some((first, _)) = term.signs
        && let Some(fault) = fault_of(checker, report, first, true)
    {
        fault.terms += 1;
    }
    if let Some((t, cause)) = &term.lost
        && let Some(fault) = fault_of(checker, report, *t, true)
    {
        *fault.causes.entry(cause.clone()).or_default() += 1;
    }
}

/// What must hold for each term alone.
fn single(checker: &Checker, report: &mut Report, key: &Key, term: &Term) {
    let Some((first, last)) = term.signs else { return };
    let mut wrong = |t: u64, text: String| {
        let text = format!("{}/{}: {text}", key.who, key.life);
        report.violations.push(Violation { t, fault: checker.fault_at(t), text });
    };
    if let Some((lost, _)) = &term.lost
        && last > *lost
    {
        let late = millis(last - lost);
        wrong(last, format!("led {late} after it was told that it had lost {}", key.token));
    }
    let life = checker.lives.get(&(key.who.clone(), key.life));
    let excused = life.is_none_or(|life| life.killed || !life.ended);
    if !excused && term.won.is_none() {
        wrong(first, format!("led with {} and was never told", key.token));
    }
    if !excused && term.lost.is_none() {
        wrong(last, format!("was never told the end of {}", key.token));
    }
}

/// What must hold for every two terms of an election: the first began first.
fn pair(
    checker: &Checker,
    report: &mut Report,
    (a, first): (&Key, &Term),
    (b, second): (&Key, &Term),
) {
    let (Some((_, last)), Some((begin, end))) = (first.signs, second.signs) else { return };
    if !first.ours && !second.ours {
        return; // Choria's among themselves: no promise of ours
    }
    let fault = checker.fault_at(begin);
    let name = |key: &Key| format!("{}/{} (token {})", key.who, key.life, key.token);
    if begin <= last {
        let overlap = last.min(end) - begin;
        let text = format!("{} and {} led at once for {}", name(a), name(b), millis(overlap));
        report.violations.push(Violation { t: begin, fault, text });
        if let Some(row) = fault_of(checker, report, begin, false) {
            row.overlap = row.overlap.max(overlap).max(1);
        }
    }
    if b.token <= a.token {
        let text = format!("{} led after {}: its token is stale", name(b), name(a));
        report.violations.push(Violation { t: begin, fault, text });
    }
    if let (Some((_, a_end)), Some((b_begin, b_end))) = (first.reported(), second.reported())
        && b_begin < a_end
        && let Some(row) = fault_of(checker, report, b_begin, false)
    {
        row.told_overlap = row.told_overlap.max(a_end.min(b_end) - b_begin);
    }
}

/// Nanoseconds for people.
fn millis(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1_000 % 1_000)
}
