//! Every change of the elections of a lock, as it happens.

use std::collections::VecDeque;

use tokio::time::{Instant, sleep_until};

use super::model::Model;
use super::moment::Moment;
use super::source::Source;
use super::transition::Transition;
use crate::elections::Elections;
use crate::error::CliError;

/// The changes of the elections of a lock.
pub struct Feed<'a> {
    source: Source<'a>,
    model: Model,
    waiting: VecDeque<Transition>,
}

impl<'a> Feed<'a> {
    /// Watches the named elections, or all if none is named.
    pub async fn open(elections: &'a Elections<'a>, names: &'a [String]) -> Result<Self, CliError> {
        let source = Source::open(elections, names).await?;
        let model = Model::new(source.origin());
        Ok(Self { source, model, waiting: VecDeque::new() })
    }

    /// The next change. The first ones are the current statuses.
    ///
    /// An error does not end the feed: the next call continues.
    pub async fn next(&mut self) -> Result<Transition, CliError> {
        loop {
            if let Some(transition) = self.waiting.pop_front() {
                return Ok(transition);
            }
            let expiry = self.model.next_expiry();
            tokio::select! {
                observed = self.source.next() => {
                    self.waiting.extend(self.model.observe(observed?, Moment::now()));
                }
                () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => {
                    self.waiting.extend(self.model.expire(Moment::now()));
                }
            }
        }
    }
}
