//! Fleets: how scenarios of a kind are generated and shrunk.

use std::fmt;
use std::time::Duration;

use incumbent::lock::Coverage;
use incumbent::protocol::CoolDown;
use proptest::prelude::*;

use crate::candidate::CandidateSetup;
use crate::choria::Pace;
use crate::faults::{Fault, any_fault};
use crate::moves::MoveSetup;
use crate::quorum::QuorumSetup;
use crate::scenario::{STORM, Scenario};
use crate::server::Retention;
use crate::sets::{MemberSetup, SetSetup};

/// What a scenario is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fleet {
    /// Equal leases and defaults, and many faults.
    Plain,
    /// Leases, policies, permissions and hearing of all kinds.
    Mixed,
    /// Leases below a second beside others, on locks of all kinds.
    Short,
    /// An operator changes the bucket's TTL.
    ChangedTtl,
    /// Two of Choria's candidates among ours.
    Choria,
    /// Two of Choria's candidates with a back-off, which lets them win sooner, among ours. The
    /// entry is never deleted: no rule of ours makes that safe beside them.
    ChoriaBackOff,
    /// All strict, on a server whose wall clock is stepped.
    SteppedClock,
    /// On a lock that never frees an entry, as a Lease: candidates judge by their own clocks.
    Judged,
    /// On rows of a database whose clock, which shows a newcomer what has passed, may be set back.
    Rows,
    /// All strict, on rows of a database whose clock is set both ways.
    SteppedRows,
    /// On a server that forgets acknowledged writes: every winner waits for two leases.
    Forgetful,
    /// Two of client-go's candidates among ours, on a lock that frees nothing. The entry is never
    /// deleted: theirs recreate it without a wait.
    ClientGo,
    /// On an object of a bucket, which is deleted, overwritten and set back.
    Objects,
    /// Two of vimeo/leaderelection's candidates among ours, on an object. Their clocks differ by as
    /// much as both allow for; nobody deletes the object, writes over it or sets it back.
    Vimeo,
    /// On rows of a database that fails over to replicas, without up to three of its writes.
    Failover,
    /// On rows of a database that acknowledges what its replica has, and shows what it lacks; the
    /// replica takes over, and its clock is another one.
    Synchronous,
    /// An administrator purges the key, or stores an old release again. No promise covers that.
    Tampered,
    /// A candidate's clock stops while its machine is paused. No promise covers a lease then.
    Frozen,
    /// Many candidates crash, and a sentinel beside each releases what it held, once its work has
    /// ended.
    Sentinel,
    /// Many candidates stop and resign, and drain first.
    Drains,
    /// Leaders hand over: as an operator wants it, since their check fails, or to one that is to
    /// be preferred.
    Moves,
    /// Leaders hand over, and the lock refuses the writes of some, for a while or for good.
    Refused,
    /// Each term claims a checkpoint, which its work saves; leaders whose clocks stopped save as
    /// well.
    Checkpoint,
    /// Members of a set share its shards.
    Sets,
    /// On a quorum of peers, whose voters may be replaced while they run.
    Quorum,
}

impl Fleet {
    /// The name of each, and its terms in a storm at least, on the average: fewer would show
    /// little.
    const TABLE: [(Self, &str, u64); 25] = [
        (Self::Plain, "plain", 5),
        (Self::Mixed, "mixed", 5),
        (Self::Short, "short", 10),
        (Self::ChangedTtl, "changed-ttl", 5),
        (Self::Choria, "choria", 1),
        (Self::ChoriaBackOff, "choria-back-off", 1),
        (Self::SteppedClock, "stepped-clock", 5),
        (Self::Judged, "judged", 5),
        (Self::Rows, "rows", 5),
        (Self::SteppedRows, "stepped-rows", 5),
        (Self::Forgetful, "forgetful", 1),
        (Self::ClientGo, "client-go", 1),
        (Self::Objects, "objects", 5),
        (Self::Vimeo, "vimeo", 3),
        (Self::Failover, "failover", 5),
        (Self::Synchronous, "synchronous", 3),
        (Self::Tampered, "tampered", 5),
        (Self::Frozen, "frozen", 5),
        (Self::Sentinel, "sentinel", 5),
        (Self::Drains, "drains", 5),
        (Self::Moves, "moves", 5),
        (Self::Refused, "refused", 5),
        (Self::Checkpoint, "checkpoint", 5),
        (Self::Sets, "sets", 20),
        (Self::Quorum, "quorum", 3),
    ];

    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(fleet, ..)| fleet)
    }

    fn row(self) -> (Self, &'static str, u64) {
        let row = Self::TABLE.into_iter().find(|(fleet, ..)| *fleet == self);
        row.expect("the table has a row for each fleet")
    }

    pub fn least_terms(self) -> u64 {
        self.row().2
    }

    /// Of this many schedules of the other fleets one is of this fleet: it has many elections, or
    /// many messages.
    pub fn every(self) -> u64 {
        match self {
            Self::Sets => 5,
            Self::Quorum => 20,
            _ => 1,
        }
    }

    /// Whether leaders hand over.
    fn moves(self) -> bool {
        matches!(self, Self::Moves | Self::Refused)
    }

    /// Whether the lock is an object of a bucket.
    fn is_on_objects(self) -> bool {
        matches!(self, Self::Objects | Self::Vimeo)
    }

    /// Beside every candidate of one fleet, and in every other scenario of those whose lock frees
    /// nothing or loses writes, whose terms drain, or whose leases are short.
    fn has_sentinels(self, seed: u64) -> bool {
        match self {
            Self::Sentinel => true,
            Self::Judged
            | Self::Failover
            | Self::Synchronous
            | Self::Forgetful
            | Self::Drains
            | Self::Short
            | Self::Moves => (seed / 2).is_multiple_of(2),
            _ => false,
        }
    }

    fn chorias(self) -> Option<Pace> {
        match self {
            Self::Choria => Some(Pace::Interval),
            Self::ChoriaBackOff => Some(Pace::BackOff),
            _ => None,
        }
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().1)
    }
}

fn coverage(fleet: Fleet) -> BoxedStrategy<Coverage> {
    match fleet {
        fleet if fleet.is_on_objects() => Just(Coverage::None).boxed(),
        Fleet::Tampered | Fleet::Quorum => Just(Coverage::Full).boxed(),
        _ => any_coverage().boxed(),
    }
}

pub(crate) fn any_coverage() -> impl Strategy<Value = Coverage> {
    prop_oneof![
        6 => Just(Coverage::Full),
        2 => Just(Coverage::None),
        1 => Just(Coverage::Partial),
        3 => Just(Coverage::Sampled),
    ]
}

fn cool_down(fleet: Fleet) -> BoxedStrategy<CoolDown> {
    match fleet {
        Fleet::SteppedClock | Fleet::SteppedRows => Just(CoolDown::Strict).boxed(),
        Fleet::Mixed | Fleet::Quorum => prop_oneof![
            4 => Just(CoolDown::Proven),
            1 => Just(CoolDown::Strict),
            2 => (0..3000u64).prop_map(|ms| CoolDown::For(Duration::from_millis(ms))),
        ]
        .boxed(),
        _ => Just(CoolDown::Proven).boxed(),
    }
}

/// How fast a clock runs. Without hints a write is seldom seen in the moment that it is stored:
/// then clocks must be far apart for it to matter.
fn ppm(fleet: Fleet) -> BoxedStrategy<i16> {
    let any = -1000..=1000i16;
    match fleet.is_on_objects() {
        true => prop_oneof![1 => Just(-1000), 1 => Just(1000), 1 => any].boxed(),
        false => any.boxed(),
    }
}

fn candidate_setup(fleet: Fleet) -> impl Strategy<Value = CandidateSetup> {
    let mixed = fleet == Fleet::Mixed;
    let leases = match fleet {
        Fleet::Mixed => vec![1000u16, 2000, 3000],
        Fleet::Short => vec![200, 250, 250, 500, 999, u16::MAX],
        _ => vec![u16::MAX],
    };
    (
        proptest::sample::select(leases),
        coverage(fleet),
        if mixed { prop::bool::weighted(0.8).boxed() } else { Just(true).boxed() },
        cool_down(fleet),
        if mixed { prop_oneof![3 => Just(0u16), 1 => 0..2000u16].boxed() } else { Just(0).boxed() },
        if mixed || fleet.moves() { (0..3u8).boxed() } else { Just(0).boxed() },
        ppm(fleet),
        prop::bool::weighted(0.2),
        prop_oneof![2 => Just(0u8), 1 => 0..80u8],
        on_objects(fleet),
        drain_ms(fleet),
        move_setup(fleet),
    )
        .prop_map(
            |(
                lease_ms,
                coverage,
                reads,
                cool_down,
                hold_back_ms,
                priority,
                ppm,
                twin,
                unruly,
                (wall_ms, shares),
                drain_ms,
                moves,
            )| {
                CandidateSetup {
                    lease_ms,
                    reads,
                    cool_down,
                    hold_back_ms,
                    priority,
                    ppm,
                    twin,
                    unruly,
                    wall_ms,
                    shares,
                    drain_ms,
                    moves,
                    ..CandidateSetup::new(coverage)
                }
            },
        )
}

fn drain_ms(fleet: Fleet) -> BoxedStrategy<u16> {
    match fleet {
        Fleet::Drains => (0..9000u16).boxed(),
        _ if fleet.moves() => prop_oneof![2 => Just(0), 1 => 0..5000u16].boxed(),
        _ => Just(0).boxed(),
    }
}

fn move_setup(fleet: Fleet) -> BoxedStrategy<Option<MoveSetup>> {
    if !fleet.moves() {
        return Just(None).boxed();
    }
    let prefer_after_ms = prop::option::of(0..8000u16);
    let check_ms = prop::option::of(proptest::sample::select(vec![300u16, 1000]));
    (prefer_after_ms, prop::bool::weighted(0.15), check_ms)
        .prop_map(|(prefer_after_ms, aside, check_ms)| {
            Some(MoveSetup { prefer_after_ms, aside, check_ms })
        })
        .boxed()
}

/// By how much a wall clock is ahead, and whether the candidate has its lock in common with others.
fn on_objects(fleet: Fleet) -> BoxedStrategy<(i16, bool)> {
    if fleet.moves() {
        return (-1000..=1000i16).prop_map(|wall_ms| (wall_ms, false)).boxed();
    }
    if fleet == Fleet::Quorum {
        // By less than a quorum is without a leader after its majority has restarted.
        return (0..400i16).prop_map(|wall_ms| (wall_ms, false)).boxed();
    }
    if !fleet.is_on_objects() {
        return Just((0, false)).boxed();
    }
    (-1000..=1000i16, prop::bool::weighted(0.2)).boxed()
}

fn retention(fleet: Fleet) -> BoxedStrategy<Retention> {
    match fleet {
        Fleet::Judged | Fleet::ClientGo | Fleet::Quorum => Just(Retention::Forever).boxed(),
        Fleet::Rows | Fleet::SteppedRows | Fleet::Failover | Fleet::Synchronous => {
            Just(Retention::Rows).boxed()
        }
        Fleet::Objects => any::<bool>().prop_map(|hashed| Retention::Objects { hashed }).boxed(),
        Fleet::Vimeo => Just(Retention::Objects { hashed: false }).boxed(),
        Fleet::Short
        | Fleet::Sentinel
        | Fleet::Drains
        | Fleet::Moves
        | Fleet::Refused
        | Fleet::Checkpoint
        | Fleet::Sets => prop_oneof![
            Just(Retention::Expires),
            Just(Retention::LeavesMarkers),
            Just(Retention::Forever),
            Just(Retention::Rows),
        ]
        .boxed(),
        _ => prop_oneof![Just(Retention::Expires), Just(Retention::LeavesMarkers)].boxed(),
    }
}

pub fn scenario(fleet: Fleet) -> impl Strategy<Value = Scenario> {
    let has_peers = fleet.chorias().is_some() || matches!(fleet, Fleet::ClientGo | Fleet::Vimeo);
    let fleet_sizes = match fleet {
        Fleet::Sets => 0..=0,
        Fleet::Quorum => 7..=7,
        _ if has_peers => 1..=4,
        _ => 2..=5,
    };
    let ttls = match fleet {
        Fleet::Mixed => vec![3000],
        Fleet::Choria | Fleet::ChoriaBackOff => vec![4000, 8000],
        _ => vec![4000, 2000, 1000],
    };
    let storm_ms = STORM.as_millis() as u32;
    (
        any::<u64>().no_shrink(),
        proptest::sample::select(ttls),
        retention(fleet),
        any::<bool>(),
        (prop::collection::vec(candidate_setup(fleet), fleet_sizes), set(fleet), quorum(fleet)),
        prop::collection::vec((0..storm_ms, any_fault(fleet)), 0..60),
    )
        .prop_map(
            move |(
                seed,
                ttl_ms,
                retention,
                old_bucket,
                (mut candidates, set, quorum),
                mut faults,
            )| {
                faults.sort_by_key(|(at, _)| *at);
                let bucket_ttl = Duration::from_millis(ttl_ms);
                if fleet == Fleet::Forgetful {
                    // Two leases by the slowest clock: the forgotten holder may still renew over a
                    // holder that was given its revision.
                    let leases = CoolDown::For(bucket_ttl.mul_f64(2.01));
                    candidates.iter_mut().for_each(|candidate| candidate.cool_down = leases);
                }
                if let Some(quorum) = &quorum {
                    candidates.truncate(quorum.processes());
                }
                if matches!(fleet, Fleet::Tampered | Fleet::Quorum) {
                    // A candidate without hints cannot know better. Those of a voter never cease.
                    faults.retain(|(_, fault)| !matches!(fault, Fault::HintCoverage { .. }));
                }
                if fleet.is_on_objects() {
                    // Changes cause no hints there.
                    faults.retain(|(_, fault)| {
                        !matches!(fault, Fault::HintCoverage { .. } | Fault::Look { .. })
                    });
                    // The wall clocks agree as Go's promise requires; else not at all, or exactly.
                    let skew = bucket_ttl.as_millis() as i16 / 4;
                    for candidate in &mut candidates {
                        candidate.wall_ms = match fleet {
                            Fleet::Vimeo => candidate.wall_ms.clamp(-skew, skew),
                            _ if old_bucket => 0,
                            _ => candidate.wall_ms * 10,
                        };
                    }
                }
                let per_write_ttl = seed % 2 == 0;
                if retention.vouches(per_write_ttl) {
                    // A candidate that read in the old bucket that there is no leader may
                    // create in the new one: no promise covers that.
                    faults.retain(|(_, fault)| !matches!(fault, Fault::Remade { .. }));
                }
                Scenario {
                    retention,
                    per_write_ttl,
                    old_bucket,
                    synchronous: fleet == Fleet::Synchronous,
                    sentinels: fleet.has_sentinels(seed),
                    checkpoint: fleet == Fleet::Checkpoint,
                    chorias: fleet.chorias(),
                    client_gos: if fleet == Fleet::ClientGo { 2 } else { 0 },
                    vimeos: if fleet == Fleet::Vimeo { 2 } else { 0 },
                    set,
                    quorum,
                    faults,
                    ..Scenario::new(seed, bucket_ttl, candidates)
                }
            },
        )
}

/// What the members of a set have in common.
#[derive(Debug, Clone, Copy)]
enum SetKind {
    Even,
    Weighted,
    /// Each leads one seat at most.
    Seats,
    /// Each leads only this many.
    Bounded(u32),
}

fn set(fleet: Fleet) -> BoxedStrategy<Option<SetSetup>> {
    if fleet != Fleet::Sets {
        return Just(None).boxed();
    }
    let kind = prop_oneof![
        5 => Just(SetKind::Even),
        2 => Just(SetKind::Weighted),
        2 => Just(SetKind::Seats),
        1 => (1..6u32).prop_map(SetKind::Bounded),
    ];
    (kind, 3..=12u32, prop_oneof![Just(0u16), 0..9000u16], 1..=4u32, drain(), any::<bool>())
        .prop_flat_map(|(kind, shards, settle_ms, moves_at_once, drain_ms, keeps_names)| {
            let shards = if matches!(kind, SetKind::Seats) { 1 + shards / 3 } else { shards };
            prop::collection::vec(member(kind), 2..=5).prop_map(move |members| {
                Some(SetSetup { shards, settle_ms, moves_at_once, drain_ms, keeps_names, members })
            })
        })
        .boxed()
}

fn quorum(fleet: Fleet) -> BoxedStrategy<Option<QuorumSetup>> {
    if fleet != Fleet::Quorum {
        return Just(None).boxed();
    }
    let size = prop_oneof![2 => Just(3usize), 1 => Just(5)];
    // With what a message takes besides, four of 40 ms are within the 250 ms of a write.
    (size, any::<bool>(), 0..30u8, 0..40u8)
        .prop_map(|(size, named, lost, late_ms)| Some(QuorumSetup { size, named, lost, late_ms }))
        .boxed()
}

fn drain() -> impl Strategy<Value = u16> {
    prop_oneof![2 => Just(0), 1 => 0..3000u16]
}

fn member(kind: SetKind) -> impl Strategy<Value = MemberSetup> {
    let weight = match kind {
        SetKind::Weighted => (1..=4u32).boxed(),
        _ => Just(1).boxed(),
    };
    let max_load = match kind {
        SetKind::Seats => Just(Some(1)).boxed(),
        SetKind::Bounded(max) => Just(Some(max)).boxed(),
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
