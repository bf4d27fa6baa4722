//! Fleets of thousands whose hints are shared by queue groups.

use std::ops::Range;
use std::time::Duration;

use incumbent::lock::Coverage;
use incumbent_sim::{
    CandidateSetup, Fault, ManyElections, Played, Retention, STORM, Scenario, World, bound, run,
};

/// `FLEET=10000 cargo test --release -p incumbent-sim --test large` plays larger ones.
const FLEET: usize = 1_000;
const LEASE: Duration = Duration::from_secs(4);

fn fleet_size() -> usize {
    std::env::var("FLEET").map_or(FLEET, |n| n.parse().expect("a number"))
}

fn scenario(seed: u64, coverage: Coverage, faults: Vec<(u32, Fault)>) -> Scenario {
    let setup = |who: usize| {
        let ppm = (who % 2000) as i16 - 1000;
        CandidateSetup { ppm, ..CandidateSetup::new(coverage) }
    };
    let candidates = (0..fleet_size()).map(setup).collect();
    Scenario { faults, ..Scenario::new(seed, LEASE, candidates) }
}

/// Those of a queue group, which candidates join in turn.
fn group(number: usize) -> impl Iterator<Item = usize> {
    (number..fleet_size()).step_by(8)
}

fn paused(who: impl Iterator<Item = usize>, at: u32, for_ms: u16) -> Vec<(u32, Fault)> {
    who.map(|who| (at, Fault::Pause { who, for_ms })).collect()
}

/// Plays the same faults out with several seeds.
fn check(seeds: Range<u64>, faults: &[(u32, Fault)]) {
    for seed in seeds {
        let scenario = scenario(seed, Coverage::Sampled, faults.to_vec());
        let report = run(&scenario, false);
        assert!(report.violation.is_none(), "seed {seed}: {}", report.violation.unwrap());
        assert!(report.terms > 1, "seed {seed}: {} terms", report.terms);
        println!("seed {seed}: {} terms, recovered after {:?}", report.terms, report.recovered);
    }
}

fn crashes(at: impl Iterator<Item = u32>) -> impl Iterator<Item = (u32, Fault)> {
    at.map(|at| (at, Fault::CrashLeader { back_ms: 3000, writing: false }))
}

#[test]
fn crashes_evictions_and_outages_pass() {
    let mut faults: Vec<_> = crashes((5..55).step_by(9).map(|s| s * 1000)).collect();
    faults.extend((8..55).step_by(9).map(|s| (s * 1000, Fault::AdminDelete)));
    faults.extend([
        (20_000, Fault::Outage { for_ms: 1500 }),
        (41_000, Fault::Outage { for_ms: 6000 }),
    ]);
    faults.extend((0..fleet_size() / 4).map(|who| {
        (12_000, Fault::Cut { who: who * 3, out: who % 2 == 0, back: who % 3 > 0, for_ms: 30_000 })
    }));
    check(0..4, &faults);
}

/// What goes to a group whose members are all suspended is lost.
#[test]
fn a_leader_is_found_while_whole_groups_are_paused() {
    for groups in [1, 4, 7] {
        let suspended = (0..groups).flat_map(group);
        let mut faults = paused(suspended, 10_000, 60_000);
        faults.extend(crashes((15..55).step_by(10).map(|s| s * 1000)));
        check(0..2, &faults);
    }
}

/// Every hint of the vacancy is lost, and so are most polls.
#[test]
fn a_leader_is_found_after_all_but_a_few_were_paused() {
    let mut faults = paused(10..fleet_size(), 10_000, 49_000);
    faults.extend(crashes([55_000].into_iter()));
    check(0..4, &faults);
}

/// The broker's load does not grow with the fleet.
#[test]
fn a_quiet_hour_costs_a_renewal_and_the_polls_of_eight_standbys() {
    let scenario = scenario(1, Coverage::Sampled, Vec::new());
    let mut world = World::new(&scenario, false);
    // Until rates are known: standbys that have heard nothing poll, at longer and longer intervals.
    let settled = STORM + bound(&scenario) + Duration::from_secs(3600);
    world.run(settled);
    let before = world.checker.requests;
    world.run(settled + Duration::from_secs(3600));
    assert_eq!(world.checker.violation, None);
    let requests = world.checker.requests - before;
    let renewals = 3600 * 3 / 4;
    println!("{} standbys, {requests} requests, {renewals} renewals", fleet_size());
    let least = fleet_size() as u64 * 6; // each polls every ten minutes at the least
    assert!(requests < renewals * 16 + least, "{requests} requests");
}

/// A vacancy wakes as many as there are groups, and most of these hear of the first create.
#[test]
fn few_create_after_an_eviction() {
    let first = STORM + Duration::from_secs(60);
    let evictions = (0..50).map(|number| first + LEASE * 2 * number);
    let faults: Vec<_> = evictions.map(|at| (at.as_millis() as u32, Fault::AdminDelete)).collect();
    let (count, scenario) = (faults.len() as u32, scenario(1, Coverage::Sampled, faults));
    let mut world = World::new(&scenario, false);
    world.run(first - Duration::from_secs(1));
    let before = (world.checker.creates, world.checker.terms);
    world.run(first + LEASE * 2 * count);
    let (creates, terms) = (world.checker.creates - before.0, world.checker.terms - before.1);
    println!("{} standbys, {creates} creates after {terms} evictions", fleet_size());
    assert_eq!(terms, u64::from(count));
    assert!(creates <= terms * 8, "{creates} creates");
}

/// As on Kubernetes: the lock frees nothing, and its watch delivers each renewal.
#[test]
fn few_of_the_standbys_of_a_lease_write_after_a_crash() {
    for standbys in [100, 1_000] {
        let setup = |who: usize| {
            let ppm = (who % 2000) as i16 - 1000;
            CandidateSetup { ppm, ..CandidateSetup::new(Coverage::Full) }
        };
        let crashed = STORM + Duration::from_secs(60);
        let crashes = (0..10).map(|number| crashed + LEASE * 4 * number);
        let leader = Fault::CrashLeader { back_ms: 2000, writing: false };
        let faults = crashes.map(|at| (at.as_millis() as u32, leader.clone())).collect();
        let candidates = (0..=standbys).map(setup).collect();
        let scenario = Scenario {
            retention: Retention::Forever,
            faults,
            ..Scenario::new(1, LEASE, candidates)
        };
        let mut world = World::new(&scenario, false);
        world.run(crashed - Duration::from_secs(1));
        let (before, terms) = (world.checker.requests, world.checker.terms);
        world.run(crashed + LEASE * 40);
        assert_eq!(world.checker.violation, None);
        let (requests, terms) = (world.checker.requests - before, world.checker.terms - terms);
        println!("{standbys} standbys, {requests} requests around {terms} crashes of a leader");
        assert_eq!(terms, 10);
        assert!(requests < terms * 60, "{requests} requests");
    }
}

/// Each process takes part in every election, and what goes wrong with it concerns its candidate in
/// each. `ELECTIONS=1000 PROCESSES=1000` plays more of them.
#[test]
fn many_elections_of_many_processes_keep_their_promises() {
    let number = |name, default| std::env::var(name).map_or(default, |n| n.parse().expect(name));
    let (elections, processes) = (number("ELECTIONS", 20), number("PROCESSES", 250));
    // A bucket that leaves markers, and one that does not.
    for seed in [1, 2] {
        let many = ManyElections::new(seed, usize::try_from(processes).expect("a number"));
        let (mut terms, mut slowest, mut suspended) = (0, Duration::ZERO, Duration::ZERO);
        for election in 0..elections {
            let Played { report, with_groups_suspended } = many.play(election);
            let found = report.violation.map(|violation| violation.what);
            assert_eq!(found, None, "seed {seed}, election {election}");
            terms += report.terms;
            slowest = slowest.max(report.recovered.unwrap_or_default());
            suspended = suspended.max(with_groups_suspended);
        }
        println!(
            "seed {seed}: {elections} elections of {processes} processes, {terms} terms, a leader \
             {slowest:?} after the last fault, {suspended:?} with whole groups suspended"
        );
        assert!(terms > elections * 2, "{terms} terms: too few to show anything");
        assert!(suspended > LEASE / 2, "no leader was suspended");
    }
}
