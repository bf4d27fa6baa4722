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
    pub fn start(election: Election) -> Self {
        let (until, receiver) = watch::channel(None);
        Self { until, _watching: BackgroundTask(tokio::spawn(supervise(receiver, election))) }
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

async fn supervise(mut until_receiver: watch::Receiver<Option<Instant>>, election: Election) {
    loop {
        let until = *until_receiver.borrow_and_update();
        let changed = tokio::select! {
            biased;
            changed = until_receiver.changed() => changed,
            () = sleep_until(until) => resign_terms(&mut until_receiver, &election).await,
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
) -> Result<(), watch::error::RecvError> {
    loop {
        election.resign();
        election.end_drain(); // there is no work, or none that is watched
        if let Ok(changed) = tokio::time::timeout(INTERVAL, until.changed()).await {
            return changed;
        }
    }
}
