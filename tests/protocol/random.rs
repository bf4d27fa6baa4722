//! Random schedules of faults: at most one leads, and when the faults cease somebody does.
//!
//! Deterministic unless told otherwise: `INCUMBENT_SEED=n` draws other schedules, `INCUMBENT_CASES=n` more of them. A
//! failure prints the smallest schedule that fails, and what happened in it.

use std::cell::Cell;
use std::time::Duration;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::scenario::{Fleet, STORM_MS, Scenario, scenario};
use super::world::World;
use incumbent::lock::Coverage;
use incumbent::protocol::CoolDown;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How long after the last fault somebody must lead, at the latest.
///
/// An entry that nobody renews lives for a TTL and 2 ms for each second of it twice (the drift of a cool-down that it covers),
/// or for as long as a policy of [`CoolDown::For`] asks; its marker or a tombstone keeps those out who may not read for a
/// TTL more; the winner then cools down for a TTL, for what its policy says, or for what Choria's campaigners need. On top
/// come hold-back, the slack of a silent lock, the longest poll, and the time in which what was sent before the faults
/// ceased still arrives.
fn bound(scenario: &Scenario) -> Duration {
    let ttl = scenario.bucket_ttl.mul_f64(1.01);
    let policy = |c: CoolDown| match c {
        CoolDown::For(duration) => duration,
        CoolDown::Campaign => ttl,
        _ => Duration::ZERO,
    };
    let of_all = |f: &dyn Fn(usize) -> Duration| {
        (0..scenario.campaigners.len()).map(f).max().unwrap_or_default()
    };
    let policies = of_all(&|who| policy(scenario.campaigners[who].cool_down));
    let hold_back =
        of_all(&|who| Duration::from_millis(u64::from(scenario.campaigners[who].hold_back_ms)));
    let choria = if scenario.choria { Duration::from_secs(10) } else { Duration::ZERO };
    ttl * 3 + policies * 2 + hold_back + choria + Duration::from_secs(7 + 3 + 8)
}

/// What was seen, so that nothing can pass by not happening.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    terms: u64,
    peer_terms: u64,
}

/// Runs one schedule.
fn run(scenario: &Scenario, with_history: bool) -> (Seen, Option<String>) {
    let mut world = World::new(scenario, with_history);
    let storm = Duration::from_millis(u64::from(STORM_MS));
    world.run(storm);
    let checker = &world.checker;
    let seen = Seen { terms: checker.terms, peer_terms: checker.peer_terms };
    world.run(storm + bound(scenario));
    if world.checker.violation.is_none() {
        if !world.checker.somebody_leads() {
            world.checker.fail("nobody leads though all is well again".to_owned());
        }
        let before = world.checker.terms;
        world.run(storm + bound(scenario) + scenario.bucket_ttl * 4);
        if world.checker.terms != before || !world.checker.somebody_leads() {
            world.checker.fail("the leader does not stay though all is well".to_owned());
        }
        if let Some(who) = world.campaigners.iter().position(|c| c.stopping_since.is_some()) {
            world.checker.fail(format!("campaigner {who} does not come to its end"));
        }
    }
    let violation = world.checker.violation.take();
    (seen, violation.map(|what| format!("{what}, at {:?}\n{}", world.now, world.history())))
}

fn check(fleet: Fleet, cases: u32, least_terms_a_case: u64) {
    let seed = from_environment("INCUMBENT_SEED").unwrap_or(0);
    let cases = from_environment("INCUMBENT_CASES").map_or(cases, |cases| cases as u32);
    let mut bytes = [fleet as u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let (seen, ran, failed) = (Cell::new(Seen::default()), Cell::new(0u64), Cell::new(None));
    let outcome = TestRunner::new_with_rng(config, random).run(&scenario(fleet), |scenario| {
        let (new, violation) = run(&scenario, false);
        let before = seen.get();
        seen.set(Seen {
            terms: before.terms + new.terms,
            peer_terms: before.peer_terms + new.peer_terms,
        });
        ran.set(ran.get() + 1);
        let Some(what) = violation else { return Ok(()) };
        failed.set(failed.get().or(Some(ran.get())));
        Err(TestCaseError::fail(what))
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(_, scenario)) => {
            let (_, violation) = run(&scenario, true);
            let what = violation.unwrap_or_default();
            let case = failed.get().unwrap_or_default();
            panic!("schedule {case} of seed {seed}, shrunk:\n{scenario:#?}\n{what}");
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
    let Seen { terms, peer_terms } = seen.get();
    println!("{fleet:?}: {cases} schedules, {terms} terms, {peer_terms} of Choria's");
    let least = least_terms_a_case * u64::from(cases);
    assert!(terms >= least, "{terms} terms in {cases} schedules: too few to show anything");
    let choria = fleet == Fleet::WithChoria;
    assert!(!choria || peer_terms * 2 >= least, "{peer_terms} terms of Choria's: too few");
}

#[test]
fn one_leads_whatever_happens_to_equal_campaigners() {
    check(Fleet::Plain, 1000, 5);
}

#[test]
fn one_leads_whatever_happens_to_a_mixed_fleet() {
    check(Fleet::Mixed, 1000, 5);
}

#[test]
fn one_leads_beside_campaigners_of_choria() {
    check(Fleet::WithChoria, 1000, 1);
}

#[test]
fn one_leads_though_the_clock_of_the_server_is_stepped() {
    check(Fleet::SteppedClock, 1000, 5);
}

#[test]
fn a_quiet_hour_costs_the_renewals_of_one() {
    use super::campaigner::Standing;
    let standing = |coverage| Standing {
        lease_ms: 4000,
        coverage,
        reads: true,
        cool_down: CoolDown::Proven,
        hold_back_ms: 0,
        priority: 0,
        ppm: 500,
        twin: false,
        unruly: 0,
    };
    let requests = |coverage| {
        let scenario = Scenario {
            seed: 1,
            bucket_ttl: Duration::from_secs(4),
            markers: true,
            old_bucket: true,
            choria: false,
            campaigners: vec![standing(coverage); 5],
            faults: Vec::new(),
        };
        let mut world = World::new(&scenario, false);
        let calm = Duration::from_millis(u64::from(STORM_MS)) + bound(&scenario);
        world.run(calm);
        let before = world.checker.requests;
        world.run(calm + Duration::from_secs(3600));
        assert_eq!(world.checker.violation, None);
        world.checker.requests - before
    };
    let renewals = 3600 * 3 / 4;
    assert!(requests(Coverage::Full) <= renewals + 10, "{}", requests(Coverage::Full));
    // Four that poll every five seconds, as FIVE_SEC ends, on the average.
    let polls = 4 * 3600 / 5;
    assert!(requests(Coverage::None) <= renewals + polls + polls / 4);
}
