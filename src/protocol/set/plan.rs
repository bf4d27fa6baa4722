//! Which member leads a shard next.
//!
//! Rendezvous hashing after Thaler and Ravishankar, "Using name-based mappings to increase hit
//! rates", IEEE/ACM Transactions on Networking 6(1), 1998, with a bound on the load: among the
//! members that lead the least for their weight, the one with the highest hash leads.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::lock::MemberLoad;
use crate::util::stable_hash;

/// A member, as the plan counts it.
#[derive(Debug, Clone)]
pub(super) struct Party<'a> {
    pub identity: &'a Arc<str>,
    /// Of its identity.
    pub hash: u64,
    pub load: MemberLoad,
}

/// A hash of an identity that is the same in every build.
pub(crate) fn member_hash(identity: &str) -> u64 {
    mixed(stable_hash(identity.bytes()))
}

/// How strongly a shard prefers a member.
pub(super) fn preference(shard: u32, member: u64) -> u64 {
    mixed(member ^ mixed(u64::from(shard).wrapping_add(1)))
}

/// The finalizer of SplitMix64.
fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Which one leads less for its weight, with one shard more.
pub(super) fn by_next_load(a: &MemberLoad, b: &MemberLoad) -> Ordering {
    let next = |member: &MemberLoad| 2 * u128::from(member.load) + 1;
    let weight = |member: &MemberLoad| u128::from(member.weight.max(1));
    (next(a) * weight(b)).cmp(&(next(b) * weight(a)))
}

/// How many of `total` shards each party is to lead, so that the load is as even as it can be.
/// Among equals a party that leads one keeps it.
pub(super) fn targets(total: u32, parties: &[Party<'_>]) -> Vec<u32> {
    let empty = |party: &Party<'_>| MemberLoad { load: 0, ..party.load };
    let mut targets: Vec<_> = parties.iter().map(empty).collect();
    for _ in 0..total {
        let with_room = targets.iter_mut().zip(parties).filter(|(target, _)| target.has_room());
        let next = with_room.min_by(|(a, of_a), (b, of_b)| {
            let keeps = |target: &MemberLoad, party: &Party<'_>| target.load < party.load.load;
            by_next_load(a, b)
                .then_with(|| keeps(b, of_b).cmp(&keeps(a, of_a)))
                .then_with(|| of_a.hash.cmp(&of_b.hash))
        });
        let Some((target, _)) = next else { break };
        target.load += 1;
    }
    targets.iter().map(|target| target.load).collect()
}

/// Gives each of these shards to one of the parties in turn, and calls `given` with both. None, if
/// each of them has as much as it may.
pub(super) fn distribute<'a>(
    shards: impl IntoIterator<Item = u32>,
    parties: &mut [Party<'a>],
    mut given: impl FnMut(u32, &'a Arc<str>),
) {
    for shard in shards {
        let with_room = parties.iter_mut().filter(|party| party.load.has_room());
        let best = with_room.min_by(|a, b| {
            let preferred =
                |party: &Party<'_>| Reverse((preference(shard, party.hash), party.hash));
            by_next_load(&a.load, &b.load).then_with(|| preferred(a).cmp(&preferred(b)))
        });
        if let Some(party) = best {
            party.load.load = party.load.load.saturating_add(1);
            given(shard, party.identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<Arc<str>> {
        (0..20).map(|index| format!("member-{index}").into()).collect()
    }

    fn parties<'a>(names: &'a [Arc<str>], weights: &[u32]) -> Vec<Party<'a>> {
        let party = |(identity, weight): (&'a Arc<str>, &u32)| Party {
            identity,
            hash: member_hash(identity),
            load: MemberLoad::new(0, *weight),
        };
        names.iter().zip(weights).map(party).collect()
    }

    fn loads(parties: &[Party<'_>]) -> Vec<u32> {
        parties.iter().map(|party| party.load.load).collect()
    }

    #[test]
    fn members_of_equal_weight_get_as_many_shards_within_one() {
        let names = names();
        for members in 1..20 {
            let mut parties = parties(&names, &vec![1; members]);
            distribute(0..64, &mut parties, |_, _| ());
            let loads = loads(&parties);
            let (least, most) = (loads.iter().min(), loads.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{loads:?}");
        }
    }

    #[test]
    fn a_member_of_twice_the_weight_gets_twice_as_many() {
        let names = names();
        let mut parties = parties(&names, &[1, 2, 1]);
        distribute(0..64, &mut parties, |_, _| ());
        assert_eq!(loads(&parties), [16, 32, 16]);
    }

    #[test]
    fn no_member_gets_more_than_it_may_lead() {
        let names = names();
        let mut parties = parties(&names, &[1, 5]);
        parties[0].load.max = Some(3);
        parties[1].load.max = Some(4);
        let mut given = 0;
        distribute(0..64, &mut parties, |_, _| given += 1);
        assert_eq!((loads(&parties), given), (vec![3, 4], 7));
    }

    #[test]
    fn who_leads_more_among_equals_keeps_it() {
        let names = names();
        let mut parties = parties(&names, &[1, 1, 1]);
        for most in 0..3 {
            (0..3).for_each(|index| parties[index].load.load = if index == most { 4 } else { 3 });
            let as_now: Vec<_> = parties.iter().map(|party| party.load.load).collect();
            assert_eq!(targets(10, &parties), as_now);
        }
    }

    #[test]
    fn the_targets_are_the_most_even_loads() {
        let names = names();
        let mut parties = parties(&names, &[2, 4, 1]);
        parties[0].load.load = 8;
        assert_eq!(targets(8, &parties), [2, 5, 1]);
        parties[1].load.max = Some(3);
        assert_eq!(targets(8, &parties), [3, 3, 2]);
    }

    #[test]
    fn the_order_of_the_members_does_not_matter() {
        let names = names();
        let mut one = parties(&names, &[1, 2, 1, 3]);
        let mut other: Vec<_> = one.iter().cloned().rev().collect();
        let (mut by_one, mut by_other) = (Vec::new(), Vec::new());
        distribute(0..64, &mut one, |shard, name| by_one.push((shard, name)));
        distribute(0..64, &mut other, |shard, name| by_other.push((shard, name)));
        assert_eq!(by_one, by_other);
    }

    #[test]
    fn the_shards_of_a_lost_member_spread_over_all_that_are_left() {
        let names = names();
        let mut parties = parties(&names, &[1; 8]);
        let mut of_first = Vec::new();
        distribute(0..64, &mut parties, |shard, name| {
            if *name == names[0] {
                of_first.push(shard);
            }
        });
        parties.remove(0);
        distribute(of_first, &mut parties, |_, _| ());
        assert_eq!(loads(&parties).iter().sum::<u32>(), 64);
        assert!(loads(&parties).iter().all(|load| *load == 9 || *load == 10));
    }
}
