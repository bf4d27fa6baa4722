//! The wait for the successor of a leader that was told to go.

use std::time::Duration;

use incumbent::lock::Revision;
use tokio::time::{Instant, timeout_at};

use crate::console::model::Feed;
use crate::error::{CliError, Code};
use crate::lock::elections::{ElectionState, Holder};
use crate::output::{self, time_format};

/// The wait for a successor if the lease is unknown.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// Waits for the holder after an order, which an unreachable lock does not undo: until `end`, or
/// without one for `after` once there is no leader. `None`: nobody came.
pub async fn next_holder(
    feed: &mut Feed<'_>,
    mut end: Option<Instant>,
    after: Duration,
    is_next: impl Fn(&Holder, Revision) -> bool,
) -> Result<Option<Holder>, CliError> {
    // Since when the lock is not read, if it was not reached again.
    let mut failed: Option<(Instant, CliError)> = None;
    loop {
        let until = end.or_else(|| Some(time_format::after(failed.as_ref()?.0, after)));
        let next = match until {
            None => Some(feed.next().await),
            Some(until) => timeout_at(until, feed.next()).await.ok(),
        };
        let read = feed.last_read().map(|read| read.moment.at);
        failed = failed.filter(|(since, _)| read.is_none_or(|read| read < *since));
        match next {
            None => match failed {
                Some((_, failure)) => return Err(failure),
                None if end.is_some() => return Ok(None),
                None => {} // it was reached again
            },
            Some(Ok(event)) => match event.now {
                ElectionState::Held(holder) if is_next(&holder, event.revision) => {
                    return Ok(Some(holder));
                }
                ElectionState::Held(_) => {}
                ElectionState::Vacant(_) => {
                    end = end.or_else(|| Some(time_format::after(Instant::now(), after)));
                }
            },
            Some(Err(failure @ CliError::Message { code: Code::Unreachable, .. })) => {
                failed.get_or_insert_with(|| {
                    output::note(format!("lock failing: {failure}"));
                    (Instant::now(), failure)
                });
            }
            Some(Err(failure)) => return Err(failure),
        }
    }
}
