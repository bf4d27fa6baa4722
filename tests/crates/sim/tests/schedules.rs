//! Random schedules of faults: at most one leads, and when the faults cease there is a leader.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent::lock::Coverage;
use incumbent_sim::{
    CandidateSetup, Checkpoints, Fleet, Moved, Releases, Report, STORM, Scenario, Schedule,
    SetFigures, World, bound,
};

/// The number of schedules of each fleet, unless `SCHEDULES` is set.
const SCHEDULES: u64 = 1000;

fn check(fleet: Fleet) {
    let count = std::env::var("SCHEDULES").map_or(SCHEDULES, |n| n.parse().expect("a number"));
    let count = count.div_ceil(fleet.every());
    // Of ten schedules, seven are the same in every run, and three are others.
    let fixed = count * 7 / 10;
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let seeds = (0..fixed).chain(fresh..fresh + count - fixed);
    let mut sum = Report::default();
    for schedule in seeds.map(|seed| Schedule { fleet, seed }) {
        let report = schedule.run();
        if report.violation.is_some() {
            let (scenario, report) = schedule.shrink(Duration::from_secs(60)).unwrap();
            let violation = report.violation.unwrap();
            panic!("{scenario:#?}\n{violation}\nreplay: make sim SEED={schedule}");
        }
        sum += &report;
    }
    let Report { terms, peer_terms, drains, moved, sets, releases, .. } = sum;
    println!("{fleet}: {count} schedules, {terms} terms, {peer_terms} of others, {drains} drained");
    let least = fleet.least_terms() * count;
    assert!(terms >= least, "{terms} terms: too few to show anything");
    let peers =
        matches!(fleet, Fleet::Choria | Fleet::ChoriaBackOff | Fleet::ClientGo | Fleet::Vimeo);
    assert!(!peers || peer_terms * 2 >= least, "{peer_terms} terms of others: too few");
    assert!(fleet != Fleet::Drains || drains * 2 >= count, "{drains} drains: too few");
    if fleet == Fleet::Moves {
        println!("{moved}");
        let Moved { handovers, voluntary, succeeded, refused, carried } = moved;
        assert!(handovers > count && voluntary * 4 > count, "{moved}: too few");
        assert!(succeeded * 3 > handovers && refused * 10 > count, "{moved}: too few");
        assert!(carried * 3 > count, "{moved}: too few");
    }
    if fleet == Fleet::Checkpoint {
        println!("{}", sum.checkpoints);
        let Checkpoints { claims, unclaimed, saves, superseded, late } = sum.checkpoints;
        assert!(saves > claims * 2 && claims > count * 3, "{}: too few", sum.checkpoints);
        assert!(unclaimed.min(superseded).min(late) > count / 20, "{}: too few", sum.checkpoints);
    }
    if fleet == Fleet::Sets {
        println!("{sets}");
        let SetFigures { handovers, accepted, given_back, moves, least, .. } = sets;
        assert!(handovers > count * 3 && accepted > count && given_back > 0, "{sets}: too few");
        assert!(moves <= least + least / 10 + 10, "{sets}: too many moves");
    }
    if fleet == Fleet::Sentinel {
        println!("{releases}");
        let Releases { stored, after_conflict, late, late_writes, .. } = releases;
        assert!(stored > count, "{releases}: too few releases");
        assert!(after_conflict.min(late).min(late_writes) >= count / 100, "{releases}: too few");
    }
}

/// A test of each of these fleets.
macro_rules! fleets {
    ($($(#[$doc:meta])* $test:ident: $fleet:ident,)+) => {
        $(
            $(#[$doc])*
            #[test]
            fn $test() {
                check(Fleet::$fleet);
            }
        )+
    };
}

fleets! {
    equal_candidates_have_at_most_one_leader: Plain,
    a_mixed_fleet_has_at_most_one_leader: Mixed,
    at_most_one_leads_by_leases_below_a_second: Short,
    at_most_one_leads_while_the_ttl_is_changed: ChangedTtl,
    at_most_one_leads_beside_choria_candidates: Choria,
    at_most_one_leads_beside_choria_candidates_that_back_off: ChoriaBackOff,
    at_most_one_leads_while_the_server_clock_is_stepped: SteppedClock,
    at_most_one_leads_on_a_lock_without_expiry: Judged,
    at_most_one_leads_beside_client_go_candidates: ClientGo,
    at_most_one_leads_on_an_object: Objects,
    at_most_one_leads_across_a_synchronous_failover: Synchronous,
    at_most_one_leads_beside_vimeo_candidates: Vimeo,
    at_most_one_leads_on_rows_that_expire_by_the_server_clock: Rows,
    at_most_one_leads_on_rows_across_a_lossy_failover: Failover,
    at_most_one_leads_on_rows_while_the_server_clock_is_stepped: SteppedRows,
    at_most_one_leads_while_the_server_loses_acknowledged_writes: Forgetful,
    at_most_one_leads_among_those_that_saw_the_key_untampered: Tampered,
    /// Once the lease is over in which it could not know better, all is as before.
    a_stopped_clock_costs_at_most_one_lease: Frozen,
    at_most_one_leads_while_sentinels_release_what_the_dead_held: Sentinel,
    at_most_one_leads_while_terms_drain: Drains,
    leaders_hand_over_to_those_that_are_ready: Moves,
    /// A candidate whose writes are refused neither pulls the leadership nor stays sick once they
    /// are accepted.
    refused_writers_leave_the_leadership_to_others: Refused,
    /// Those that lead, and those that believe it.
    checkpoint_keeps_what_was_acknowledged: Checkpoint,
    members_of_a_set_share_its_shards_with_few_moves: Sets,
    at_most_one_leads_on_a_quorum_of_peers: Quorum,
}

#[test]
fn a_schedule_plays_out_the_same_way_each_time() {
    let schedule: Schedule = "mixed:7".parse().unwrap();
    assert_eq!(schedule.to_string(), "mixed:7");
    let [once, again] = [(); 2].map(|()| format!("{:?}", schedule.run()));
    assert_eq!(once, again);
}

#[test]
fn a_quiet_hour_costs_the_renewals_of_one_leader() {
    let requests = |coverage| {
        let setup = CandidateSetup { ppm: 500, ..CandidateSetup::new(coverage) };
        let scenario = Scenario::new(1, Duration::from_secs(4), vec![setup; 5]);
        let mut world = World::new(&scenario, false);
        let calm = STORM + bound(&scenario);
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
