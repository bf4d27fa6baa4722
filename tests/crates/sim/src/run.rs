//! Plays a scenario out: a storm of faults, then calm, in which a candidate must become leader and
//! stay.

use std::time::Duration;

use incumbent::protocol::CoolDown;

use crate::figures::{Report, Violation};
use crate::scenario::{STORM, Scenario};
use crate::server::Time;
use crate::sets;
use crate::world::World;

/// How long after the last fault there must be a leader, at the latest.
///
/// An entry without renewals lives for a TTL and 2 ms for each second of it twice (the drift of a
/// cool-down that it covers), or for as long as a policy of [`CoolDown::For`] requires; its marker
/// or a tombstone keeps those out who may not read for a TTL more; the winner then cools down for a
/// TTL, for what its policy requires, or for what Choria's candidates need. On top come hold-back,
/// the slack of a silent lock, the longest poll, and the time in which what was sent before the
/// faults ceased still arrives.
pub fn bound(scenario: &Scenario) -> Duration {
    let ttl = scenario.longest_ttl().mul_f64(1.01);
    let policy = |cool_down: CoolDown| match cool_down {
        CoolDown::For(duration) => duration,
        _ => Duration::ZERO,
    };
    let fleet = &scenario.candidates;
    let policies = fleet.iter().map(|c| policy(c.cool_down)).max().unwrap_or_default();
    let takeover_delay = fleet.iter().map(|c| c.hold_back_ms).max().unwrap_or_default();
    // On a lock that frees nothing, whatever an administrator wrote is waited for as if it were of
    // Choria.
    let foreign = scenario.chorias.is_some() || !scenario.retention.frees();
    let choria = if foreign { Duration::from_secs(11) } else { Duration::ZERO };
    // Candidates that are not ready let the others go first, before and after a tombstone expires.
    let turns = if scenario.has_sick() { ttl * 2 + Duration::from_secs(2) } else { Duration::ZERO };
    ttl * 3
        + turns
        + policies * 2
        + Duration::from_millis(u64::from(takeover_delay))
        + choria
        + Duration::from_secs(7 + 3 + 8)
}

/// Whether processes of a quorum have the same name. One of them hears nothing of the other, and
/// reads instead; the seat changes hands, ever less often.
///
/// On a slow network a write that meets a read, or comes while a voter is silent, may fail so often
/// that the term is over: that is so once in some ten thousand schedules. There, it is enough that
/// a leader stays sooner or later.
fn has_namesakes(scenario: &Scenario) -> bool {
    scenario.quorum.is_some_and(|quorum| quorum.named)
}

/// Runs on, and checks that no term ends.
fn leader_stays(world: &mut World, scenario: &Scenario, mut from: Time) {
    let span = scenario.longest_ttl() * 4;
    loop {
        let before = world.checker.terms;
        world.run(from + span);
        if world.checker.terms == before && world.checker.has_leader() {
            return;
        }
        if !has_namesakes(scenario) || world.checker.violation.is_some() || from > STORM * 5 {
            break;
        }
        from += span + bound(scenario);
        world.run(from);
    }
    world.checker.fail("the leader does not stay though all is well".to_owned());
}

/// How long after there is a leader it is a ready one, if a ready one hears roll calls.
///
/// The leader's term lasts for a lease, and it may have searched for a successor a lease before.
/// Then it calls the roll, and the successor leads within a lease. A check that has changed counts
/// after as many results.
fn ready_within(scenario: &Scenario) -> Duration {
    scenario.bucket_ttl * 4 + Duration::from_secs(10)
}

/// How long after that preferences are settled: who asks in vain waits twice as long each time,
/// from half of that to one and a half times as long. All waits of a storm were halves at best, so
/// that the one at its end is at most three storms.
fn settled_within(scenario: &Scenario) -> Duration {
    scenario.bucket_ttl * 4 + STORM * 3
}

/// Runs until all moves are over. Returns when that is.
fn run_moves(world: &mut World, scenario: &Scenario, from: Time) -> Time {
    let ready = from + ready_within(scenario);
    let settled = ready + settled_within(scenario);
    world.run(ready);
    if let Err(why) = world.leader_is_ready() {
        world.checker.fail(why);
    }
    world.run(settled);
    let promises = [
        world.leader_is_ready(),
        world.preferences_are_settled(),
        world.accepted_writers_are_not_sick(),
    ];
    if let Some(Err(why)) = promises.into_iter().find(Result::is_err) {
        world.checker.fail(why);
    }
    settled
}

impl World {
    /// What must not happen, and did since the last call.
    pub(crate) fn violation(&mut self) -> Option<Violation> {
        let what = self.checker.violation.take()?;
        Some(Violation { what, at: self.time.now, history: self.history() })
    }
}

/// Plays `scenario` out.
pub fn run(scenario: &Scenario, with_history: bool) -> Report {
    if let Some(set) = &scenario.set {
        return sets::run(scenario, set, with_history);
    }
    play_out(&mut World::new(scenario, with_history), scenario)
}

/// Plays `scenario` out in a world of it that has just begun.
pub(crate) fn play_out(world: &mut World, scenario: &Scenario) -> Report {
    world.run(STORM);
    let (terms, peer_terms) = (world.checker.terms, world.checker.peer_terms);
    let moved = world.moved;
    let mut recovered = None;
    let mut end = STORM + bound(scenario);
    while recovered.is_none() && world.now() < end && world.checker.violation.is_none() {
        if world.checker.has_leader() {
            recovered = Some(world.now() - STORM);
        } else {
            world.run((world.now() + Duration::from_millis(100)).min(end));
        }
    }
    world.run(end);
    if scenario.moves() && !world.checker.has_leader() {
        // A handover was under way at that very instant, perhaps to one that may not write.
        end += scenario.longest_ttl() + Duration::from_secs(1);
        world.run(end);
    }
    if scenario.moves() && world.checker.has_leader() {
        end = run_moves(world, scenario, end);
    }
    if world.checker.violation.is_none() {
        if !world.checker.has_leader() && !has_namesakes(scenario) {
            world.checker.fail("no leader after the last fault".to_owned());
        }
        leader_stays(world, scenario, end);
        if let Err(why) = world.checkpoint_is_kept() {
            world.checker.fail(why);
        }
        if let Some(who) = world.processes.iter().position(|it| it.stopping_since.is_some()) {
            world.checker.fail(format!("candidate {who} does not come to its end"));
        }
    }
    Report {
        terms,
        peer_terms,
        drains: world.checker.drains,
        moved,
        checkpoints: world.checkpoints,
        releases: world.releases,
        simulated: world.now(),
        recovered,
        violation: world.violation(),
        ..Report::default()
    }
}
