//! Whether requests to the lock succeed, and what is reported of it.

use super::types::{Action, LockFailure};
use crate::lock::{LockErrorKind, Revision};
use crate::time::clock::Instant;

/// What the responses of the lock show of it.
#[derive(Debug, Clone, Default)]
pub(super) struct LockHealth {
    pub failure: Option<Box<LockFailure>>,
    pub only_reads_fail: bool,
    /// Almost always none.
    pub rejected: Option<Box<RejectedWrites>>,
}

impl LockHealth {
    /// What keeps requests from succeeding.
    pub fn failure(&self) -> Option<&LockFailure> {
        self.failure.as_deref()
    }

    /// Whether the last request shows nothing of the entry: it was a read that failed, or there was
    /// no response of what holds the entries.
    pub fn shows_nothing(&self) -> bool {
        use LockErrorKind::{Missing, OutcomeUnknown, Unavailable};
        let is_silent = |failure: &LockFailure| {
            self.only_reads_fail || matches!(failure.kind, Missing | OutcomeUnknown | Unavailable)
        };
        self.failure().is_some_and(is_silent)
    }

    /// Whether writes have been refused as conflicts for longer than a conflict explains.
    pub fn conflicts_last(&self) -> bool {
        self.rejected.as_ref().is_some_and(|rejected| rejected.are_lasting())
    }

    /// Whether the last write was denied, as another one would be.
    pub fn denies_writes(&self) -> bool {
        self.rejected.as_ref().is_some_and(|rejected| rejected.last_write_denied)
    }

    /// When to ask whether writes are still denied.
    pub fn check_at(&self) -> Option<Instant> {
        self.rejected.as_ref()?.check_at
    }

    /// Has that asked at `at`, unless it is planned.
    pub fn plan_check(&mut self, at: Instant) {
        self.rejected.get_or_insert_default().check_at.get_or_insert(at);
    }

    /// Whether it is time to ask. Then that is no longer planned.
    pub fn take_check(&mut self, now: Instant) -> bool {
        let check_at = self.rejected.as_mut().map(|rejected| &mut rejected.check_at);
        check_at.and_then(|check_at| check_at.take_if(|at| *at <= now)).is_some()
    }

    /// A request has failed. Returns what to report.
    #[must_use]
    pub fn failed(&mut self, failure: LockFailure, reading: bool) -> Option<Action> {
        use LockErrorKind::{Conflict, Denied, Misconfigured};
        if !reading && matches!(failure.kind, Denied | Misconfigured | Conflict) {
            self.rejected.get_or_insert_default().last_write_denied = true;
        }
        let known = self.failure.as_ref().map(|known| known.kind);
        let report = (known != Some(failure.kind)).then(|| Action::LockFailing(failure.clone()));
        self.failure = Some(Box::new(failure));
        self.only_reads_fail = reading;
        report
    }

    /// A request has succeeded. `acquires`: whether a write is the next thing to do. Returns what
    /// to report.
    ///
    /// A read that succeeds does not show that a write which was refused would now be accepted; nor
    /// that one which failed would succeed, where that write is the next thing to do.
    #[must_use]
    pub fn succeeded(&mut self, reading: bool, acquires: bool) -> Option<Action> {
        use LockErrorKind::{Conflict, Denied, Misconfigured};
        if let Some(rejected) = self.rejected.as_mut().filter(|_| !reading) {
            (rejected.last_write_denied, rejected.check_at) = (false, None);
        }
        let refused = |failure: &LockFailure| {
            acquires || matches!(failure.kind, Denied | Misconfigured | Conflict)
        };
        let stays = reading && !self.only_reads_fail && self.failure().is_some_and(refused);
        (!stays && self.failure.take().is_some()).then_some(Action::LockRecovered)
    }

    /// A standby that receives renewals reads no more: what it receives shows that the lock is in
    /// reach.
    #[must_use]
    pub fn hints_arrive(&mut self) -> Option<Action> {
        use LockErrorKind::{OutcomeUnknown, Unavailable};
        let passes = |failure: &LockFailure| matches!(failure.kind, Unavailable | OutcomeUnknown);
        let recovers = self.only_reads_fail && self.failure.take_if(|f| passes(f)).is_some();
        recovers.then_some(Action::LockRecovered)
    }

    /// A write or a release was stored.
    #[must_use]
    pub fn write_stored(&mut self, acquires: bool) -> Option<Action> {
        self.rejected = None;
        self.succeeded(false, acquires)
    }

    /// A write or a release over this revision was refused. That shows that the lock works, unless
    /// it refuses all.
    #[must_use]
    pub fn write_conflicted(&mut self, over: Option<Revision>, acquires: bool) -> Option<Action> {
        let rejected = self.rejected.get_or_insert_default();
        rejected.add(over);
        match rejected.failure() {
            Some(failure) => self.failed(failure, false),
            None => self.succeeded(false, acquires),
        }
    }

    /// An entry was seen.
    pub fn entry_seen(&mut self, revision: Revision) {
        if let Some(rejected) = self.rejected.as_mut().filter(|it| it.over != Some(revision)) {
            rejected.count = 0;
        }
    }
}

/// Writes that the lock has rejected.
#[derive(Debug, Clone, Default)]
pub(super) struct RejectedWrites {
    /// What the last ones were to replace, all of which were refused as conflicts.
    pub over: Option<Revision>,
    /// How many these are.
    pub count: u8,
    /// Whether the last write was denied, as another one would be.
    pub last_write_denied: bool,
    /// When to ask the lock whether that is still so.
    pub check_at: Option<Instant>,
}

impl RejectedWrites {
    /// A cluster refuses a write while another is in flight, and an object store may: that passes.
    const PASSING: u8 = 4;

    fn add(&mut self, over: Option<Revision>) {
        if self.over != over {
            (self.over, self.count) = (over, 0);
        }
        self.count = self.count.saturating_add(1).min(Self::PASSING + 1);
    }

    /// Whether they have lasted for longer than a conflict explains.
    fn are_lasting(&self) -> bool {
        self.count > Self::PASSING
    }

    /// What to report then.
    fn failure(&self) -> Option<LockFailure> {
        let message = "the lock refuses every write as a conflict, though nothing else was written";
        self.are_lasting().then(|| LockFailure::new(LockErrorKind::Conflict, message))
    }
}
