//! Sets, as their members and their shards show them to an outsider.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use incumbent::CandidateInfo;
use incumbent::lock::{MemberLoad, Readiness};
use serde_json::{Value, json};

use super::election::ElectionView;
use crate::lock::elections::ElectionRecord;

/// A set whose shards are among the elections.
#[derive(Debug, Clone, PartialEq)]
pub struct SetSummary {
    pub set: String,
    pub shards: usize,
    pub leaderless: Vec<u32>,
    /// How many shards each member leads.
    pub members: BTreeMap<String, u32>,
    pub imbalance: f64,
}

/// The name of the set, if this may be the election of a shard.
pub fn set_of(election: &str) -> Option<&str> {
    let (set, _) = election.rsplit_once('.')?;
    shard_of(set, election).map(|_| set)
}

/// The sets of which at least two shards are among these.
pub fn sets<'a>(elections: impl Iterator<Item = &'a ElectionView>) -> Vec<SetSummary> {
    let mut sets: BTreeMap<&str, Vec<&ElectionView>> = BTreeMap::new();
    for known in elections {
        if let Some(set) = set_of(known.name()) {
            sets.entry(set).or_default().push(known);
        }
    }
    let sets = sets.into_iter().filter(|(_, shards)| shards.len() > 1);
    sets.map(|(set, shards)| summary(set, &shards)).collect()
}

/// One set of these shards. Its members are those of the last roll call of a shard, and those that
/// lead. It has as many shards as its members state, else those that have an entry.
pub fn summary(set: &str, shards: &[&ElectionView]) -> SetSummary {
    // A leader that has expired leads no shard.
    let led = shards.iter().filter(|known| known.holder().is_some()).map(|known| known.status());
    let rolls = shards.iter().filter_map(|known| known.candidates());
    let roll = rolls.max_by_key(|roll| roll.read.at).map_or(&[][..], |roll| roll.list());
    let number = stated(roll);
    let view = SetView::new(set, number.unwrap_or(MAX_SHARDS), led, roll);
    let (number, leaderless) = match number {
        Some(_) => (view.number as usize, view.leaderless()),
        None => {
            let vacant = shards.iter().filter(|known| known.holder().is_none());
            let vacant = vacant.filter_map(|known| shard_of(set, known.name()));
            (shards.len(), vacant.collect())
        }
    };
    SetSummary {
        set: set.to_owned(),
        shards: number,
        leaderless,
        imbalance: view.imbalance(),
        members: view.members.into_iter().map(|(name, member)| (name, member.leads)).collect(),
    }
}

impl SetSummary {
    /// The names of `set info -o json`.
    pub fn json(&self) -> Value {
        let members = self.members.iter();
        json!({
            "set": self.set,
            "shards": self.shards,
            "members": members.map(|(identity, leads)| json!({"identity": identity, "leads": leads}))
                .collect::<Vec<_>>(),
            "imbalance": self.imbalance,
            "leaderless": self.leaderless,
        })
    }
}

/// A set at one moment.
#[derive(Debug)]
pub struct SetView {
    /// How many shards there are.
    pub number: u32,
    /// By shard that has one, its leader and token.
    pub leaders: BTreeMap<u32, (String, Option<u64>)>,
    /// By identity.
    pub members: BTreeMap<String, MemberView>,
    /// How many shards members state that there are, if two of them do not exclude each other.
    pub differing: BTreeSet<u32>,
}

/// A member, or another holder of shards.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    pub leads: u32,
    /// `None` if it did not answer the roll call.
    pub weight: Option<u32>,
    pub readiness: Option<Readiness>,
    /// How many shards it states that there are.
    pub shards: Option<u32>,
    /// The other number, while it changes.
    pub resizing: Option<u32>,
}

/// The number of a shard, from the name of its election.
pub fn shard_of(set: &str, election: &str) -> Option<u32> {
    let number = election.strip_prefix(set)?.strip_prefix('.')?;
    let shard = number.parse().ok()?;
    // Not `+7` or `07`, which are other elections.
    (shard < u32::MAX && format!("{shard}") == number).then_some(shard)
}

/// The most shards of a set, so that a name or an answer takes no memory.
pub const MAX_SHARDS: u32 = 100_000;

/// How many shards the members state that the set has: the greatest number.
pub fn stated(roll: &[CandidateInfo]) -> Option<u32> {
    roll.iter().filter_map(|info| info.load).map(|load| load.shards).max()
}

impl SetView {
    pub fn new<'a>(
        set: &str,
        number: u32,
        elections: impl IntoIterator<Item = &'a ElectionRecord>,
        roll: &[CandidateInfo],
    ) -> Self {
        let mut view = Self {
            number: number.min(MAX_SHARDS),
            leaders: BTreeMap::new(),
            members: BTreeMap::new(),
            differing: BTreeSet::new(),
        };
        for info in roll {
            let member = view.members.entry(info.identity.to_string()).or_default();
            member.weight = Some(info.load.map_or(1, |load| load.weight));
            member.readiness = Some(info.readiness);
            (member.shards, member.resizing) =
                info.load.map_or((None, None), |load| (Some(load.shards), load.resizing));
        }
        let loads: Vec<MemberLoad> = roll.iter().filter_map(|info| info.load).collect();
        if !loads.iter().all(|a| loads.iter().all(|b| a.excludes(b))) {
            view.differing = loads.iter().map(|load| load.shards).collect();
        }
        for status in elections {
            let shard = shard_of(set, &status.election).filter(|shard| *shard < view.number);
            let holder = status.holder().filter(|_| !status.is_overdue(SystemTime::now()));
            if let (Some(shard), Some(holder)) = (shard, holder) {
                view.leaders
                    .insert(shard, (holder.identity.clone(), holder.token.map(|token| token.0)));
                view.members.entry(holder.identity.clone()).or_default().leads += 1;
            }
        }
        view
    }

    /// The greatest load per weight of a member that is ready, less the least.
    pub fn imbalance(&self) -> f64 {
        let is_ready =
            |member: &&MemberView| member.readiness.is_none_or(|s| s == Readiness::Ready);
        let ready = self.members.values().filter(is_ready);
        let loads = ready
            .map(|member| f64::from(member.leads) / f64::from(member.weight.unwrap_or(1).max(1)));
        let (least, most) = loads.fold((f64::MAX, 0.0), |(least, most): (f64, f64), load| {
            (least.min(load), most.max(load))
        });
        (most - least).max(0.0)
    }

    /// The shards without a leader.
    pub fn leaderless(&self) -> Vec<u32> {
        (0..self.number).filter(|shard| !self.leaders.contains_key(shard)).collect()
    }
}

/// Numbers in ascending order, as in `1, 3-5`.
pub fn ranges(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let shown = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use incumbent::lock::Nonce;

    use super::*;
    use incumbent::Token;
    use incumbent::lock::Revision;

    use crate::lock::elections::{ElectionState, Holder};

    fn held(election: &str, leader: &str) -> ElectionRecord {
        let state = ElectionState::Held(Holder::new(leader, Some(Token(7))));
        ElectionRecord {
            election: election.to_owned(),
            revision: Revision(1),
            written: None,
            state,
        }
    }

    fn member(identity: &str, shards: u32, weight: u32) -> CandidateInfo {
        let mut info = CandidateInfo::new(identity, Nonce(1));
        info.load = Some(MemberLoad::new(shards, weight));
        info
    }

    #[test]
    fn only_elections_of_shards_count() {
        for (election, shard) in
            [("a.0", Some(0)), ("a.17", Some(17)), ("a.07", None), ("a.+1", None), ("a.", None)]
        {
            assert_eq!(shard_of("a", election), shard, "{election}");
        }
        for election in ["a", "ab.1", "b.1", "a.1.1", "a.member-1", "a.99999999999"] {
            assert_eq!(shard_of("a", election), None, "{election}");
        }
        assert_eq!(shard_of("a.1", "a.1.2"), Some(2));
    }

    #[test]
    fn imbalance_is_that_of_the_load_per_weight() {
        let elections = ["a.0", "a.1", "a.2", "a.4"].map(|name| held(name, "heavy"));
        let roll = [member("heavy", 5, 2), member("light", 5, 1)];
        let view = SetView::new("a", 5, &elections, &roll);
        assert_eq!((view.imbalance(), view.leaderless()), (2.0, vec![3]));
        assert!(view.differing.is_empty());
        let mut aside = member("light", 6, 1);
        aside.readiness = Readiness::Cordoned;
        let view = SetView::new("a", 5, &elections, &[member("heavy", 5, 2), aside]);
        assert_eq!(view.imbalance(), 0.0);
        assert_eq!(view.differing, BTreeSet::from([5, 6]));
        assert_eq!(SetView::new("a", 0, &elections, &[]).imbalance(), 0.0);
    }

    #[test]
    fn numbers_differ_unless_a_member_excludes_both() {
        let with = |shards, resizing| {
            let mut info = member(&format!("{shards} {resizing:?}"), shards, 1);
            info.load = info.load.map(|load| MemberLoad { resizing, ..load });
            info
        };
        let differing = |roll: &[CandidateInfo]| SetView::new("a", 8, &[], roll).differing;
        let (four, both, eight) = (with(4, None), with(4, Some(8)), with(8, None));
        assert!(differing(&[four.clone(), both.clone()]).is_empty());
        assert!(differing(&[both.clone(), eight.clone()]).is_empty());
        assert_eq!(differing(&[four, both, eight.clone()]), BTreeSet::from([4, 8]));
        assert_eq!(differing(&[with(4, Some(12)), eight]), BTreeSet::from([4, 8]));
    }

    #[test]
    fn numbers_are_shown_as_ranges() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[0, 1, 2, 4, 6, 7]), "0-2, 4, 6-7");
    }
}
