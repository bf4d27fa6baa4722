//! The status of an election, level-triggered: a slow reader gets the newest one.

use std::sync::Arc;
use std::time::Duration;

use super::shared::{self, Shared};
use crate::lock::{Readiness, Token};
use crate::protocol::{Leader, LockFailure, State, WaitReason};
use crate::time::clock::{Instant, sleep_until};
use crate::util::watched::Reader;

/// A snapshot of an election, as one candidate or observer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The state of this candidate.
    pub state: State,
    /// The leader, as last seen; `None` while there is none, or nothing is known.
    pub leader: Option<Leader>,
    /// The fencing token of the current term, if this candidate leads.
    pub token: Option<Token>,
    /// When this candidate will lead if it keeps the entry until then, and what it waits for;
    /// `None` unless it has won the entry and does not lead yet.
    pub cool_down: Option<Wait>,
    /// When this candidate's term ends at the latest, while it
    /// [drains](crate::ElectionBuilder::drain).
    pub drain_ends: Option<Instant>,
    /// How ready this candidate is to lead.
    pub readiness: Readiness,
    /// Why its [check](crate::ElectionBuilder::check) fails, if it is sick.
    pub check_failure: Option<Arc<str>>,
    /// Until when the election is paused, as its entry states, by the wall clock, in
    /// milliseconds since the Unix epoch.
    pub paused_until_unix_ms: Option<u64>,
    /// What keeps requests to the lock from succeeding, while something does.
    pub lock_failure: Option<LockFailure>,
}

/// The wait of a winner before it leads: see [`CoolDown`](crate::CoolDown).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// When it ends, on the election's [`Clock`](crate::clock::Clock). A step-down notice may end
    /// it sooner.
    pub until: Instant,
    /// What is waited for.
    pub reason: WaitReason,
}

impl Status {
    /// Whether anything differs but when the leader last renewed.
    fn differs_from(&self, other: &Self) -> bool {
        let leader = |status: &Self| {
            let Leader { identity, token, since_unix_ms, advertisement, lease, is_me, .. } =
                status.leader.clone()?;
            Some((identity, token, since_unix_ms, advertisement, lease, is_me))
        };
        let rest = |status: &Self| {
            let Self { state, token, cool_down, drain_ends, readiness, .. } = status;
            (*state, *token, *cool_down, *drain_ends, *readiness, status.paused_until_unix_ms)
        };
        let failures = |status: &Self| (status.lock_failure.clone(), status.check_failure.clone());
        (rest(self), failures(self), leader(self)) != (rest(other), failures(other), leader(other))
    }
}

/// How often a reader looks whether a leader renews that was not fresh any more: a renewal wakes no
/// task.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The status of an election, each time it changes: see
/// [`Election::watch`](crate::Election::watch).
///
/// A reader that is slow gets the newest status, and never an old one; the
/// [`changes`](crate::Election::changes) are for readers that need each transition.
pub struct StatusWatch {
    shared: Arc<Shared>,
    updates: Reader<shared::Status>,
    last: Option<Status>,
    /// When the leader ceased to be fresh, if `changed` has reported that.
    lapsed: Option<Instant>,
}

impl StatusWatch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { updates: shared.status.subscribe(), shared, last: None, lapsed: None }
    }

    /// Returns the status now.
    pub fn current(&self) -> Status {
        snapshot(&self.shared, &self.updates.borrow())
    }

    /// Returns the status at once in the first call, and in later ones when it differs from the
    /// last one returned; `None` once the candidate has stopped.
    ///
    /// The end of a term is reported when the candidate processes it: work that must not outlive
    /// the term compares the clock ([`Election::is_leader`](crate::Election::is_leader)) or
    /// holds a [`Leadership`](crate::Leadership).
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Status> {
        loop {
            let (status, finished) = {
                let update = self.updates.borrow_and_update();
                (snapshot(&self.shared, &update), update.finished)
            };
            if finished {
                return None;
            }
            if self.last.as_ref().is_none_or(|last| status.differs_from(last)) {
                self.last = Some(status.clone());
                return Some(status);
            }
            self.updates.changed().await;
        }
    }

    /// Waits until the status may have changed, or whether its leader is
    /// [fresh](crate::Election::fresh_leader): by the clock, as the end of a lease is no change of
    /// the status. Returns false once the candidate has stopped.
    ///
    /// It may return without a change: compare what you show.
    ///
    /// Cancel safe.
    pub async fn changed(&mut self) -> bool {
        loop {
            let (finished, end) = self.end_of_freshness();
            if finished {
                return false;
            }
            if self.lapsed.is_some() && end != self.lapsed {
                self.lapsed = None;
                return true; // a renewal, after the end was reported
            }
            let is_reported = self.lapsed.is_some();
            let clock = &self.shared.clock;
            let at = if is_reported { end.map(|_| clock.now() + LOOK_AGAIN) } else { end };
            let wait = async {
                match at {
                    Some(at) => sleep_until(Arc::clone(clock), at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.updates.changed() => return !self.end_of_freshness().0,
                () = wait => {}
            }
            if !is_reported && self.end_of_freshness().1 == end {
                self.lapsed = end;
                return true;
            }
        }
    }

    /// Whether the candidate has stopped, and until when the leader is fresh.
    fn end_of_freshness(&self) -> (bool, Option<Instant>) {
        let update = self.updates.borrow();
        (update.finished, update.leader.as_ref().map(Leader::fresh_until))
    }
}

fn snapshot(shared: &Shared, status: &shared::Status) -> Status {
    let (state, term) = shared.state_and_term(status);
    Status {
        state,
        leader: status.leader.clone(),
        token: term.map(|term| term.token),
        cool_down: status.cool_down.map(|(until, reason)| Wait { until, reason }),
        drain_ends: term.and_then(|term| term.drain_ends()),
        readiness: status.readiness,
        check_failure: status.check_failure.clone(),
        paused_until_unix_ms: status.paused_until_unix_ms,
        lock_failure: status.lock_failure.clone(),
    }
}

partial_debug!(StatusWatch, self, current: self.current());
