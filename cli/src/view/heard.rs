//! Which writes of a lock are known, so that a poll reads nothing that was heard.

use std::collections::HashSet;

use crate::elections::Position;

/// The writes that are known without a gap.
#[derive(Debug, Default)]
pub struct Heard {
    names: HashSet<String>,
    /// All writes up to this revision are known; `None` after a gap.
    last: Option<u64>,
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
    pub fn listed<'n>(&mut self, names: impl Iterator<Item = &'n str>, before: Option<Position>) {
        self.last = before.map(|position| position.last);
        self.names = names.map(str::to_owned).collect();
    }

    /// This write was heard.
    pub fn wrote(&mut self, name: &str, revision: u64) {
        match self.last {
            Some(last) if revision == last.saturating_add(1) => {
                self.last = Some(revision);
                if !self.names.contains(name) {
                    self.names.insert(name.to_owned());
                }
            }
            Some(last) if revision > last => self.last = None,
            _ => {} // it was read before
        }
    }

    /// Compares what is known with the lock's position.
    pub fn compare(&self, position: Position) -> Verdict {
        match self.last {
            Some(last) if last == position.last && self.names.len() as u64 == position.entries => {
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

    fn at(last: u64, entries: u64) -> Position {
        Position { last, entries }
    }

    #[test]
    fn nothing_is_read_again_that_was_heard_without_a_gap() {
        let mut heard = Heard::default();
        assert_eq!(heard.compare(at(0, 0)), Verdict::Unknown);
        heard.listed(["a", "b"].into_iter(), Some(at(7, 2)));
        assert_eq!(heard.compare(at(7, 2)), Verdict::Known);
        heard.wrote("a", 6);
        heard.wrote("a", 8);
        heard.wrote("c", 9);
        assert_eq!(heard.compare(at(9, 3)), Verdict::Known);
        // The next write is on its way.
        assert_eq!(heard.compare(at(10, 3)), Verdict::Behind);
    }

    #[test]
    fn lost_write_and_removed_entry_are_noticed() {
        let mut heard = Heard::default();
        heard.listed(["a", "b"].into_iter(), Some(at(7, 2)));
        // An entry was removed without a write, as by a purge, or on a server without markers.
        assert_eq!(heard.compare(at(7, 1)), Verdict::Unknown);
        // Another bucket of the same name.
        assert_eq!(heard.compare(at(3, 2)), Verdict::Unknown);
        heard.wrote("a", 9);
        assert!(!heard.is_complete());
        assert_eq!(heard.compare(at(9, 2)), Verdict::Unknown);
    }
}
