//! Every change of the elections of a lock, as it happens.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::model::Model;
use super::moment::Moment;
use super::observation::{Observation, Origin};
use super::source::Source;
use super::transition::Transition;
use crate::elections::Elections;
use crate::error::CliError;

/// The changes of the elections of a lock.
pub struct Feed<'a> {
    source: Source<'a>,
    model: Model,
    waiting: VecDeque<Transition>,
    last_read: Option<LastRead>,
}

/// The last read of a feed.
#[derive(Debug, Clone, Copy)]
pub struct LastRead {
    /// When it ended.
    pub moment: Moment,
    pub took: Duration,
    /// How many reads so far showed that writes had been missed.
    pub gaps: u64,
}

impl<'a> Feed<'a> {
    /// Watches the named elections, or all if none is named.
    pub async fn open(elections: &'a Elections<'a>, names: &'a [String]) -> Result<Self, CliError> {
        let source = Source::open(elections, names).await?;
        let model = Model::new(source.origin());
        Ok(Self { source, model, waiting: VecDeque::new(), last_read: None })
    }

    /// The same, and the current statuses include all that have no leader.
    pub async fn open_complete(
        elections: &'a Elections<'a>,
        names: &'a [String],
    ) -> Result<Self, CliError> {
        let feed = Self::open(elections, names).await?;
        let model = Model::new(Origin { is_named: true, ..feed.source.origin() });
        Ok(Self { model, ..feed })
    }

    /// The last read. No change was missed since the one before, unless `gaps` has grown.
    pub fn last_read(&self) -> Option<LastRead> {
        self.last_read
    }

    /// The next change. The first ones are the current statuses.
    ///
    /// An error does not end the feed: the next call continues. Cancel safe.
    pub async fn next(&mut self) -> Result<Transition, CliError> {
        loop {
            if let Some(transition) = self.waiting.pop_front() {
                return Ok(transition);
            }
            let expiry = self.model.next_expiry();
            tokio::select! {
                observed = self.source.next() => {
                    let (observed, now) = (observed?, Moment::now());
                    if let Observation::All(_, read) | Observation::Unchanged(read) = observed {
                        let took = self.source.last_poll();
                        let gaps = self.last_read.map_or(0, |last| last.gaps);
                        let gaps = gaps + u64::from(read.has_missed);
                        self.last_read = Some(LastRead { moment: now, took, gaps });
                    }
                    self.waiting.extend(self.model.observe(observed, now));
                }
                () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => {
                    self.waiting.extend(self.model.expire(Moment::now()));
                }
            }
        }
    }
}
