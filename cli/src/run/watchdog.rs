//! Resigns when the task that supervises the command hangs.
//!
//! Another task renews the lease. If the supervising task is blocked, for example by a stopped
//! terminal, the guard stops the command, and the lease would be renewed without any work.

use std::time::Duration;

use incumbent::Election;
use incumbent::clock::Instant;
use tokio::sync::watch;

use crate::process::{BackgroundTask, sleep_until};

const INTERVAL: Duration = Duration::from_millis(500);

/// Stopped when dropped.
pub struct Watchdog {
    until: watch::Sender<Option<Instant>>,
    _watching: BackgroundTask,
}

impl Watchdog {
    /// `shares_term`: whether other commands run in the same terms, whose drains are not ended.
    pub fn start(election: Election, shares_term: bool) -> Self {
        let (until, receiver) = watch::channel(None);
        let watching = tokio::spawn(supervise(receiver, election, shares_term));
        Self { until, _watching: BackgroundTask(watching) }
    }

    /// Resets the timeout: it must be called again before `until`.
    pub fn feed(&self, until: Instant) {
        self.until.send_replace(Some(until));
    }

    /// Disables the timeout.
    pub fn pause(&self) {
        self.until.send_replace(None);
    }
}

async fn supervise(
    mut until_receiver: watch::Receiver<Option<Instant>>,
    election: Election,
    shares_term: bool,
) {
    loop {
        let until = *until_receiver.borrow_and_update();
        let changed = tokio::select! {
            biased;
            changed = until_receiver.changed() => changed,
            () = sleep_until(until) => {
                resign_terms(&mut until_receiver, &election, shares_term).await
            }
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Resigns from each term until the task continues. Does not log, as the log may block too.
async fn resign_terms(
    until: &mut watch::Receiver<Option<Instant>>,
    election: &Election,
    shares_term: bool,
) -> Result<(), watch::error::RecvError> {
    loop {
        election.resign();
        if !shares_term {
            election.end_drain(); // there is no work, or none that is watched
        }
        if let Ok(changed) = tokio::time::timeout(INTERVAL, until.changed()).await {
            return changed;
        }
    }
}

#[cfg(test)]
mod tests {
    use incumbent::clock::{BootClock, Clock};

    use super::*;

    #[tokio::test]
    async fn drains_continue_where_the_term_is_shared() {
        for shares_term in [false, true] {
            let lock = incumbent::memory::MemoryLock::new();
            let election = incumbent::new_election("my_app", lock).drain(INTERVAL * 120);
            let election = election.start().unwrap();
            let leadership = election.won().await.unwrap();
            let watchdog = Watchdog::start(election.clone(), shares_term);
            watchdog.feed(BootClock.now());
            leadership.draining().await;
            let ended = tokio::time::timeout(INTERVAL * 2, leadership.ended()).await;
            assert_eq!(ended.is_err(), shares_term);
        }
    }
}
