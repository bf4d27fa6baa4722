//! The health of a candidate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, Readiness, State};
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use super::status_line;
use crate::http::probe;
use crate::output::time_format;

/// How late a program may notice that its deadline has passed.
const NOTICE: Duration = Duration::from_millis(500);

pub struct Health {
    lease: Duration,
    record: Mutex<Record>,
    /// Whether a leader takes requests: what goes with its term has begun, and does not end.
    serves: AtomicBool,
    /// Whether an operator has this candidate stand aside, whatever else does.
    is_cordoned: AtomicBool,
}

#[derive(Default)]
struct Record {
    /// Since when requests to the lock fail.
    failing_since: Option<Instant>,
    ended: bool,
}

impl Health {
    pub fn new(lease: Duration) -> Self {
        let (serves, is_cordoned) = (AtomicBool::new(true), AtomicBool::new(false));
        Self { lease, record: Mutex::default(), serves, is_cordoned }
    }

    /// Records a change of the election.
    pub fn note(&self, election: &Election) {
        let since = &mut self.record.lock().failing_since;
        *since = election.lock_failure().map(|_| since.unwrap_or_else(|| BootClock.now()));
    }

    /// Records whether this process takes requests while it leads.
    pub fn serves(&self, serves: bool) {
        self.serves.store(serves, Ordering::Relaxed);
    }

    /// Records what an operator wants of this candidate.
    pub fn cordon(&self, stands_aside: bool) {
        self.is_cordoned.store(stands_aside, Ordering::Relaxed);
    }

    /// Whether an operator has this candidate stand aside.
    pub fn is_cordoned(&self) -> bool {
        self.is_cordoned.load(Ordering::Relaxed)
    }

    /// Records that the campaign has ended.
    pub fn ended(&self) {
        self.record.lock().ended = true;
    }

    /// One line: whether the process works, with the lock reachable or not.
    pub fn is_alive(&self, election: &Election) -> Result<String, String> {
        if self.record.lock().ended {
            return Err("the campaign has ended".to_owned());
        }
        overdue(BootClock.now(), election.deadline())?;
        Ok(format!("ok: {}", status_line::who(election)))
    }

    /// One line: whether the candidate takes part and can do the work, which needs a first response
    /// of the lock, and a check that passes.
    pub fn is_ready(&self, election: &Election) -> Result<String, String> {
        let health = self.health(election)?;
        let status = election.watch().current();
        match (status.state, status.readiness) {
            (State::Unknown, _) => Err("waiting for the first response of the lock".to_owned()),
            (_, Readiness::Unhealthy) => Err(status_line::readiness(&status).unwrap_or_default()),
            _ => Ok(health),
        }
    }

    /// One line: whether this process leads, and takes new requests: until its deadline, or until
    /// it begins to drain. By the clock, at this moment.
    pub fn leads(&self, election: &Election) -> Result<String, String> {
        if !election.is_leader() {
            self.is_ready(election)?;
            return Err(status_line::who(election));
        }
        if !self.serves.load(Ordering::Relaxed) {
            return Err("leading, and not serving yet, or no longer".to_owned());
        }
        match election.watch().current().drain_ends {
            Some(_) => Err("leading, and draining".to_owned()),
            None => Ok(format!("ok: {}", status_line::who(election))),
        }
    }

    /// One line: whether this process takes part, and does not lead.
    pub fn stands_by(&self, election: &Election) -> Result<String, String> {
        match election.is_leader() {
            true => Err(status_line::who(election)),
            false => self.is_ready(election),
        }
    }

    /// One line: the state of the election, or the problem.
    pub fn health(&self, election: &Election) -> Result<String, String> {
        let alive = self.is_alive(election)?;
        let record = self.record.lock();
        let now = BootClock.now();
        if let Some(failure) = election.lock_failure() {
            let since = record.failing_since.unwrap_or(now);
            unreachable(now.saturating_since(since), self.lease, &failure.message)?;
        }
        Ok(alive)
    }
}

fn overdue(now: Instant, deadline: Option<Instant>) -> Result<(), String> {
    let late = deadline.map_or(Duration::ZERO, |deadline| now.saturating_since(deadline));
    if late < NOTICE {
        return Ok(());
    }
    Err(format!(
        "the right to lead ended {} ago, and the program was not notified",
        time_format::span(late)
    ))
}

fn unreachable(for_as_long: Duration, lease: Duration, why: &str) -> Result<(), String> {
    if for_as_long <= lease {
        return Ok(());
    }
    Err(format!("the lock has been unreachable for {}: {why}", time_format::span(for_as_long)))
}

/// A probe of a candidate.
pub type Probe = fn(&Health, &Election) -> Result<String, String>;

/// The routes of probes. `ready`: what `/readyz` reports. `others`: further ones. `answer`: to a
/// probe; `None` before the lock was reached.
pub fn probes(
    ready: Probe,
    others: &[(&str, Probe)],
    answer: impl Fn(Probe) -> Option<Result<String, String>> + Clone + Send + Sync + 'static,
) -> Router {
    let handler = |of: Probe, unreached: &Result<String, String>| {
        let (answer, unreached) = (answer.clone(), unreached.clone());
        probe(move || answer(of).unwrap_or_else(|| unreached.clone()))
    };
    let unreached = Err("connecting to the lock".to_owned());
    // An unreachable lock is not a reason to restart the process.
    let alive = Ok("ok: connecting to the lock".to_owned());
    let mut routes = Router::new()
        .route("/livez", get(handler(Health::is_alive, &alive)))
        .route("/readyz", get(handler(ready, &unreached)))
        .route("/healthz", get(handler(Health::health, &unreached)));
    for (path, of) in others {
        let handler = handler(*of, &unreached);
        routes = routes.route(path, get(handler.clone()).options(handler));
    }
    routes
}

/// What is served once the campaign has started.
pub struct StartedElection {
    pub election: Election,
    pub health: Arc<Health>,
}

/// It is not there before the lock was reached.
pub type Started = Arc<SetOnce<StartedElection>>;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn missed_deadline_is_reported_within_a_second() {
        let deadline = Instant::from_origin(SECOND * 10);
        assert_eq!(overdue(deadline - SECOND, Some(deadline)), Ok(()));
        assert_eq!(overdue(deadline + SECOND, None), Ok(()), "notified");
        let message = overdue(deadline + SECOND, Some(deadline)).unwrap_err();
        assert_eq!(message, "the right to lead ended 1s ago, and the program was not notified");
    }

    #[test]
    fn lock_may_be_unreachable_for_a_lease() {
        assert_eq!(unreachable(SECOND * 2, SECOND * 2, "no answer"), Ok(()));
        let message = unreachable(SECOND * 3, SECOND * 2, "no answer").unwrap_err();
        assert_eq!(message, "the lock has been unreachable for 3s: no answer");
    }
}
