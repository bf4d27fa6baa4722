//! Many elections side by side, in rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::key::Key;
use crate::model::Difference;
use crate::store::{Store, Upheaval};

/// How many operations each election sees while the server crashes.
const STEPS_OF_CRASH: u64 = 4;

/// How much is played.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many operations at least.
    pub operations: u64,
    /// What they are drawn from.
    pub seed: u64,
    /// How many elections there are side by side.
    pub elections: u64,
    /// How many operations each of them sees between two upheavals.
    pub steps: u64,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Report {
    /// How many answers were compared.
    pub operations: u64,
    /// How many upheavals there were.
    pub upheavals: u64,
    /// How often replicas had no leader, as each election saw it.
    pub leaderless: u64,
    /// How long after the end of its life an entry was still seen, at most.
    pub latest: Duration,
    /// The first difference of each election that has one; it is left alone then.
    pub differences: Vec<Difference>,
}

/// Plays random operations on `store` and on its model. The store has just been made, and nothing
/// is in it.
pub async fn run(store: Arc<dyn Store>, options: Options) -> Report {
    let began = Instant::now();
    let mut report = Report::default();
    let mut starting = JoinSet::new();
    for number in 0..options.elections {
        let key = Key::new(Arc::clone(&store), number, options.seed, began);
        starting.spawn(key);
    }
    let mut keys = starting.join_all().await;
    if store.upheavals().contains(&Upheaval::Remade) {
        // So that it is known how old it is.
        store.take_away(Upheaval::Remade).await;
        let made = began.elapsed();
        store.bring_back(Upheaval::Remade).await;
        keys.iter_mut().for_each(|key| key.store_is_back((made, began.elapsed())));
    }
    let mut upheavals = store.upheavals().iter().cycle();
    loop {
        let played = each(keys, Some(options.steps)).await;
        keys = report.take(played);
        report.operations = report.operations.max(keys.iter().map(|key| key.operations).sum());
        report.leaderless = keys.iter().map(|key| key.leaderless).sum();
        report.latest = keys.iter().map(|key| key.latest).max().unwrap_or_default();
        // More of them where replicas often had no leader, as they may on a busy machine.
        let wanted = (report.leaderless * 10).clamp(options.operations, options.operations * 10);
        if report.operations >= wanted || keys.is_empty() {
            return report;
        }
        let Some(upheaval) = upheavals.next() else { continue };
        report.upheavals += 1;
        match upheaval {
            Upheaval::Remade => {
                store.take_away(*upheaval).await;
                let played = each(keys, None).await;
                keys = report.take(played);
                let made = began.elapsed();
                store.bring_back(*upheaval).await;
                keys.iter_mut().for_each(|key| key.store_is_back((made, began.elapsed())));
            }
            Upheaval::Killed => {
                keys.iter_mut().for_each(Key::loses_hearing);
                store.take_away(*upheaval).await;
                store.bring_back(*upheaval).await;
            }
            Upheaval::Crashed => {
                keys.iter_mut().for_each(|key| {
                    key.loses_hearing();
                    key.loses_server(true);
                });
                let crash = async {
                    store.take_away(*upheaval).await;
                    store.bring_back(*upheaval).await;
                };
                let playing = each(keys, Some(STEPS_OF_CRASH));
                let (played, ()) = tokio::join!(playing, crash);
                keys = report.take(played);
                keys.iter_mut().for_each(|key| key.loses_server(false));
            }
        }
    }
}

impl Report {
    /// The elections that continue.
    fn take(&mut self, played: Vec<(Key, Result<(), Difference>)>) -> Vec<Key> {
        let mut keys = Vec::new();
        for (key, result) in played {
            match result {
                Ok(()) => keys.push(key),
                Err(difference) => {
                    self.operations += key.operations;
                    self.differences.push(difference);
                }
            }
        }
        keys
    }
}

/// Has each election see this many operations, or one without a store, side by side: each in a task
/// of its own, as one that goes through all of them was seen to sleep on while answers were there.
async fn each(keys: Vec<Key>, steps: Option<u64>) -> Vec<(Key, Result<(), Difference>)> {
    let mut playing = JoinSet::new();
    for mut key in keys {
        playing.spawn(async move {
            let result = match steps {
                Some(steps) => key.play(steps).await,
                None => key.without_store().await,
            };
            (key, result)
        });
    }
    playing.join_all().await
}
