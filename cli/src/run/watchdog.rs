//! Resigns when the task that supervises the command hangs.
//!
//! Another task renews the lease. If the supervising task is blocked, for example by a stopped
//! terminal, the guard stops the command, or none was started, and the lease would be renewed
//! without any work.

use std::future::pending;
use std::time::Duration;

use incumbent::Election;
use incumbent::clock::Instant;
use tokio::sync::watch;

use crate::process::{BackgroundTask, sleep_until};

const INTERVAL: Duration = Duration::from_millis(500);

/// Stopped when dropped.
pub struct Watchdog {
    timeout: watch::Sender<Timeout>,
    _watching: BackgroundTask,
}

#[derive(Debug, Clone, Copy)]
enum Timeout {
    Off,
    At(Instant),
    /// At the first deadline of a term that nobody takes.
    OfNextTerm,
}

impl Watchdog {
    /// `shares_term`: whether other commands run in the same terms, whose drains are not ended.
    pub fn start(election: Election, shares_term: bool) -> Self {
        let (timeout, receiver) = watch::channel(Timeout::Off);
        let watching = tokio::spawn(supervise(receiver, election, shares_term));
        Self { timeout, _watching: BackgroundTask(watching) }
    }

    /// Resets the timeout: it must be called again before `until`.
    pub fn feed(&self, until: Instant) {
        self.timeout.send_replace(Timeout::At(until));
    }

    /// Resets the timeout of a task that waits for a term: it must call something else by the first
    /// deadline of one.
    pub fn await_term(&self) {
        self.timeout.send_replace(Timeout::OfNextTerm);
    }

    /// Disables the timeout.
    pub fn pause(&self) {
        self.timeout.send_replace(Timeout::Off);
    }
}

async fn supervise(mut timeouts: watch::Receiver<Timeout>, election: Election, shares_term: bool) {
    loop {
        let timeout = *timeouts.borrow_and_update();
        let expires = async {
            match timeout {
                Timeout::Off => pending().await,
                Timeout::At(until) => sleep_until(Some(until)).await,
                Timeout::OfNextTerm => first_deadline(&election).await,
            }
        };
        let changed = tokio::select! {
            biased;
            changed = timeouts.changed() => changed,
            () = expires => resign_terms(&mut timeouts, &election, shares_term).await,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Waits for a term, and until its first deadline.
async fn first_deadline(election: &Election) {
    let mut status = election.watch();
    while status.next().await.is_some() {
        let token = election.token();
        if let Some(deadline) = election.deadline() {
            sleep_until(Some(deadline)).await;
            if election.is_leader() && election.token() == token {
                return;
            }
        }
    }
    pending().await // it campaigns no more
}

/// Resigns from each term until the task continues. Does not log, as the log may block too.
async fn resign_terms(
    timeouts: &mut watch::Receiver<Timeout>,
    election: &Election,
    shares_term: bool,
) -> Result<(), watch::error::RecvError> {
    loop {
        election.resign();
        if !shares_term {
            election.end_drain(); // there is no work, or none that is watched
        }
        if let Ok(changed) = tokio::time::timeout(INTERVAL, timeouts.changed()).await {
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
            // On a busy machine the watchdog looks late; the drain ends later.
            let limit = if shares_term { INTERVAL * 2 } else { INTERVAL * 60 };
            let ended = tokio::time::timeout(limit, leadership.ended()).await;
            assert_eq!(ended.is_err(), shares_term);
        }
    }
}
