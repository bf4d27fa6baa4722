//! Which fault comes next.

use std::collections::VecDeque;

use fastrand::Rng;

use crate::fault::{Entry, TABLE};
use crate::fleet::Kind;

/// How many faults a fleet meets before the next fleet is started.
const ROUND: usize = 6;

/// The faults to come.
#[derive(Debug)]
pub enum Plan {
    /// These, each once.
    Once(VecDeque<(Kind, &'static Entry)>),
    /// All that this machine can do, each once in an order by chance, and again, without end.
    Endless {
        /// What this machine can do.
        entries: Vec<&'static Entry>,
        /// What is left of this time through.
        left: VecDeque<(Kind, &'static Entry)>,
    },
}

impl Plan {
    /// These faults once, each in its first fleet, fleet by fleet.
    pub fn once(entries: &[&'static Entry]) -> Self {
        let mut all: Vec<_> =
            entries.iter().filter_map(|entry| Some((*entry.fleets.first()?, *entry))).collect();
        all.sort_by_key(|(kind, _)| kind.name() != Kind::Proven.name());
        Self::Once(all.into())
    }

    /// All that `can` be done, without end.
    pub fn endless(can: impl Fn(&Entry) -> bool) -> Self {
        let entries = TABLE.iter().filter(|entry| can(entry)).collect();
        Self::Endless { entries, left: VecDeque::new() }
    }

    /// The next one, and the fleet to meet it.
    pub fn next(&mut self, rng: &mut Rng) -> Option<(Kind, &'static Entry)> {
        match self {
            Self::Once(left) => left.pop_front(),
            Self::Endless { entries, left } => {
                if left.is_empty() {
                    *left = shuffle(entries, rng).into();
                }
                left.pop_front()
            }
        }
    }
}

/// Each fault once, in a fleet by chance, in rounds of one fleet.
fn shuffle(entries: &[&'static Entry], rng: &mut Rng) -> Vec<(Kind, &'static Entry)> {
    let mut rounds = Vec::new();
    let mut drawn: Vec<_> = entries
        .iter()
        .filter_map(|entry| Some((rng.choice(entry.fleets.iter().copied())?, *entry)))
        .collect();
    rng.shuffle(&mut drawn);
    for kind in [Kind::Proven, Kind::Strict, Kind::Choria, Kind::Sentinel] {
        let of_kind: Vec<_> = drawn.iter().filter(|(drawn, _)| *drawn == kind).copied().collect();
        rounds.extend(of_kind.chunks(ROUND).map(<[_]>::to_vec));
    }
    rng.shuffle(&mut rounds);
    rounds.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_comes_once_before_one_is_repeated() {
        let mut plan = Plan::endless(|_| true);
        let mut rng = Rng::with_seed(7);
        for _ in 0..3 {
            let mut names: Vec<_> = TABLE
                .iter()
                .filter_map(|_| plan.next(&mut rng))
                .inspect(|(kind, entry)| assert!(entry.fleets.contains(kind)))
                .map(|(_, entry)| entry.name)
                .collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), TABLE.len());
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        let order = |seed| {
            let (mut plan, mut rng) = (Plan::endless(|_| true), Rng::with_seed(seed));
            let names: Vec<_> =
                (0..40).filter_map(|_| plan.next(&mut rng)).map(|(_, entry)| entry.name).collect();
            names
        };
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
    }
}
