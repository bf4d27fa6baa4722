//! Whether a campaigner campaigns well.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, State};

use super::status_line;
use crate::time_format;

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

    /// One line: whether the process does its work, be the lock in reach or not.
    pub fn is_alive(&self, election: &Election) -> Result<String, String> {
        if self.record().ended {
            return Err("the campaign has ended".to_owned());
        }
        overdue(BootClock.now(), election.deadline())?;
        Ok(format!("ok: {}", status_line::who(election)))
    }

    /// One line: whether it takes part, which it does once the lock has answered.
    pub fn is_ready(&self, election: &Election) -> Result<String, String> {
        let judged = self.judge(election)?;
        match election.state() {
            State::Unknown => Err("the lock has not answered yet".to_owned()),
            _ => Ok(judged),
        }
    }

    /// One line: how it goes, or what is wrong.
    pub fn judge(&self, election: &Election) -> Result<String, String> {
        let alive = self.is_alive(election)?;
        let record = self.record();
        let now = BootClock.now();
        if let Some(trouble) = election.trouble() {
            let since = record.troubled_since.unwrap_or(now);
            out_of_reach(now.saturating_since(since), self.lease, &trouble.message)?;
        }
        Ok(alive)
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
    Err(format!("the right to lead ended {} ago, and nobody was told", time_format::span(late)))
}

fn out_of_reach(for_as_long: Duration, lease: Duration, why: &str) -> Result<(), String> {
    if for_as_long <= lease {
        return Ok(());
    }
    Err(format!("the lock has been out of reach for {}: {why}", time_format::span(for_as_long)))
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
