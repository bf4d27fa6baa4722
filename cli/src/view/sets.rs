//! The sets of a view, as their members and their shards show them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::election::ElectionView;
use super::shards::{MAX_SHARDS, SetView, shard_of, stated};
use crate::elections::ElectionStatus;

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
pub fn sets<'a>(elections: impl Iterator<Item = &'a ElectionView> + Clone) -> Vec<SetSummary> {
    let (mut once, mut found) = (BTreeSet::new(), BTreeSet::new());
    for set in elections.clone().filter_map(|known| set_of(known.name())) {
        if !once.insert(set) {
            found.insert(set);
        }
    }
    found.into_iter().map(|set| summary(set, elections.clone())).collect()
}

/// One set. Its members are those of the last roll call of a shard, and those that lead. It has as
/// many shards as its members state, else those that have an entry.
pub fn summary<'a>(
    set: &str,
    elections: impl Iterator<Item = &'a ElectionView> + Clone,
) -> SetSummary {
    let is_part = |name: &str| name.strip_prefix(set).is_some_and(|rest| rest.starts_with('.'));
    let parts = elections.filter(|known| is_part(known.name()));
    // A leader that has expired leads no shard.
    let statuses: Vec<ElectionStatus> = parts
        .clone()
        .filter(|known| known.holder().is_some())
        .map(|k| k.status().clone())
        .collect();
    let rolls = parts.clone().filter(|known| shard_of(set, known.name()).is_some());
    let roll = rolls.filter_map(ElectionView::candidates).max_by_key(|roll| roll.read.at);
    let roll = roll.map_or(&[][..], |roll| roll.list());
    let number = stated(roll);
    let view = SetView::new(set, number.unwrap_or(MAX_SHARDS), &statuses, roll);
    let (shards, leaderless) = match number {
        Some(_) => (view.number as usize, view.leaderless()),
        None => {
            let listed = parts.filter_map(|k| Some((shard_of(set, k.name())?, k.holder())));
            let listed: Vec<_> = listed.collect();
            let vacant = listed.iter().filter(|(_, holder)| holder.is_none());
            (listed.len(), vacant.map(|(shard, _)| *shard).collect())
        }
    };
    SetSummary {
        set: set.to_owned(),
        shards,
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
