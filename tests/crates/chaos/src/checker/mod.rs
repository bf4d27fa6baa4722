//! Reads the log and reports broken promises. It knows nothing of the run itself.
//!
//! A term is taken to last from its first to its last sign of life, on `CLOCK_BOOTTIME`, from
//! either source: the work, or the answer to "do you lead?". Every sign bears an instant at which
//! its writer had the right to lead, so two terms of one election that overlap are two leaders at
//! once.

mod histories;
mod report;
mod term;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use crate::journal::{Event, Line};

pub use histories::Replays;
pub use report::{FaultReport, Report, Violation};
use term::{Key, Life, Term};

/// Takes in the log line by line.
#[derive(Debug, Default)]
pub struct Checker {
    terms: BTreeMap<Key, Term>,
    lives: HashMap<(String, u32), Life>,
    windows: Vec<Window>,
    found: Vec<Violation>,
    /// The latest sign of life of any term.
    last_sign: Option<u64>,
    leader: Option<(String, u64)>,
    lines: u64,
    replays: Replays,
}

/// From the beginning of a fault until it was over.
#[derive(Debug, Clone)]
struct Window {
    fault: String,
    begin: u64,
    end: Option<u64>,
    gap: u64,
    refused: u64,
}

/// Checks a whole log.
pub fn check<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Report {
    let mut checker = Checker::default();
    for line in lines {
        checker.feed(line);
    }
    checker.report(true)
}

impl Checker {
    /// Takes in a line. Lines of one process must come in its order; those of several need not be
    /// sorted.
    pub fn feed(&mut self, line: &Line) {
        self.lines += 1;
        match &line.event {
            Event::Started { election, ours } => {
                self.life(line).started(election, *ours);
            }
            Event::Won { token } => {
                let wrong = self.life(line).won(*token);
                self.found_at(line, wrong);
                self.term(line, *token).won = Some(line.t);
            }
            Event::Work { token } | Event::Claim { token } => {
                let term = self.term(line, *token);
                term.sign(line.t);
                self.sign(line, *token);
            }
            Event::Fenced { token, accepted, greatest, leads } => {
                self.fenced(line, *token, *accepted, *greatest, *leads);
            }
            Event::Lost { token, cause, .. } => {
                let wrong = self.life(line).lost(*token, cause);
                self.found_at(line, wrong);
                self.term(line, *token).lost = Some((line.t, cause.clone()));
            }
            Event::Stopped => self.life(line).ended = true,
            Event::Killed => {
                let life = self.life(line);
                (life.ended, life.killed) = (true, true);
            }
            Event::Begin { fault } => self.windows.push(Window {
                fault: fault.clone(),
                begin: line.t,
                end: None,
                gap: 0,
                refused: 0,
            }),
            Event::Healed => {}
            Event::End => self.end(line.t),
        }
    }

    /// Who gave the latest sign of life, and when.
    pub fn leader(&self) -> Option<(&str, u64)> {
        self.leader.as_ref().map(|(who, t)| (who.as_str(), *t))
    }

    /// The report so far; `complete` if the run is over, so that every process must have come to an
    /// end.
    pub fn report(&self, complete: bool) -> Report {
        report::build(self, complete)
    }

    fn life(&mut self, line: &Line) -> &mut Life {
        self.lives.entry((line.who.clone(), line.life)).or_default()
    }

    fn term(&mut self, line: &Line, token: u64) -> &mut Term {
        let (election, ours) = {
            let life = self.life(line);
            (life.election.clone(), life.ours)
        };
        let key = Key { who: line.who.clone(), life: line.life, token };
        self.terms.entry(key).or_insert_with(|| Term::new(election, ours))
    }

    /// A candidate led at this instant: for gaps, and to know the leader.
    fn sign(&mut self, line: &Line, _token: u64) {
        let last = *self.last_sign.get_or_insert(line.t);
        if line.t < last {
            return;
        }
        self.gap(line.t - last);
        self.last_sign = Some(line.t);
        match &mut self.leader {
            Some((who, t)) if *who == line.who => *t = line.t,
            leader => *leader = Some((line.who.clone(), line.t)),
        }
    }

    fn gap(&mut self, gap: u64) {
        if let Some(window) = self.windows.last_mut().filter(|window| window.end.is_none()) {
            window.gap = window.gap.max(gap);
        }
    }

    fn end(&mut self, t: u64) {
        if let Some(last) = self.last_sign {
            self.gap(t.saturating_sub(last));
        }
        if let Some(window) = self.windows.last_mut() {
            window.end = Some(t);
        }
    }

    fn fenced(&mut self, line: &Line, token: u64, accepted: bool, greatest: u64, leads: bool) {
        if accepted && greatest > token {
            let text = format!("the store took token {token} after {greatest}");
            self.found_at(line, Err(text));
        }
        if accepted {
            return;
        }
        if let Some(window) = self.windows.last_mut() {
            window.refused += 1;
        }
        // A fence is for a write in flight when its writer was superseded, not for a writer that
        // keeps leading.
        if leads {
            let text = format!("leads with token {token} though {greatest} has written before it");
            self.found_at(line, Err(text));
        }
    }

    fn found_at(&mut self, line: &Line, wrong: Result<(), String>) {
        if let Err(text) = wrong {
            let text = format!("{}/{}: {text}", line.who, line.life);
            self.found.push(Violation { t: line.t, fault: self.fault_at(line.t), text });
        }
    }

    /// In which fault's window an instant lies, or after which it came.
    fn fault_at(&self, t: u64) -> Option<usize> {
        self.windows.iter().rposition(|window| window.begin <= t)
    }
}
