//! What the lines of all members mean, and what in them must not be.

use std::collections::BTreeMap;

use super::ticks::Line;

/// The ticks of one term.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TermTicks {
    member: String,
    first: u64,
    last: u64,
}

/// A time in which nobody worked on a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub shard: usize,
    /// From the last tick before it to the first one after it.
    pub from: u64,
    pub to: u64,
    /// Who worked on the shard before it.
    pub member: String,
}

#[derive(Debug, Clone, Default)]
struct Shard {
    terms: BTreeMap<u64, TermTicks>,
    /// When the newest tick was, and of which term it is.
    newest: Option<(u64, u64)>,
}

/// All lines so far.
#[derive(Debug, Default)]
pub struct Ledger {
    shards: Vec<Shard>,
    pub ticks: u64,
    /// The ends of terms, by cause.
    pub losses: BTreeMap<String, u64>,
    /// Those that are longer than a tick may be late.
    pub gaps: Vec<Gap>,
    odd: Vec<String>,
}

/// A gap that is shorter is the machine's: its processes are more than its cores.
const SHORTEST_GAP: u64 = 100_000_000;

impl Ledger {
    pub fn new(shards: usize) -> Self {
        Self { shards: vec![Shard::default(); shards], ..Self::default() }
    }

    /// Takes a line, in the order of the file.
    pub fn take(&mut self, line: &str) {
        match Line::read(line) {
            Some(Line::Tick { ns, shard, token, member }) if shard < self.shards.len() => {
                self.ticks += 1;
                self.tick(ns, shard, token, member);
            }
            Some(Line::Lost { cause, .. }) => {
                *self.losses.entry(cause.to_owned()).or_default() += 1;
            }
            _ => self.odd.push(format!("a line that nobody writes: {line:?}")),
        }
    }

    fn tick(&mut self, ns: u64, number: usize, token: u64, member: &str) {
        let shard = &mut self.shards[number];
        if let Some((newest, of)) = shard.newest
            && ns > newest + SHORTEST_GAP
        {
            let member = shard.terms.get(&of).map(|term| term.member.clone()).unwrap_or_default();
            self.gaps.push(Gap { shard: number, from: newest, to: ns, member });
        }
        if shard.newest.is_none_or(|(newest, _)| ns > newest) {
            shard.newest = Some((ns, token));
        }
        match shard.terms.get_mut(&token) {
            Some(term) if term.member == member => {
                (term.first, term.last) = (term.first.min(ns), term.last.max(ns));
            }
            Some(term) => {
                let other = &term.member;
                let odd = format!("shard {number}: {other} and {member} share the token {token}");
                self.odd.push(odd);
            }
            None => {
                let member = member.to_owned();
                shard.terms.insert(token, TermTicks { member, first: ns, last: ns });
            }
        }
    }

    /// How many shards each member works on now: those with a tick at `since` or later.
    pub fn loads(&self, since: u64) -> BTreeMap<&str, usize> {
        let mut loads = BTreeMap::new();
        for shard in &self.shards {
            if let Some((_, token)) = shard.newest.filter(|(newest, _)| *newest >= since)
                && let Some(term) = shard.terms.get(&token)
            {
                *loads.entry(term.member.as_str()).or_default() += 1;
            }
        }
        loads
    }

    pub fn terms(&self) -> usize {
        self.shards.iter().map(|shard| shard.terms.len()).sum()
    }

    /// Work of a term after the first work of a newer one.
    pub fn overlaps(&self) -> Vec<String> {
        let mut overlaps = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            let mut before: Option<(&u64, &TermTicks)> = None;
            for (token, term) in &shard.terms {
                if let Some((old, other)) = before.filter(|(_, other)| other.last >= term.first) {
                    let by = (other.last - term.first) as f64 / 1e6;
                    overlaps.push(format!(
                        "shard {number}: {} worked with token {old} until {by:.3} ms after {} began with token {token}",
                        other.member, term.member
                    ));
                }
                if before.is_none_or(|(_, other)| term.last > other.last) {
                    before = Some((token, term));
                }
            }
        }
        overlaps
    }

    /// Lines that do not fit together.
    pub fn odd(&self) -> &[String] {
        &self.odd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(lines: &[&str]) -> Ledger {
        let mut ledger = Ledger::new(2);
        lines.iter().for_each(|line| ledger.take(line));
        ledger
    }

    #[test]
    fn one_term_after_the_other_is_no_overlap() {
        // The last line of the older term was written late.
        let ledger = ledger(&["T 10 0 1 a", "T 30 0 2 b", "T 20 0 1 a", "T 25 1 9 b"]);
        assert_eq!(ledger.overlaps(), Vec::<String>::new());
        assert_eq!((ledger.ticks, ledger.terms()), (4, 3));
        assert_eq!(ledger.loads(20), BTreeMap::from([("b", 2)]));
        assert_eq!(ledger.loads(26), BTreeMap::from([("b", 1)]));
    }

    #[test]
    fn work_after_the_first_work_of_a_newer_term_is_an_overlap() {
        assert_eq!(ledger(&["T 10 0 1 a", "T 20 0 2 b", "T 30 0 1 a"]).overlaps().len(), 1);
        let across = ledger(&["T 10 0 1 a", "T 50 0 1 a", "T 20 0 2 b", "T 40 0 3 c"]);
        assert_eq!(across.overlaps().len(), 2, "with each newer term");
    }

    #[test]
    fn two_members_with_one_token_are_found() {
        assert_eq!(ledger(&["T 10 0 1 a", "T 20 0 1 b", "what"]).odd().len(), 2);
    }

    #[test]
    fn a_time_without_work_is_found_with_who_worked_before() {
        let ledger = ledger(&["T 10 0 1 a", "T 300000000 0 2 b", "L 0 handed_over"]);
        let gap = Gap { shard: 0, from: 10, to: 300_000_000, member: "a".to_owned() };
        assert_eq!(ledger.gaps, [gap]);
        assert_eq!(ledger.losses.get("handed_over"), Some(&1));
    }
}
