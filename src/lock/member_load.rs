//! How much of a set one of its members leads.

use std::sync::Arc;

use super::Nonce;

/// How much of a [set](crate::new_set) a member leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MemberLoad {
    /// How many shards the set has, as this member is configured.
    pub shards: u32,
    /// How many of them it leads.
    pub load: u32,
    /// Its part of the load, compared with the weights of others.
    pub weight: u32,
    /// The most shards that it may lead.
    #[serde(default)]
    pub max: Option<u32>,
    /// The number of shards that it excludes too: see
    /// [`SetBuilder::resizing`](crate::SetBuilder::resizing).
    #[serde(default)]
    pub resizing: Option<u32>,
}

impl MemberLoad {
    /// A member that leads nothing yet of a set of this many shards.
    pub fn new(shards: u32, weight: u32) -> Self {
        Self { shards, load: 0, weight, max: None, resizing: None }
    }

    /// Whether it may lead one shard more.
    pub fn has_room(&self) -> bool {
        self.max.is_none_or(|max| self.load < max)
    }

    /// Whether no key can be led by both members at once.
    pub fn excludes(&self, other: &Self) -> bool {
        self.shards == other.shards
            || self.resizing == Some(other.shards)
            || other.resizing == Some(self.shards)
    }

    /// Whether the load is more even with one shard less here and one more there.
    ///
    /// By the divisor method of Webster and Sainte-Laguë: repeated until it is false for each pair,
    /// it leads to the most even distribution, and it is never true in both directions. With equal
    /// weights, loads then differ by one at most.
    pub fn should_give_to(&self, other: &Self) -> bool {
        let twice = |load: u32| 2 * u128::from(load);
        let weight = |load: &Self| u128::from(load.weight.max(1));
        (twice(other.load) + 1) * weight(self) < twice(self.load).saturating_sub(1) * weight(other)
    }
}

/// A member of a set asks the leader of a shard to hand it over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TakeRequest {
    /// The candidate that asks.
    #[serde(with = "super::codec::nonce_text")]
    pub by: Nonce,
    /// Its identity.
    pub identity: Arc<str>,
    /// What the member leads, with the shards that are on their way to it.
    pub load: MemberLoad,
}
