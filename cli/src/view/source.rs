//! What is read of the elections of a lock, as it comes in.
//!
//! Polling finds what no watcher reports: an entry that expired without a marker, changes during a
//! lost connection, and all changes of a lock without hints.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::observation::{Observation, Origin};
use crate::elections::{ElectionStatus, Elections, Update, Watcher};
use crate::error::CliError;

/// The poll interval if the watcher reports changes.
const WITH_UPDATES: Duration = Duration::from_secs(5);
/// The poll interval if it does not.
const WITHOUT_UPDATES: Duration = Duration::from_secs(1);
/// How many named elections are read concurrently.
const READS: usize = 32;

/// The elections of a lock, or some of them by name.
pub struct Source<'a> {
    elections: &'a Elections<'a>,
    names: &'a [String],
    watcher: Watcher,
    ticks: Interval,
    /// The poll that is under way.
    poll: Option<BoxFuture<'a, Result<Vec<ElectionStatus>, CliError>>>,
}

impl<'a> Source<'a> {
    /// Watches the named elections, or all if none is named.
    pub async fn open(elections: &'a Elections<'a>, names: &'a [String]) -> Result<Self, CliError> {
        let watcher = elections.watch(names).await?;
        let mut ticks =
            interval(if watcher.reports_every_change() { WITH_UPDATES } else { WITHOUT_UPDATES });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { elections, names, watcher, ticks, poll: None })
    }

    /// What a model has to know of the lock.
    pub fn origin(&self) -> Origin {
        Origin {
            cause_of_absence: self.elections.cause_of_absence(),
            has_lock_times: self.elections.has_lock_times(),
            lease: self.elections.default_lease(),
            is_named: !self.names.is_empty(),
        }
    }

    /// The next observation. The first one is of all elections.
    ///
    /// An error does not end the source: the next call continues. Cancel safe.
    pub async fn next(&mut self) -> Result<Observation, CliError> {
        loop {
            if let Some(poll) = &mut self.poll {
                let all = poll.await;
                self.poll = None;
                return all.map(Observation::All);
            }
            tokio::select! {
                biased;
                _ = self.ticks.tick() => self.begin_poll(),
                update = self.watcher.next() => match update {
                    Update::Status(status) if self.includes(&status) => {
                        return Ok(Observation::Written(status));
                    }
                    Update::Status(_) => {}
                    Update::Recheck => self.begin_poll(),
                    Update::Failed(failure) => return Err(failure),
                },
            }
        }
    }

    fn includes(&self, status: &ElectionStatus) -> bool {
        self.names.is_empty() || self.names.contains(&status.election)
    }

    fn begin_poll(&mut self) {
        let (elections, names) = (self.elections, self.names);
        self.poll = Some(Box::pin(async move {
            if names.is_empty() {
                return elections.list().await;
            }
            let reads: Vec<_> = names.iter().map(|name| elections.read(name)).collect();
            let reads = stream::iter(reads).buffered(READS);
            reads.try_filter_map(async |status| Ok(status)).try_collect().await
        }));
    }
}
