//! The checker must fail on what is wrong, and be silent on what is not.

use std::collections::BTreeMap;

use super::{Gap, Judge, Report};
use crate::record::journal::{Event, Line};

struct Script {
    lines: Vec<Line>,
    election: &'static str,
}

impl Script {
    fn new(processes: &[&str]) -> Self {
        let mut script = Self { lines: Vec::new(), election: "e" };
        for who in processes {
            script.add(0, who, Event::Started { ours: !who.starts_with('g') });
        }
        script
    }

    fn add(&mut self, ms: u64, who: &str, event: Event) {
        let (t, who, election) = (ms * 1_000_000, who.to_owned(), self.election.to_owned());
        self.lines.push(Line { t, who, life: 1, election, event });
    }

    /// A whole term: won, working every 10 ms, lost.
    fn term(&mut self, who: &str, token: u64, from: u64, to: u64, cause: &str) {
        self.open_term(who, token, from, to);
        self.add(to + 1, who, lost(token, cause));
    }

    fn open_term(&mut self, who: &str, token: u64, from: u64, to: u64) {
        self.add(from, who, Event::Won { token });
        for ms in (from..=to).step_by(10) {
            self.add(ms, who, Event::Work { token });
            self.add(ms, who, Event::Claim { token });
        }
    }

    fn judged(&self) -> Judge {
        let mut judge = Judge::default();
        self.lines.iter().for_each(|line| judge.feed(line));
        judge
    }

    fn end(mut self) -> Report {
        let mut processes: Vec<_> = self.lines.iter().map(|line| line.who.clone()).collect();
        processes.sort();
        processes.dedup();
        for who in processes.iter().filter(|who| *who != "harness") {
            self.add(1_000_000, who, Event::Stopped);
        }
        self.judged().report(true)
    }
}

fn lost(token: u64, cause: &str) -> Event {
    Event::Lost { token, cause: cause.to_owned(), why: String::new() }
}

fn begin(fault: &str) -> Event {
    Event::Begin { fault: fault.to_owned() }
}

fn only(report: &Report) -> &str {
    assert_eq!(report.violations.len(), 1, "{:?}", report.violations);
    &report.violations[0].text
}

#[test]
fn consecutive_terms_are_accepted() {
    let mut script = Script::new(&["a", "b"]);
    script.term("a", 5, 0, 100, "expired");
    script.add(90, "harness", begin("cut"));
    script.term("b", 9, 400, 900, "evicted");
    script.add(600, "harness", Event::End);
    script.term("a", 12, 1000, 1100, "stopped");
    let report = script.end();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    let cut = &report.faults["cut"];
    assert_eq!((cut.times, cut.terms, cut.overlap, cut.told_overlap), (1, 1, 0, 0));
    assert_eq!(cut.gap, 300_000_000);
    assert_eq!(cut.causes.get("expired"), Some(&1), "the loss came after the fault began");
}

#[test]
fn two_at_once_are_found_and_measured() {
    let mut script = Script::new(&["a", "b"]);
    script.add(0, "harness", begin("cut"));
    script.term("a", 5, 0, 500, "expired");
    script.term("b", 9, 300, 900, "stopped");
    let report = script.end();
    assert!(only(&report).contains("led at once for 200.000 ms"), "{:?}", report.violations);
    assert_eq!(report.faults["cut"].overlap, 200_000_000);
}

/// One sign of life late is enough: the process slept, woke, and did a leader's work once more.
#[test]
fn one_late_tick_is_two_leaders() {
    let mut script = Script::new(&["a", "b"]);
    script.open_term("a", 5, 0, 100);
    script.open_term("b", 9, 300, 400);
    script.add(350, "a", Event::Work { token: 5 });
    script.add(360, "a", lost(5, "expired"));
    script.add(410, "b", lost(9, "stopped"));
    assert!(only(&script.end()).contains("led at once"));
}

#[test]
fn late_reports_are_counted_separately() {
    let mut script = Script::new(&["a", "b"]);
    script.add(0, "harness", begin("paused"));
    script.open_term("a", 5, 0, 100);
    script.term("b", 9, 300, 900, "stopped");
    script.add(500, "a", lost(5, "expired"));
    let report = script.end();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert_eq!(report.faults["paused"].told_overlap, 200_000_000);
}

#[test]
fn other_elections_do_not_matter() {
    let mut script = Script::new(&["a"]);
    script.term("a", 9, 0, 500, "stopped");
    script.election = "other";
    script.add(0, "b", Event::Started { ours: true });
    script.term("b", 5, 100, 300, "stopped");
    assert!(script.end().violations.is_empty());
}

#[test]
fn a_token_must_grow() {
    for token in [5, 3] {
        let mut script = Script::new(&["a", "b"]);
        script.term("a", 5, 0, 100, "expired");
        script.term("b", token, 400, 900, "stopped");
        assert!(only(&script.end()).contains("its token is stale"));
    }
}

#[test]
fn a_loss_needs_a_cause_and_comes_once() {
    let mut script = Script::new(&["a"]);
    script.term("a", 5, 0, 100, "");
    assert!(only(&script.end()).contains("without a cause"));

    let mut script = Script::new(&["a"]);
    script.term("a", 5, 0, 100, "expired");
    script.add(200, "a", lost(5, "expired"));
    assert!(only(&script.end()).contains("without having won it"));

    let mut script = Script::new(&["a"]);
    script.open_term("a", 5, 0, 100);
    script.term("a", 7, 200, 300, "stopped");
    let report = script.end();
    assert!(report.violations.iter().any(|v| v.text.contains("without having lost 5")));
    assert!(report.violations.iter().any(|v| v.text.contains("never told the end of 5")));
}

#[test]
fn a_leader_without_a_report_of_its_term_is_found() {
    let mut script = Script::new(&["a"]);
    script.add(10, "a", Event::Claim { token: 5 });
    let report = script.end();
    assert!(report.violations.iter().any(|v| v.text.contains("was never told")));
}

#[test]
fn work_after_the_reported_loss_is_found() {
    let mut script = Script::new(&["a"]);
    script.term("a", 5, 0, 100, "expired");
    script.add(150, "a", Event::Work { token: 5 });
    assert!(only(&script.end()).contains("after it was told"));
}

#[test]
fn a_killed_candidate_is_excused_and_a_vanished_one_is_found() {
    let mut script = Script::new(&["a"]);
    script.open_term("a", 5, 0, 100);
    script.add(101, "a", Event::Killed);
    assert!(script.judged().report(true).violations.is_empty());
    script.lines.pop();
    assert!(only(&script.judged().report(true)).contains("neither stopped nor was killed"));
}

#[test]
fn a_refused_write_is_counted_and_a_refused_leader_is_found() {
    let fenced = |leads| Event::Fenced { token: 5, accepted: false, greatest: 9, leads };
    for (leads, violations) in [(false, 0), (true, 1)] {
        let mut script = Script::new(&["a"]);
        script.add(0, "harness", begin("paused"));
        script.term("a", 5, 10, 100, "expired");
        script.add(200, "a", fenced(leads));
        let report = script.end();
        assert_eq!(report.violations.len(), violations, "{:?}", report.violations);
        assert_eq!(report.faults["paused"].refused, 1);
    }
}

#[test]
fn a_store_that_accepts_a_stale_token_is_found() {
    let mut script = Script::new(&["a"]);
    script.term("a", 5, 0, 100, "expired");
    script.add(90, "a", Event::Fenced { token: 5, accepted: true, greatest: 9, leads: false });
    assert!(only(&script.end()).contains("the store took"));
}

#[test]
fn two_choria_candidates_may_lead_together_but_not_beside_ours() {
    let mut script = Script::new(&["g0", "g1"]);
    script.term("g0", 5, 0, 500, "error");
    script.term("g1", 9, 300, 900, "error");
    assert!(script.end().violations.is_empty());

    let mut script = Script::new(&["g0", "a"]);
    script.term("g0", 5, 0, 500, "error");
    script.term("a", 9, 300, 900, "stopped");
    assert!(only(&script.end()).contains("led at once"));
}

#[test]
fn one_process_may_lead_in_several_elections() {
    let mut script = Script::new(&["a", "b"]);
    script.open_term("a", 5, 0, 100);
    script.election = "other";
    script.add(0, "b", Event::Started { ours: true });
    script.open_term("b", 5, 0, 90);
    script.add(0, "a", Event::Started { ours: true });
    script.open_term("a", 9, 100, 200);
    let judge = script.judged();
    assert_eq!(judge.held(), 3);
    assert_eq!(judge.loads(100_000_000), BTreeMap::from([("a", 2)]));
    assert!(judge.report(false).violations.is_empty());
}

#[test]
fn a_time_without_work_is_found_with_who_worked_before() {
    let mut script = Script::new(&["a", "b"]);
    script.term("a", 5, 0, 100, "handed_over");
    script.term("b", 9, 400, 900, "stopped");
    let gap = Gap { from: 100_000_000, to: 400_000_000, who: "a".to_owned() };
    assert_eq!(script.judged().gaps, [gap]);
    assert_eq!(script.end().losses.get("handed_over"), Some(&1));
}
