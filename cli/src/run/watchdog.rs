//! Gives the office up when the task that works for it stands still.
//!
//! A lease is renewed by a task of its own. Were the one that looks after the command blocked (by a terminal whose output
//! is stopped, say), the guard would end the command, and the lease would be held on without anybody at work.

use std::time::Duration;

use incumbent::Election;
use incumbent::clock::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::timer::sleep_until;

const AGAIN: Duration = Duration::from_millis(500);

/// StopSignals with whoever has it.
pub struct Watchdog {
    until: watch::Sender<Option<Instant>>,
    watching: JoinHandle<()>,
}

impl Watchdog {
    pub fn start(election: Election) -> Self {
        let (until, told) = watch::channel(None);
        Self { until, watching: tokio::spawn(watch_over(told, election)) }
    }

    /// All is well; to be said again before this instant.
    pub fn feed(&self, until: Instant) {
        self.until.send_replace(Some(until));
    }

    /// There is nothing to watch over.
    pub fn pause(&self) {
        self.until.send_replace(None);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn watch_over(mut told: watch::Receiver<Option<Instant>>, election: Election) {
    loop {
        let until = *told.borrow_and_update();
        let late = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let heard = tokio::select! {
            biased;
            heard = told.changed() => heard,
            () = late => give_up(&mut told, &election).await,
        };
        if heard.is_err() {
            return;
        }
    }
}

/// Gives up each term, as nobody takes it, until something is told again. Writes no log: what blocks that task may be the
/// same terminal.
async fn give_up(
    told: &mut watch::Receiver<Option<Instant>>,
    election: &Election,
) -> Result<(), watch::error::RecvError> {
    loop {
        election.resign();
        if let Ok(heard) = tokio::time::timeout(AGAIN, told.changed()).await {
            return heard;
        }
    }
}
