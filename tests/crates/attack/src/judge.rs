//! Reads the journal and the histories, and reports broken promises. It knows nothing of the run
//! itself.
//!
//! A term is taken to last from its first to its last sign of life, on `CLOCK_BOOTTIME`, from
//! either source: the work, or the answer to "do you lead?". Every sign bears an instant at which
//! its writer was allowed to lead, so two terms of one election that overlap are two leaders at
//! once.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::record::history::{self, Difference, End, Replayed};
use crate::record::journal::{Cost, Event, Line};

/// A time without work that is shorter is the machine's: its processes are more than its cores.
const SHORTEST_GAP: u64 = 100_000_000;

/// Takes in the journal line by line.
#[derive(Debug, Default)]
pub struct Judge {
    processes: BTreeMap<Process, Ended>,
    candidacies: BTreeMap<(Process, String), Candidacy>,
    terms: BTreeMap<Key, Term>,
    windows: Vec<Window>,
    found: Vec<Violation>,
    /// The newest sign of life, by election, and of all.
    newest: HashMap<String, Sign>,
    latest: Option<Sign>,
    /// Times in which nobody worked on an election, after work on it had begun.
    pub gaps: Vec<Gap>,
    /// The newest of each process.
    pub costs: BTreeMap<Process, Cost>,
    lines: u64,
    work: u64,
    losses: BTreeMap<String, u64>,
    replays: Replays,
}

/// The name of a process, and its number among those of its name.
type Process = (String, u32);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ended {
    #[default]
    Not,
    InOrder,
    Killed,
}

/// A process in an election.
#[derive(Debug, Default)]
struct Candidacy {
    ours: bool,
    /// The term that was reported, and whose end was not.
    holds: Option<u64>,
}

/// Whose term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    election: String,
    process: Process,
    token: u64,
}

/// A term, as its own process reported it.
#[derive(Debug, Clone, Default)]
struct Term {
    ours: bool,
    /// The first and the last instant at which it led.
    signs: Option<(u64, u64)>,
    won: Option<u64>,
    lost: Option<(u64, String)>,
}

/// Who led at an instant.
#[derive(Debug, Clone)]
struct Sign {
    who: String,
    t: u64,
}

/// A time in which nobody worked on an election: from a sign of life to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub from: u64,
    pub to: u64,
    /// Who worked before it.
    pub who: String,
}

/// From the beginning of a fault until it was over.
#[derive(Debug, Clone, Default)]
struct Window {
    fault: String,
    begin: u64,
    end: Option<u64>,
    gap: u64,
    refused: u64,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When, on the journal's clock.
    pub t: u64,
    pub text: String,
}

/// What one fault did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultReport {
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

/// What all replays of histories came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replays {
    /// Histories that were replayed to their end.
    pub histories: u64,
    /// Events that the protocol took in once more.
    pub events: u64,
    /// Actions that it returned once more.
    pub actions: u64,
    /// Histories that end in the middle of a line, as their process was killed.
    pub torn: u64,
    /// Histories that became too long, and are not complete.
    pub cut: u64,
}

/// The report about a journal.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Lines read, and how many of them were of work.
    pub lines: u64,
    pub work: u64,
    pub terms: usize,
    /// How terms ended.
    pub losses: BTreeMap<String, u64>,
    pub replays: Replays,
    /// Each fault, by name.
    pub faults: BTreeMap<String, FaultReport>,
    /// What was wrong, in the order of time. Empty is good.
    pub violations: Vec<Violation>,
}

impl Judge {
    /// Takes in a line. Lines of one process must come in its order; those of several need not be
    /// sorted.
    pub fn feed(&mut self, line: &Line) {
        self.lines += 1;
        let process = (line.who.clone(), line.life);
        match &line.event {
            Event::Started { ours } => {
                self.processes.entry(process).or_default();
                self.candidacy(line).ours = *ours;
            }
            Event::Won { token } => {
                if let Some(held) = self.candidacy(line).holds.replace(*token) {
                    self.wrong(line, format!("won {token} without having lost {held}"));
                }
                self.term(line, *token).won = Some(line.t);
            }
            Event::Work { token } | Event::Claim { token } => {
                self.work += 1;
                let term = self.term(line, *token);
                let (first, last) = term.signs.unwrap_or((line.t, line.t));
                term.signs = Some((first.min(line.t), last.max(line.t)));
                self.sign(line);
            }
            Event::Fenced { token, accepted, greatest, leads } => {
                if *accepted && greatest > token {
                    self.wrong(line, format!("the store took token {token} after {greatest}"));
                }
                if !accepted && let Some(window) = self.windows.last_mut() {
                    window.refused += 1;
                }
                // A fence is for a write in flight when its writer was superseded, not for a writer
                // that keeps leading.
                if !accepted && *leads {
                    let what = format!("{greatest} has written before it");
                    self.wrong(line, format!("leads with token {token} though {what}"));
                }
            }
            Event::Lost { token, cause, .. } => {
                match self.candidacy(line).holds.take() {
                    Some(held) if held != *token => {
                        self.wrong(line, format!("lost {token} while it held {held}"));
                    }
                    Some(_) if cause.is_empty() => {
                        self.wrong(line, format!("lost {token} without a cause"));
                    }
                    Some(_) => {}
                    None => self.wrong(line, format!("lost {token} without having won it")),
                }
                self.term(line, *token).lost = Some((line.t, cause.clone()));
                *self.losses.entry(cause.clone()).or_default() += 1;
            }
            Event::Cost(cost) => _ = self.costs.insert(process, *cost),
            Event::Stopped => _ = self.processes.insert(process, Ended::InOrder),
            Event::Killed => _ = self.processes.insert(process, Ended::Killed),
            Event::Begin { fault } => {
                let (fault, begin) = (fault.clone(), line.t);
                self.windows.push(Window { fault, begin, ..Window::default() });
            }
            Event::End => {
                let without = self.latest.as_ref().map_or(0, |sign| line.t.saturating_sub(sign.t));
                if let Some(window) = self.windows.last_mut() {
                    window.gap = window.gap.max(without);
                    window.end = Some(line.t);
                }
            }
        }
    }

    fn candidacy(&mut self, line: &Line) -> &mut Candidacy {
        let key = ((line.who.clone(), line.life), line.election.clone());
        self.candidacies.entry(key).or_default()
    }

    fn term(&mut self, line: &Line, token: u64) -> &mut Term {
        let ours = self.candidacy(line).ours;
        let process = (line.who.clone(), line.life);
        let key = Key { election: line.election.clone(), process, token };
        self.terms.entry(key).or_insert_with(|| Term { ours, ..Term::default() })
    }

    /// A candidate led at this instant: for gaps, and to know the leader.
    fn sign(&mut self, line: &Line) {
        let sign = Sign { who: line.who.clone(), t: line.t };
        if self.latest.as_ref().is_none_or(|latest| latest.t <= line.t) {
            self.latest = Some(sign.clone());
        }
        let Some(newest) = self.newest.get_mut(&line.election) else {
            self.newest.insert(line.election.clone(), sign);
            return;
        };
        if newest.t > line.t {
            return;
        }
        let before = std::mem::replace(newest, sign);
        let without = line.t - before.t;
        if without > SHORTEST_GAP {
            self.gaps.push(Gap { from: before.t, to: line.t, who: before.who });
        }
        if let Some(window) = self.windows.last_mut().filter(|window| window.end.is_none()) {
            window.gap = window.gap.max(without);
        }
    }

    fn wrong(&mut self, line: &Line, text: String) {
        let text = format!("{}/{}: {text}", line.who, line.life);
        self.found.push(Violation { t: line.t, text });
    }

    /// Who gave the latest sign of life, and when.
    pub fn leader(&self) -> Option<(&str, u64)> {
        self.latest.as_ref().map(|sign| (sign.who.as_str(), sign.t))
    }

    /// When another one than `who` first worked in a term that began at `t` or later.
    pub fn first_sign_since(&self, t: u64, who: &str) -> Option<u64> {
        let others = self.terms.iter().filter(|(key, _)| key.process.0 != who);
        others.filter_map(|(_, term)| Some(term.signs?.0)).filter(|first| *first >= t).min()
    }

    /// In how many elections each process gave the newest sign of life, at `since` or later.
    pub fn loads(&self, since: u64) -> BTreeMap<&str, usize> {
        let mut loads = BTreeMap::new();
        for sign in self.newest.values().filter(|sign| sign.t >= since) {
            *loads.entry(sign.who.as_str()).or_default() += 1;
        }
        loads
    }

    /// How many terms of an election have ended.
    pub fn lost(&self, election: &str) -> usize {
        let of_it = self.terms.iter().filter(|(key, _)| key.election == election);
        of_it.filter(|(_, term)| term.lost.is_some()).count()
    }

    /// How many terms were reported, and their ends were not.
    pub fn held(&self) -> usize {
        self.candidacies.values().filter(|candidacy| candidacy.holds.is_some()).count()
    }

    /// The report so far; `complete` if the run is over, so that every process must have come to an
    /// end.
    pub fn report(&self, complete: bool) -> Report {
        let mut report = Report {
            lines: self.lines,
            work: self.work,
            terms: self.terms.len(),
            losses: self.losses.clone(),
            replays: self.replays.clone(),
            faults: BTreeMap::new(),
            violations: self.found.clone(),
        };
        for window in &self.windows {
            let fault = report.fault(window);
            fault.times += 1;
            fault.gap = fault.gap.max(window.gap);
            fault.refused += window.refused;
        }
        let mut terms: Vec<_> =
            self.terms.iter().filter(|(_, term)| term.signs.is_some()).collect();
        terms.sort_by_key(|(key, term)| (&key.election, term.signs));
        for (index, (key, term)) in terms.iter().enumerate() {
            self.count(&mut report, term);
            self.single(&mut report, key, term);
            let earlier = terms[..index].iter().rev();
            for before in earlier.take_while(|(before, _)| before.election == key.election) {
                self.pair(&mut report, *before, (key, term));
            }
        }
        let running = self.processes.iter().filter(|(_, ended)| **ended == Ended::Not);
        for ((who, life), _) in running.filter(|_| complete) {
            let text = format!("{who}/{life}: neither stopped nor was killed");
            report.violations.push(Violation { t: u64::MAX, text });
        }
        report.violations.sort_by_key(|violation| violation.t);
        report
    }

    /// The fault in whose window an instant lies, or after which it came.
    fn window_at(&self, t: u64) -> Option<&Window> {
        self.windows.iter().rfind(|window| window.begin <= t)
    }

    /// Counts the beginning and the end of a term in the faults during which they came.
    fn count(&self, report: &mut Report, term: &Term) {
        let within =
            |t: u64| self.window_at(t).filter(|window| window.end.is_none_or(|end| end >= t));
        if let Some((first, _)) = term.signs
            && let Some(window) = within(first)
        {
            report.fault(window).terms += 1;
        }
        if let Some((t, cause)) = &term.lost
            && let Some(window) = within(*t)
        {
            *report.fault(window).causes.entry(cause.clone()).or_default() += 1;
        }
    }

    /// What must hold for each term alone.
    fn single(&self, report: &mut Report, key: &Key, term: &Term) {
        let Some((first, last)) = term.signs else { return };
        let (who, life) = &key.process;
        let mut wrong = |t: u64, text: String| {
            report.violations.push(Violation { t, text: format!("{who}/{life}: {text}") });
        };
        if let Some((lost, _)) = &term.lost
            && last > *lost
        {
            let late = millis(last - lost);
            wrong(last, format!("led {late} after it was told that it had lost {}", key.token));
        }
        if self.processes.get(&key.process) == Some(&Ended::InOrder) {
            if term.won.is_none() {
                wrong(first, format!("led with {} and was never told", key.token));
            }
            if term.lost.is_none() {
                wrong(last, format!("was never told the end of {}", key.token));
            }
        }
    }

    /// What must hold for every two terms of an election: the first began first.
    fn pair(&self, report: &mut Report, (a, first): (&Key, &Term), (b, second): (&Key, &Term)) {
        let (Some((_, last)), Some((begin, end))) = (first.signs, second.signs) else { return };
        if !first.ours && !second.ours {
            return; // Choria's among themselves: no promise of ours
        }
        let name =
            |Key { process: (who, life), token, .. }: &Key| format!("{who}/{life} (token {token})");
        let mut wrong = |text: String| report.violations.push(Violation { t: begin, text });
        let overlap = (begin <= last).then(|| last.min(end) - begin);
        if let Some(overlap) = overlap {
            let (a, b) = (name(a), name(b));
            wrong(format!("{a} and {b} led at once for {}", millis(overlap)));
        }
        if b.token <= a.token {
            wrong(format!("{} led after {}: its token is stale", name(b), name(a)));
        }
        if let (Some(overlap), Some(window)) = (overlap, self.window_at(begin)) {
            let row = report.fault(window);
            row.overlap = row.overlap.max(overlap).max(1);
        }
        if let (Some((_, a_end)), Some((b_begin, b_end))) = (first.reported(), second.reported())
            && b_begin < a_end
            && let Some(window) = self.window_at(b_begin)
        {
            let row = report.fault(window);
            row.told_overlap = row.told_overlap.max(a_end.min(b_end) - b_begin);
        }
    }

    /// Replays the history of every process of ours that the journal knows of. To be called once,
    /// when all have ended.
    pub fn replay(&mut self, journal: &Path) {
        let ours = self.candidacies.iter().filter(|(_, candidacy)| candidacy.ours);
        let candidacies: Vec<_> = ours.map(|(key, _)| key.clone()).collect();
        for (process, election) in candidacies {
            if let Err((t, text)) = self.replay_of(journal, &process, &election) {
                let (who, life) = process;
                let text = format!("{who}/{life}: its history: {text}");
                self.found.push(Violation { t, text });
            }
        }
    }

    fn replay_of(
        &mut self,
        journal: &Path,
        process: &Process,
        election: &str,
    ) -> Result<(), (u64, String)> {
        let killed = self.processes.get(process) == Some(&Ended::Killed);
        let replayed = match history::replay_file(&history::path(journal, &process.0, process.1)) {
            Ok(Ok(replayed)) => replayed,
            Ok(Err(Difference { line, t, error })) => {
                return Err((t, format!("line {line}: {error}")));
            }
            // Killed before its campaign began.
            Err(error) if error.kind() == io::ErrorKind::NotFound && killed => return Ok(()),
            Err(error) => return Err((u64::MAX, error.to_string())),
        };
        let wrong = |text: String| Err((u64::MAX, text));
        match replayed.end {
            End::Finished | End::Cut => {}
            End::Open | End::Torn if killed => {}
            end => return wrong(format!("it ends {end:?}, and the process was not killed")),
        }
        if replayed.events > 0 && replayed.election != election {
            return wrong(format!("it is of the election {:?}", replayed.election));
        }
        if replayed.end != End::Cut {
            self.compare(&replayed, process)?;
        }
        let Replays { histories, events, actions, torn, cut } = &mut self.replays;
        *histories += 1;
        *events += replayed.events;
        *actions += replayed.actions;
        *torn += u64::from(replayed.end == End::Torn);
        *cut += u64::from(replayed.end == End::Cut);
        Ok(())
    }

    /// A process led only in terms that its protocol began, and only before their deadlines.
    fn compare(&self, replayed: &Replayed, process: &Process) -> Result<(), (u64, String)> {
        let deadlines: HashMap<u64, u64> = replayed.terms.iter().copied().collect();
        for (key, term) in self.terms.iter().filter(|(key, _)| key.process == *process) {
            let Some((_, last)) = term.signs else { continue };
            let what = match deadlines.get(&key.token) {
                Some(deadline) if last < *deadline => continue,
                Some(_) => "after the deadline",
                None => "which never began",
            };
            return Err((last, format!("it led with {}, {what}", key.token)));
        }
        Ok(())
    }
}

impl Term {
    /// From its first to its last sign, the report "won" included.
    fn reported(&self) -> Option<(u64, u64)> {
        let begin = self.won.or(self.signs.map(|(first, _)| first))?;
        let last = self.signs.map_or(begin, |(_, last)| last);
        let end = self.lost.as_ref().map_or(last, |(t, _)| *t);
        Some((begin, end.max(begin)))
    }
}

impl Report {
    fn fault(&mut self, window: &Window) -> &mut FaultReport {
        self.faults.entry(window.fault.clone()).or_default()
    }

    /// Counts by name, for people: "3 expired, 1 stopped".
    pub fn list<K: std::fmt::Display>(counts: &BTreeMap<K, u64>) -> String {
        let counts: Vec<_> = counts.iter().map(|(name, times)| format!("{times} {name}")).collect();
        counts.join(", ")
    }
}

/// Nanoseconds for people.
fn millis(nanos: u64) -> String {
    format!("{:.3} ms", Duration::from_nanos(nanos).as_secs_f64() * 1e3)
}
