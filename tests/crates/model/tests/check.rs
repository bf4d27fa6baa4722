//! Small elections, explored to their end or to a depth that a broken rule shows at.

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;

use incumbent_model::{Bounds, Config, Outcome, Sights, checkpoints, confirm, explore, small};

fn explore_all(elections: Vec<(Config, Option<usize>)>) -> Vec<Outcome> {
    let explored = elections.into_iter().map(|(config, depth)| {
        let depth = depth.and_then(NonZeroUsize::new);
        // On one thread a bound on the depth is exact.
        let threads = if depth.is_some() { 1 } else { 2 };
        let outcome = explore(config, Bounds { depth, threads, ..Bounds::default() });
        println!("{outcome}");
        assert!(
            outcome.broken.is_none(),
            "{outcome}\n{}",
            outcome.broken.as_deref().unwrap_or_default()
        );
        assert!(outcome.complete);
        outcome
    });
    explored.collect()
}

#[test]
fn at_most_one_leads_in_every_schedule() {
    for outcome in explore_all(small()) {
        assert!(outcome.sights.terms.load(Ordering::Relaxed) > 500, "too few terms: {outcome}");
    }
}

#[test]
fn checkpoint_is_kept_in_every_schedule() {
    for outcome in explore_all(checkpoints()) {
        let Sights { kept: [claims, saves], late, .. } = &*outcome.sights;
        let enough = [claims, saves, late].iter().all(|seen| seen.load(Ordering::Relaxed) > 500);
        assert!(enough, "too few: {outcome}");
    }
}

fn confirm_all(elections: Vec<(Config, Option<usize>)>) {
    for (config, depth) in elections {
        let name = config.name;
        // All of them, where the election is explored to its end.
        let most = if depth.is_none() { 200_000 } else { 10_000 };
        let pairs = confirm(config, most).unwrap_or_else(|odd| panic!("{name}: {odd}"));
        println!("{name}: {pairs} pairs");
        assert!(pairs > 5_000, "{name}: only {pairs} pairs");
    }
}

#[test]
fn states_with_the_same_key_have_the_same_future() {
    confirm_all(small());
}

#[test]
fn checkpoint_states_with_the_same_key_have_the_same_future() {
    confirm_all(checkpoints());
}
