//! Whether a campaigner campaigns well.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent::Election;
use incumbent::clock::{BootClock, Clock, Instant};

use super::status;
use crate::when;

/// How long a program may take to notice that its deadline has passed.
const NOTICE: Duration = Duration::from_millis(500);

pub struct Health {
    lease: Duration,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    /// Since when requests to the lock fail.
    troubled_since: Option<Instant>,
    ended: bool,
}

impl Health {
    pub fn new(lease: Duration) -> Self {
        Self { lease, record: Mutex::default() }
    }

    /// Something has changed.
    pub fn note(&self, election: &Election) {
        let since = &mut self.record().troubled_since;
        *since = election.trouble().map(|_| since.unwrap_or_else(|| BootClock.now()));
    }

    /// The campaign has ended.
    pub fn ended(&self) {
        self.record().ended = true;
    }

    /// One line: how it goes, or what is wrong.
    pub fn judge(&self, election: &Election) -> Result<String, String> {
        let record = self.record();
        if record.ended {
            return Err("the campaign has ended".to_owned());
        }
        let now = BootClock.now();
        overdue(now, election.deadline())?;
        if let Some(trouble) = election.trouble() {
            let since = record.troubled_since.unwrap_or(now);
            out_of_reach(now.saturating_since(since), self.lease, &trouble.message)?;
        }
        Ok(format!("ok: {}", status::who(election)))
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overdue(now: Instant, deadline: Option<Instant>) -> Result<(), String> {
    let late = deadline.map_or(Duration::ZERO, |deadline| now.saturating_since(deadline));
    if late < NOTICE {
        return Ok(());
    }
    Err(format!("the right to lead ended {} ago, and nobody was told", when::span(late)))
}

fn out_of_reach(for_as_long: Duration, lease: Duration, why: &str) -> Result<(), String> {
    if for_as_long <= lease {
        return Ok(());
    }
    Err(format!("the lock has been out of reach for {}: {why}", when::span(for_as_long)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_deadline_that_passed_untold_shows_within_a_second() {
        let deadline = Instant::from_origin(SECOND * 10);
        assert_eq!(overdue(deadline - SECOND, Some(deadline)), Ok(()));
        assert_eq!(overdue(deadline + SECOND, None), Ok(()), "told");
        let told = overdue(deadline + SECOND, Some(deadline)).unwrap_err();
        assert_eq!(told, "the right to lead ended 1s ago, and nobody was told");
    }

    #[test]
    fn a_lock_may_be_out_of_reach_for_a_lease() {
        assert_eq!(out_of_reach(SECOND * 2, SECOND * 2, "no answer"), Ok(()));
        let told = out_of_reach(SECOND * 3, SECOND * 2, "no answer").unwrap_err();
        assert_eq!(told, "the lock has been out of reach for 3s: no answer");
    }
}
