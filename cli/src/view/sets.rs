//! The sets of a view, as their members and their shards show them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::election::ElectionView;
use super::shards::{MAX_SHARDS, SetView, shard_of, stated};

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
