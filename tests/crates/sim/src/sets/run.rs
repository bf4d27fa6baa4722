//! Plays the scenario of a set out: a storm of faults, then calm, in which each shard gets a leader
//! and the load becomes even, with as few moves as possible; then quiet, in which nothing moves.

use std::time::Duration;

use super::SetSetup;
use crate::figures::Report;
use crate::process::millis;
use crate::run::bound;
use crate::scenario::{STORM, Scenario};
use crate::server::Time;
use crate::world::World;

const STEP: Duration = Duration::from_millis(100);

/// How long after the last fault each shard has a leader, unless no member has room.
///
/// Beyond what one election needs: members that stop drain what they lead first, and start again;
/// a term that is one too many is given back.
fn led_within(scenario: &Scenario, set: &SetSetup) -> Duration {
    bound(scenario) + millis(set.drain_ms) + scenario.bucket_ttl * 2
}

/// How long after that the load is even.
fn even_within(scenario: &Scenario, set: &SetSetup) -> Duration {
    let lease = scenario.bucket_ttl;
    // A request that went unanswered, or a roll call that failed, is repeated after twice as long
    // each time, and that grew to a storm at most.
    let retry = STORM;
    // Roll calls are so far apart, and a member is believed to be there for three of them.
    let rolls = lease * 10 * 4;
    let settles = millis(set.settle_ms) * 5;
    let move_takes = millis(set.drain_ms) + lease * 2;
    // One that answers nothing is asked for each of its shards in vain, again and again.
    let mute = set.members.iter().filter(|member| member.mute).count() as u32;
    let in_vain = Duration::from_secs(3) * set.shards * 6 * mute;
    retry + rolls + settles + move_takes * set.shards + in_vain
}

pub(crate) fn run(scenario: &Scenario, set: &SetSetup, with_history: bool) -> Report {
    let mut world = World::new(scenario, with_history);
    world.run(STORM);
    let terms = world.checker.terms;
    let led = until(&mut world, led_within(scenario, set), Duration::ZERO, |world| {
        match world.all_are_up() {
            true => world.all_are_led(),
            false => Err("a member is not there again".to_owned()),
        }
    });
    let recovered = world.now().saturating_sub(STORM);
    if led {
        // Checks pass again, and what was decided in the storm has happened.
        let settles = world.now().max(STORM + Duration::from_secs(5));
        world.run(settles);
        let within = led_within(scenario, set);
        until(&mut world, within, Duration::ZERO, |world| match world.nothing_moves() {
            true => world.all_are_led(),
            false => Err("shards move".to_owned()),
        });
        balance(&mut world, scenario, set);
    }
    let violation = world.violation();
    Report {
        terms,
        simulated: world.now(),
        recovered: led.then_some(recovered),
        sets: world.figures,
        violation,
        ..Report::default()
    }
}

/// Runs until this has been so for `lasting`, or fails.
fn until(
    world: &mut World,
    within: Duration,
    lasting: Duration,
    mut holds: impl FnMut(&World) -> Result<(), String>,
) -> bool {
    let end = world.now() + within;
    let mut since: Option<Time> = None;
    while world.checker.violation.is_none() {
        match holds(world) {
            Ok(()) => {
                let since = *since.get_or_insert(world.now());
                if world.now() >= since + lasting {
                    return true;
                }
            }
            Err(why) if world.now() >= end => {
                world.checker.fail(format!("{why}, after {within:?}"))
            }
            Err(_) => since = None,
        }
        world.run(world.now() + STEP);
    }
    false
}

fn balance(world: &mut World, scenario: &Scenario, set: &SetSetup) {
    let lease = scenario.bucket_ttl;
    let before = world.loads();
    let (other_ends, from) = (world.other_ends, world.now());
    world.figures.moves = 0;
    // What is being moved arrives, and is led.
    let lasting = millis(set.drain_ms) + lease * 2;
    let even = until(world, even_within(scenario, set), lasting, |world| {
        world.all_are_led().and_then(|()| world.is_even())
    });
    if !even {
        return;
    }
    world.figures.even_after = world.now() - lasting - from;
    let after = world.loads();
    let gone = before.iter().zip(&after).map(|(before, after)| before.saturating_sub(*after));
    let least = gone.map(u64::from).sum::<u64>();
    let moves = world.figures.moves;
    world.figures.least = least;
    if world.other_ends == other_ends && moves > 2 * least + 3 {
        world
            .checker
            .fail(format!("{moves} moves from {before:?} to {after:?}, where {least} would do"));
    }
    let (terms, ends) = (world.checker.terms, world.other_ends);
    world.run(world.now() + lease * 25);
    // A create that comes late from the time of the faults may begin a term, which is given back.
    let moved = (world.checker.terms - terms).saturating_sub(world.other_ends - ends);
    if moved > 0 || world.loads() != after {
        let now = world.loads();
        world.checker.fail(format!("shards move though all is well, from {after:?} to {now:?}"));
    }
}
