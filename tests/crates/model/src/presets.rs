//! Elections worth exploring.

use incumbent_sim::Retention;

use crate::config::{Config, Fault};

use Fault::{Crash, Delay, Delete, HandOver, Loss, Pause, Resign, Stuck};

/// Small enough for every run of the tests: each with the most steps to take, where it is not
/// explored to its end.
pub fn small() -> Vec<(Config, Option<usize>)> {
    vec![
        (Config::equal("any one fault", 2, 4, 1), None),
        (without_markers("any one fault, no markers", 1), None),
        (records(Config::equal("any one fault, records", 2, 2, 1)), None),
        (striking(Config::equal("late answers", 2, 4, 2), &[Delay, Pause]), Some(32)),
        (striking(Config::mixed("unequal leases", 2, 1, 2), &[Delete, Pause]), Some(34)),
        (striking(Config::equal("passed on", 2, 3, 3), &[Delete, Pause, Resign]), Some(32)),
        (striking(Config::mixed("outlived", 2, 2, 3), &[Delete, Pause, Crash]), Some(30)),
        (with_hints(2, &[Delete, Pause]), Some(22)),
        (striking(Config::equal("work that continues", 2, 3, 2), &[Resign, Stuck]), None),
        (striking(Config::equal("lost answers", 2, 6, 2), &[Loss, Pause]), Some(36)),
        (striking(Config::equal("a win in doubt", 2, 3, 3), &[Delete, Pause, Loss]), Some(30)),
        (with_sentinels(Config::equal("a sentinel", 2, 3, 1), 1), None),
        (striking(Config::equal("handed over", 2, 3, 2), &[HandOver, Crash]), None),
        (striking(Config::equal("handed over, of three", 3, 2, 2), &[HandOver, Crash]), Some(24)),
    ]
}

/// Small ones whose terms claim a checkpoint that their work saves.
pub fn checkpoints() -> Vec<(Config, Option<usize>)> {
    vec![
        (with_checkpoint(1, Config::equal("a checkpoint", 2, 2, 1)), None),
        (
            with_checkpoint(2, striking(Config::equal("a late save", 2, 2, 2), &[Delay, Resign])),
            Some(34),
        ),
    ]
}

/// What takes minutes.
pub fn large(candidates: usize) -> Vec<Config> {
    if candidates > 2 {
        return vec![
            Config::equal("any one fault", candidates, 2, 1),
            striking(Config::equal("deleted and paused", candidates, 2, 2), &[Delete, Pause]),
        ];
    }
    let mut late = Config::equal("any one fault, all late", 2, 3, 1);
    late.late = 1;
    let mut hearing = Config::equal("any one fault, heard", 2, 4, 1);
    hearing.hints = true;
    vec![
        Config::equal("any one fault", 2, 4, 1),
        without_markers("any one fault, no markers", 1),
        records(Config::equal("any one fault, records", 2, 4, 1)),
        Config::mixed("any one fault, unequal leases", 2, 2, 1),
        striking(Config::equal("work that continues", 2, 4, 2), &[Resign, Stuck]),
        striking(Config::equal("late answers", 2, 4, 2), &[Delay, Pause]),
        striking(Config::equal("lost answers", 2, 6, 2), &[Loss, Pause]),
        striking(Config::mixed("unequal leases", 2, 1, 2), &[Delete, Pause]),
        striking(Config::equal("passed on", 2, 3, 3), &[Delete, Pause, Resign]),
        striking(Config::mixed("outlived", 2, 2, 3), &[Delete, Pause, Crash]),
        striking(Config::equal("a win in doubt", 2, 3, 3), &[Delete, Pause, Loss]),
        hearing,
        Config::equal("any two faults", 2, 2, 2),
        late,
        striking(Config::equal("handed over", 2, 3, 2), &[HandOver, Crash, Loss]),
        with_sentinels(Config::equal("any one fault, a sentinel", 2, 3, 1), 1),
        with_sentinels(Config::equal("any one fault, two sentinels", 2, 2, 1), 2),
        with_sentinels(striking(Config::equal("a sentinel, late", 2, 2, 2), &[Crash, Delay]), 1),
        with_sentinels(striking(Config::equal("a sentinel, lost", 2, 2, 2), &[Crash, Loss]), 1),
        with_checkpoint(2, Config::equal("two saves of a checkpoint", 2, 2, 1)),
        with_sentinels(striking(Config::equal("a winner dies", 2, 3, 2), &[Crash, Delete]), 1),
    ]
}

/// A process that dies with an entry, and this many sentinels that see it.
fn with_sentinels(mut config: Config, sentinels: u8) -> Config {
    config.sentinels = sentinels;
    config
}

/// Each term claims a checkpoint, and their work saves it so often.
fn with_checkpoint(saves: u16, mut config: Config) -> Config {
    config.saves = saves;
    config
}

/// Only these, each once.
fn striking(mut config: Config, kinds: &[Fault]) -> Config {
    config.kinds = kinds.to_vec();
    config.once = true;
    config
}

/// On a lock that frees nothing, as etcd or a Kubernetes Lease: candidates judge for themselves.
fn records(mut config: Config) -> Config {
    config.retention = Retention::Forever;
    config
}

fn without_markers(name: &'static str, faults: u8) -> Config {
    let mut config = Config::equal(name, 2, 4, faults);
    (config.retention, config.old) = (Retention::Expires, false);
    config
}

fn with_hints(faults: u8, kinds: &[Fault]) -> Config {
    let mut config = striking(Config::equal("heard", 2, 3, faults), kinds);
    config.hints = true;
    config
}
