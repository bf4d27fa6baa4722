//! Many elections of the same processes, one after another.
//!
//! What goes wrong with a process or with the server goes wrong at the same instant in every
//! election, and a process is in the same queue group for all of them. The elections differ in what
//! is drawn, and in faults of their own. A process that stops gracefully comes back in each
//! election as soon as its candidate there has finished.

use std::time::Duration;

use fastrand::Rng;
use incumbent::lock::Coverage;

use crate::candidate::CandidateSetup;
use crate::faults::Fault;
use crate::figures::Report;
use crate::run::{bound, play_out};
use crate::scenario::{STORM, Scenario};
use crate::server::Retention;
use crate::world::{GROUPS, SMALL, World};

const LEASE: Duration = Duration::from_secs(4);
/// Of a process, on the average.
const FAULTS: usize = 5;

/// Elections in which the same processes take part.
#[derive(Debug)]
pub struct ManyElections {
    seed: u64,
    processes: usize,
    /// What goes wrong with processes and with the server.
    common: Vec<(u32, Fault)>,
}

/// What was seen in one of them.
#[derive(Debug)]
pub struct Played {
    pub report: Report,
    /// How long there was no leader that was not suspended, at the longest, while all members of
    /// some queue groups were.
    pub with_groups_suspended: Duration,
}

impl ManyElections {
    /// So many processes, more than a hundred.
    pub fn new(seed: u64, processes: usize) -> Self {
        assert!(processes > SMALL, "a small fleet has other queue groups");
        let mut random = Rng::with_seed(seed);
        let mut common = Vec::new();
        for who in 0..processes {
            for _ in 0..random.usize(..=FAULTS * 2) {
                common.push((instant(&mut random), of_process(&mut random, who)));
            }
        }
        // Each group once, and seven at a time until the storm ends.
        let group_pauses = [(12_000, 0..4, 10_000), (28_000, 4..GROUPS, 10_000)];
        for (at, groups, for_ms) in group_pauses.into_iter().chain([(50_000, 1..GROUPS, 10_000)]) {
            let members = (0..processes).filter(|who| groups.contains(&(who % GROUPS)));
            common.extend(members.map(|who| (at, Fault::Pause { who, for_ms })));
        }
        let every_ms = u16::try_from(20_000 / processes.max(1)).unwrap_or(u16::MAX);
        common.push((20_000, Fault::RollingRestart { every_ms }));
        for for_ms in [1500, 6000] {
            common.push((instant(&mut random), Fault::Outage { for_ms }));
            if !retention(seed).vouches(true) {
                common.push((instant(&mut random), Fault::Remade { after_ms: for_ms }));
            }
        }
        Self { seed, processes, common }
    }

    /// One of the elections.
    pub fn scenario(&self, election: u64) -> Scenario {
        let seed = self.seed ^ (election + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Rng::with_seed(seed);
        let setup = |who: usize| {
            let ppm = (who % 2000) as i16 - 1000;
            CandidateSetup { ppm, ..CandidateSetup::new(Coverage::Sampled) }
        };
        let mut faults = self.common.clone();
        for _ in 0..random.usize(..4) {
            faults.push((instant(&mut random), Fault::AdminDelete));
        }
        for _ in 0..random.usize(..2) {
            faults.push((instant(&mut random), Fault::AdminPut));
        }
        for _ in 0..self.processes {
            let who = random.usize(..self.processes);
            let fault = match random.u8(..3) {
                0 => Fault::Resign { who },
                1 => Fault::WorkEnds { who, panicked: random.bool() },
                _ => Fault::Look { who },
            };
            faults.push((instant(&mut random), fault));
        }
        faults.sort_by_key(|(at, _)| *at);
        Scenario {
            retention: retention(self.seed),
            further_elections: Some(self.seed),
            faults,
            ..Scenario::new(seed, LEASE, (0..self.processes).map(setup).collect())
        }
    }

    /// Plays one of them out. Then all members of some queue groups are suspended, twice.
    pub fn play(&self, election: u64) -> Played {
        let scenario = self.scenario(election);
        let mut world = World::new(&scenario, false);
        let mut report = play_out(&mut world, &scenario);
        let mut longest = Duration::ZERO;
        for suspended in [0..4, 1..GROUPS] {
            if report.violation.is_none() {
                longest = longest.max(suspend(&mut world, &scenario, suspended));
                report.violation = world.violation();
            }
        }
        Played { report, with_groups_suspended: longest }
    }
}

/// Suspends all processes of `groups`, and ends those of the next group if there is one besides the
/// last. Returns how long there is no leader that is not suspended.
fn suspend(world: &mut World, scenario: &Scenario, groups: std::ops::Range<usize>) -> Duration {
    let (began, bound) = (world.now(), bound(scenario));
    let for_ms = u16::try_from((bound + LEASE).as_millis()).unwrap_or(u16::MAX);
    let is_suspended = |who: &usize| groups.contains(&(who % GROUPS));
    for who in 0..scenario.candidates.len() {
        if is_suspended(&who) {
            world.inflict(&Fault::Pause { who, for_ms });
        } else if groups.end + 1 < GROUPS && who % GROUPS == groups.end {
            world.inflict(&Fault::Crash { who, back_ms: for_ms });
        }
    }
    let awake = |world: &World| {
        let mut awake = (0..scenario.candidates.len()).filter(|who| !is_suspended(who));
        awake.any(|who| world.checker.is_leading(who))
    };
    while !awake(world) && world.checker.violation.is_none() {
        if world.now() > began + bound {
            world.checker.fail(format!("no leader while groups {groups:?} are suspended"));
        }
        world.run(world.now() + Duration::from_millis(100));
    }
    let without = world.now() - began;
    world.run(began + bound + LEASE * 3);
    if !world.checker.has_leader() {
        world.checker.fail("no leader after the suspension".to_owned());
    }
    without
}

fn retention(seed: u64) -> Retention {
    if seed.is_multiple_of(2) { Retention::Expires } else { Retention::LeavesMarkers }
}

fn instant(random: &mut Rng) -> u32 {
    random.u32(..STORM.as_millis() as u32)
}

/// One of the faults of a process, about as often as in other fleets.
fn of_process(random: &mut Rng, who: usize) -> Fault {
    let for_ms = [50, 300, 1000, 2500, 5000][random.usize(..5)];
    match random.u8(..44) {
        0..8 => Fault::Crash { who, back_ms: for_ms },
        8..16 => Fault::Pause { who, for_ms },
        16..28 => {
            let way = random.u8(..3);
            Fault::Cut { who, out: way != 1, back: way != 2, for_ms }
        }
        28..30 => Fault::Suspend { who, for_ms },
        30..40 => Fault::Stop { who },
        40..42 => Fault::Denied { who, for_ms: Some(for_ms) },
        _ => {
            let coverages = [Coverage::None, Coverage::Partial, Coverage::Sampled, Coverage::Full];
            Fault::HintCoverage { who, coverage: coverages[random.usize(..4)] }
        }
    }
}
