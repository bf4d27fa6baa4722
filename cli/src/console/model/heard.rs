//! Which writes of a lock are known, so that a poll reads nothing that was heard.
//!
//! Whoever may publish beside the lock can send a hint of any write. Only one that renews the known
//! term, right after the last known write, is taken as it is; any other one costs a read. Of what
//! the read confirms, the hints tell why an election had no leader in between.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use incumbent::lock::Revision;

use crate::lock::elections::{ElectionRecord, Position};

/// How many elections, and how many hints of each, are to be confirmed at most.
const MAX_UNCONFIRMED: (usize, usize) = (1024, 16);
/// How many writes are known at most after one that is not.
const MAX_AHEAD: usize = 4096;

/// The writes that are known without a gap.
#[derive(Debug, Default)]
pub struct Heard {
    known: HashMap<String, LastWrite>,
    /// All writes up to this revision are known; `None` after a gap.
    last: Option<u64>,
    /// Later ones that are known.
    ahead: BTreeSet<u64>,
    /// By election, in the order in which they came.
    unconfirmed: BTreeMap<String, Vec<Hint>>,
}

/// The last known write to an election.
#[derive(Debug)]
struct LastWrite {
    status: ElectionRecord,
    /// The revision that was read last.
    read: Revision,
}

/// What a message states of a write, which anybody may have sent who may publish beside the lock.
#[derive(Debug)]
pub struct Hint {
    pub status: ElectionRecord,
    /// The write before it to the same election.
    pub previous: Option<Revision>,
}

/// What a position shows.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything is known.
    Known,
    /// Writes are missing that may be on their way.
    Behind,
    /// Something is not known.
    Unknown,
}

impl Heard {
    /// Whether there is no gap so far.
    pub fn is_complete(&self) -> bool {
        self.last.is_some()
    }

    /// All entries were read, after the lock was at this position.
    pub fn listed(&mut self, all: &[ElectionRecord], before: Option<Position>) {
        self.last = before.map(|position| position.last);
        (self.ahead, self.unconfirmed) = (BTreeSet::new(), BTreeMap::new());
        self.known.clear();
        all.iter().for_each(|status| self.learn(status));
    }

    fn learn(&mut self, status: &ElectionRecord) {
        let known = LastWrite { status: status.clone(), read: status.revision };
        self.known.insert(status.election.clone(), known);
    }

    /// A hint came. Returns the write if it needs no confirmation and is new.
    pub fn hint(&mut self, hint: Hint) -> Option<ElectionRecord> {
        let Hint { status, previous } = &hint;
        if let Some(known) = self.known.get_mut(&status.election) {
            let last = &known.status;
            let is_same = status.state == last.state;
            if status.revision <= known.read || is_same && status.revision == last.revision {
                self.count(hint.status.revision);
                return None;
            }
            let follows = *previous == Some(last.revision) && status.revision > last.revision;
            if is_same && follows && status.holder().is_some() {
                known.status = status.clone();
                self.count(hint.status.revision);
                return Some(hint.status);
            }
        }
        let is_full = self.unconfirmed.len() == MAX_UNCONFIRMED.0;
        if !is_full || self.unconfirmed.contains_key(&status.election) {
            let hints = self.unconfirmed.entry(status.election.clone()).or_default();
            if hints.len() < MAX_UNCONFIRMED.1 {
                hints.push(hint); // else the next poll finds that it is missing
            }
        }
        None
    }

    /// The elections that have to be read.
    pub fn unconfirmed(&self) -> impl ExactSizeIterator<Item = &String> {
        self.unconfirmed.keys()
    }

    /// An election was read. Returns the vacancies before, and whether the write that was read had
    /// been hinted at.
    pub fn confirm(
        &mut self,
        election: &str,
        read: Option<&ElectionRecord>,
    ) -> (Vec<ElectionRecord>, bool) {
        let hints = self.unconfirmed.remove(election).unwrap_or_default();
        let Some(read) = read else {
            self.known.remove(election);
            return (Vec::new(), false);
        };
        let known = self.known.get(election).map(|known| &known.status);
        // Else the last known leader has led all the time.
        let is_other_term = known
            .and_then(ElectionRecord::holder)
            .zip(read.holder())
            .is_none_or(|(known, read)| !known.is_same_term(read));
        let mut last = known.map(|known| known.revision);
        let (mut vacancies, mut is_new) = (Vec::new(), false);
        for Hint { status, previous } in hints {
            if status.revision <= read.revision {
                self.count(status.revision);
            }
            is_new |= status.revision == read.revision;
            if previous == last
                && (last.unwrap_or(Revision(0))..read.revision).contains(&status.revision)
            {
                last = Some(status.revision);
                let is_vacancy = is_other_term && status.holder().is_none();
                vacancies.extend(is_vacancy.then_some(status));
            }
        }
        self.learn(read);
        (vacancies, is_new)
    }

    /// No hint can be confirmed: the next poll reads everything.
    pub fn forget(&mut self) {
        self.last = None;
        self.unconfirmed.clear();
    }

    /// This write is known.
    fn count(&mut self, Revision(revision): Revision) {
        let Some(last) = &mut self.last else { return };
        if revision > *last {
            self.ahead.insert(revision);
        }
        while self.ahead.first().is_some_and(|next| *next == last.saturating_add(1)) {
            *last = self.ahead.pop_first().unwrap_or(*last);
        }
        if self.ahead.len() > MAX_AHEAD {
            self.last = None;
        }
    }

    /// Compares what is known with the lock's position.
    pub fn compare(&self, position: Position) -> Verdict {
        match self.last {
            Some(last) if last == position.last && self.known.len() as u64 == position.entries => {
                Verdict::Known
            }
            Some(last) if last < position.last => Verdict::Behind,
            _ => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use incumbent::Token;

    use crate::lock::elections::{ElectionState, Holder};

    fn at(last: u64, entries: u64) -> Position {
        Position { last, entries }
    }

    fn led(election: &str, leader: &str, revision: u64) -> ElectionRecord {
        let state = ElectionState::Held(Holder::new(leader, Some(Token(1))));
        let revision = Revision(revision);
        ElectionRecord { election: election.to_owned(), revision, written: None, state }
    }

    fn freed(election: &str, revision: u64) -> ElectionRecord {
        let state = ElectionState::Vacant("stopped".into());
        ElectionRecord { state, ..led(election, "", revision) }
    }

    /// Whether the write is taken without a read.
    fn hears(heard: &mut Heard, status: ElectionRecord, previous: u64) -> bool {
        heard
            .hint(Hint { status, previous: Some(Revision(previous)).filter(|n| n.0 > 0) })
            .is_some()
    }

    fn heard() -> Heard {
        let mut heard = Heard::default();
        assert_eq!(heard.compare(at(0, 0)), Verdict::Unknown);
        heard.listed(&[led("a", "one", 6), led("b", "one", 7)], Some(at(7, 2)));
        assert_eq!(heard.compare(at(7, 2)), Verdict::Known);
        heard
    }

    #[test]
    fn nothing_is_read_again_that_was_heard_without_a_gap() {
        let mut heard = heard();
        assert!(!hears(&mut heard, led("a", "one", 6), 0), "it was read");
        assert!(hears(&mut heard, led("a", "one", 8), 6));
        assert!(!hears(&mut heard, led("a", "one", 8), 6), "it came twice");
        assert_eq!(heard.unconfirmed().len(), 0);
        assert!(!hears(&mut heard, led("c", "one", 9), 0));
        // The term of another election is renewed before the new one is confirmed.
        assert!(hears(&mut heard, led("b", "one", 10), 7));
        assert_eq!(heard.compare(at(10, 3)), Verdict::Behind);
        assert_eq!(heard.confirm("c", Some(&led("c", "one", 9))), (vec![], true));
        assert_eq!(heard.compare(at(10, 3)), Verdict::Known);
    }

    #[test]
    fn lost_write_and_removed_entry_are_noticed() {
        let mut heard = heard();
        // An entry was removed without a write, as by a purge, or on a server without markers.
        assert_eq!(heard.compare(at(7, 1)), Verdict::Unknown);
        // Another bucket of the same name.
        assert_eq!(heard.compare(at(3, 2)), Verdict::Unknown);
        assert!(hears(&mut heard, led("a", "one", 9), 6));
        assert_eq!(heard.compare(at(9, 2)), Verdict::Behind, "8 is missing");
    }

    #[test]
    fn forged_hint_costs_a_read_and_hides_no_write() {
        for (status, previous) in
            [(led("a", "forger", u64::MAX), 6), (led("a", "one", 8), 5), (freed("a", 9), 6)]
        {
            let mut heard = heard();
            assert!(!hears(&mut heard, status, previous));
            assert!(hears(&mut heard, led("a", "one", 8), 6), "the term is renewed");
            assert_eq!(heard.confirm("a", Some(&led("a", "one", 8))).0, []);
            assert_eq!(heard.compare(at(8, 2)), Verdict::Known);
        }
        // Nor does one show a vacancy that never was, where a renewal was not heard.
        let mut missed = heard();
        assert!(!hears(&mut missed, freed("a", 8), 6));
        assert_eq!(missed.confirm("a", Some(&led("a", "one", 9))), (vec![], false));
        // One that looks like a renewal hides nothing either.
        let mut heard = heard();
        assert!(hears(&mut heard, led("a", "one", u64::MAX), 6));
        assert!(!hears(&mut heard, led("a", "two", 8), 6));
        assert_eq!(heard.confirm("a", Some(&led("a", "two", 8))), (vec![], true));
        assert!(hears(&mut heard, led("a", "two", 9), 8));
        assert_eq!(heard.compare(at(9, 2)), Verdict::Known);
    }

    #[test]
    fn cause_of_a_vacancy_is_kept_that_is_over_when_it_is_read() {
        let mut heard = heard();
        for (status, previous) in [(freed("a", 8), 6), (led("a", "two", 9), 8)] {
            assert!(!hears(&mut heard, status, previous));
        }
        let confirmed = heard.confirm("a", Some(&led("a", "two", 10)));
        assert_eq!(confirmed, (vec![freed("a", 8)], false));
        // Not one that is later than what was read.
        assert!(!hears(&mut heard, freed("a", 12), 10));
        assert_eq!(heard.confirm("a", Some(&led("a", "two", 11))).0, []);
    }

    #[test]
    fn unconfirmed_hints_are_bounded() {
        let mut heard = heard();
        for n in 0..2 * MAX_UNCONFIRMED.0 {
            for revision in 10..10 + 2 * MAX_UNCONFIRMED.1 as u64 {
                hears(&mut heard, led(&format!("e{n}"), "one", revision), 0);
            }
        }
        assert_eq!(heard.unconfirmed.len(), MAX_UNCONFIRMED.0);
        assert!(heard.unconfirmed.values().all(|hints| hints.len() == MAX_UNCONFIRMED.1));
    }
}
