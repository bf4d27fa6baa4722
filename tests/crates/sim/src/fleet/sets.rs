//! Sets: how many shards and members, and what these are like.

use proptest::prelude::*;

use super::Fleet;
use crate::sets::{MemberSetup, SetSetup};

/// What the members of a set have in common.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Even,
    Weighted,
    /// Each leads one seat at the most.
    Seats,
    /// Each leads only so many.
    Bounded(u32),
}

pub(super) fn set(fleet: Fleet) -> BoxedStrategy<Option<SetSetup>> {
    if fleet != Fleet::Sets {
        return Just(None).boxed();
    }
    let kind = prop_oneof![
        5 => Just(Kind::Even),
        2 => Just(Kind::Weighted),
        2 => Just(Kind::Seats),
        1 => (1..6u32).prop_map(Kind::Bounded),
    ];
    (kind, 3..=12u32, prop_oneof![Just(0u16), 0..9000u16], 1..=4u32, drain(), any::<bool>())
        .prop_flat_map(|(kind, shards, settle_ms, moves_at_once, drain_ms, keeps_names)| {
            let shards = if matches!(kind, Kind::Seats) { 1 + shards / 3 } else { shards };
            prop::collection::vec(member(kind), 2..=5).prop_map(move |members| {
                Some(SetSetup { shards, settle_ms, moves_at_once, drain_ms, keeps_names, members })
            })
        })
        .boxed()
}

fn drain() -> impl Strategy<Value = u16> {
    prop_oneof![2 => Just(0), 1 => 0..3000u16]
}

fn member(kind: Kind) -> impl Strategy<Value = MemberSetup> {
    let weight = match kind {
        Kind::Weighted => (1..=4u32).boxed(),
        _ => Just(1).boxed(),
    };
    let max_load = match kind {
        Kind::Seats => Just(Some(1)).boxed(),
        Kind::Bounded(max) => Just(Some(max)).boxed(),
        _ => Just(None).boxed(),
    };
    let check_ms = prop::option::weighted(0.3, proptest::sample::select(vec![300u16, 1000]));
    (
        weight,
        max_load,
        -1000..=1000i16,
        -1000..=1000i16,
        prop::bool::weighted(0.08),
        check_ms,
        prop_oneof![2 => Just(0u8), 1 => 0..40u8],
        prop::bool::weighted(0.04),
    )
        .prop_map(|(weight, max_load, ppm, wall_ms, aside, check_ms, unruly, mute)| {
            MemberSetup { weight, max_load, ppm, wall_ms, aside, check_ms, unruly, mute }
        })
}
