//! What a schedule consists of, and how one is generated and shrunk.

use std::time::Duration;

use incumbent::lock::Coverage;
use incumbent::protocol::CoolDown;
use proptest::prelude::*;

use super::campaigner::Standing;

#[derive(Debug, Clone)]
pub enum Fault {
    /// The process dies, and another one starts later.
    Crash {
        who: usize,
        back_ms: u16,
    },
    /// The process is stopped, and goes on later.
    Pause {
        who: usize,
        for_ms: u16,
    },
    Cut {
        who: usize,
        out: bool,
        back: bool,
        for_ms: u16,
    },
    /// A graceful stop; a new process starts once it has finished.
    Stop {
        who: usize,
    },
    Resign {
        who: usize,
    },
    WorkEnds {
        who: usize,
        panicked: bool,
    },
    /// The server refuses it every write.
    Denied {
        who: usize,
        for_ms: u16,
    },
    Hearing {
        who: usize,
        coverage: Coverage,
    },
    Look {
        who: usize,
    },
    AdminDelete,
    AdminPut,
    Outage {
        for_ms: u16,
    },
    ClockStep {
        by_ms: u16,
    },
    ChoriaCrash {
        which: usize,
    },
    ChoriaCut {
        which: usize,
        for_ms: u16,
    },
}

#[derive(Debug, Clone)]
pub struct Scenario {
    pub seed: u64,
    /// Leases are no longer than this.
    pub bucket_ttl: Duration,
    pub markers: bool,
    /// Whether the bucket is older than its TTL when the world begins.
    pub old_bucket: bool,
    pub choria: bool,
    pub campaigners: Vec<Standing>,
    /// When, in milliseconds, and what.
    pub faults: Vec<(u32, Fault)>,
}

/// How long faults go on.
pub const STORM_MS: u32 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fleet {
    /// Equal leases and defaults, and much trouble.
    Plain,
    /// Leases, policies, rights and hearing of all kinds.
    Mixed,
    /// Two of Choria's campaigners among ours.
    WithChoria,
    /// All strict, on a server whose clock is stepped.
    SteppedClock,
}

fn coverage() -> impl Strategy<Value = Coverage> {
    prop_oneof![
        6 => Just(Coverage::Full),
        2 => Just(Coverage::None),
        1 => Just(Coverage::Partial),
    ]
}

fn cool_down(fleet: Fleet) -> BoxedStrategy<CoolDown> {
    match fleet {
        Fleet::Plain | Fleet::WithChoria => Just(CoolDown::Proven).boxed(),
        Fleet::SteppedClock => Just(CoolDown::Strict).boxed(),
        Fleet::Mixed => prop_oneof![
            4 => Just(CoolDown::Proven),
            1 => Just(CoolDown::Strict),
            1 => Just(CoolDown::Campaign),
            1 => (0..3000u64).prop_map(|ms| CoolDown::For(Duration::from_millis(ms))),
        ]
        .boxed(),
    }
}

fn standing(fleet: Fleet) -> impl Strategy<Value = Standing> {
    let mixed = fleet == Fleet::Mixed;
    let leases = if mixed { vec![1000u16, 2000, 3000] } else { vec![u16::MAX] };
    (
        proptest::sample::select(leases),
        coverage(),
        if mixed { prop::bool::weighted(0.8).boxed() } else { Just(true).boxed() },
        cool_down(fleet),
        if mixed { prop_oneof![3 => Just(0u16), 1 => 0..2000u16].boxed() } else { Just(0).boxed() },
        if mixed { (0..3u8).boxed() } else { Just(0).boxed() },
        -1000..=1000i16,
        prop::bool::weighted(0.2),
        prop_oneof![2 => Just(0u8), 1 => 0..80u8],
    )
        .prop_map(
            |(lease_ms, coverage, reads, cool_down, hold_back_ms, priority, ppm, twin, unruly)| {
                Standing {
                    lease_ms,
                    coverage,
                    reads,
                    cool_down,
                    hold_back_ms,
                    priority,
                    ppm,
                    twin,
                    unruly,
                }
            },
        )
}

fn span() -> impl Strategy<Value = u16> + Clone {
    proptest::sample::select(vec![50u16, 300, 1000, 2500, 5000])
}

fn fault(fleet: Fleet) -> BoxedStrategy<Fault> {
    match fleet {
        Fleet::Plain | Fleet::Mixed => common_fault().boxed(),
        Fleet::WithChoria => prop_oneof![
            6 => common_fault(),
            1 => (0..2usize).prop_map(|which| Fault::ChoriaCrash { which }),
            1 => (0..2usize, span())
                .prop_map(|(which, for_ms)| Fault::ChoriaCut { which, for_ms }),
        ]
        .boxed(),
        Fleet::SteppedClock => prop_oneof![
            6 => common_fault(),
            1 => span().prop_map(|by_ms| Fault::ClockStep { by_ms }),
        ]
        .boxed(),
    }
}

fn common_fault() -> impl Strategy<Value = Fault> {
    let (who, short) = (0..5usize, span());
    prop_oneof![
        4 => (who.clone(), short.clone()).prop_map(|(who, back_ms)| Fault::Crash { who, back_ms }),
        4 => (who.clone(), short.clone()).prop_map(|(who, for_ms)| Fault::Pause { who, for_ms }),
        6 => (who.clone(), 0..3u8, short.clone()).prop_map(|(who, way, for_ms)| Fault::Cut {
            who,
            out: way != 1,
            back: way != 2,
            for_ms
        }),
        5 => who.clone().prop_map(|who| Fault::Stop { who }),
        3 => who.clone().prop_map(|who| Fault::Resign { who }),
        1 => (who.clone(), any::<bool>())
            .prop_map(|(who, panicked)| Fault::WorkEnds { who, panicked }),
        1 => (who.clone(), short.clone()).prop_map(|(who, for_ms)| Fault::Denied { who, for_ms }),
        1 => (who.clone(), coverage())
            .prop_map(|(who, coverage)| Fault::Hearing { who, coverage }),
        1 => who.prop_map(|who| Fault::Look { who }),
        9 => Just(Fault::AdminDelete),
        2 => Just(Fault::AdminPut),
        1 => short.prop_map(|for_ms| Fault::Outage { for_ms }),
    ]
}

pub fn scenario(fleet: Fleet) -> impl Strategy<Value = Scenario> {
    let fleet_sizes = if fleet == Fleet::WithChoria { 1..=4 } else { 2..=5 };
    let ttls = match fleet {
        Fleet::Mixed => vec![3000],
        Fleet::WithChoria => vec![4000, 8000],
        Fleet::Plain | Fleet::SteppedClock => vec![4000, 2000, 1000],
    };
    (
        any::<u64>().no_shrink(),
        proptest::sample::select(ttls),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(standing(fleet), fleet_sizes),
        prop::collection::vec((0..STORM_MS, fault(fleet)), 0..60),
    )
        .prop_map(move |(seed, ttl_ms, markers, old_bucket, mut campaigners, mut faults)| {
            faults.sort_by_key(|(at, _)| *at);
            if fleet == Fleet::SteppedClock {
                for campaigner in &mut campaigners {
                    campaigner.cool_down = CoolDown::Strict;
                }
            }
            Scenario {
                seed,
                bucket_ttl: Duration::from_millis(ttl_ms),
                markers,
                old_bucket,
                choria: fleet == Fleet::WithChoria,
                campaigners,
                faults,
            }
        })
}
