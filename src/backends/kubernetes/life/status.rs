//! The status of a candidate for life, for probes and metrics.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::error::{LifeError, LifeErrorKind};
use crate::lock::Token;
use crate::protocol::{Cause, PreviousTerm, State};
use crate::telemetry::Telemetry;

/// The status of a candidate for life, created by
/// [`LeaderForLife::status`](super::LeaderForLife::status) before the candidate is awaited.
///
/// Cheap to clone and to read. Its `Display` is one line for people, such as
/// `standing by for my-app: pod my-app-0 leads`.
#[derive(Debug, Clone)]
pub struct LifeStatus {
    name: Arc<str>,
    state: watch::Receiver<LifeState>,
}

/// The state of a [`LifeStatus`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LifeState {
    /// The candidate is not awaited: not yet, or no longer.
    Idle,
    /// The candidate is a standby.
    Waiting {
        /// The reason for waiting, as in `pod my-app-0 leads`, or the failure of its checks. Empty
        /// before the first check.
        reason: Arc<str>,
    },
    /// The pod of the candidate leads.
    Leading {
        /// As [`LifeLeadership::token`](super::LifeLeadership::token).
        token: Token,
    },
    /// Another pod owns the lock, or it is gone.
    /// [`LifeLeadership::lost`](super::LifeLeadership::lost) reports the loss, which is known only
    /// after that call.
    Lost,
    /// The leader released the lock.
    Released,
    /// The candidate gave up without leading.
    Failed {
        /// The kind of the error.
        kind: LifeErrorKind,
        /// The error for people.
        message: Arc<str>,
    },
}

impl LifeState {
    /// Returns whether the pod leads or is a standby, for a readiness probe.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Leading { .. })
    }

    /// Returns whether the pod leads, as far as it knows.
    pub fn is_leading(&self) -> bool {
        matches!(self, Self::Leading { .. })
    }
}

impl LifeStatus {
    /// Returns the present state.
    pub fn state(&self) -> LifeState {
        self.state.borrow().clone()
    }

    /// Waits until the state differs from the last one that this handle returned, and returns it;
    /// `None` once it can no longer change. Cancel safe.
    pub async fn changed(&mut self) -> Option<LifeState> {
        self.state.changed().await.ok()?;
        Some(self.state.borrow_and_update().clone())
    }
}

impl fmt::Display for LifeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &*self.state.borrow() {
            LifeState::Idle => write!(f, "not campaigning for {name}"),
            LifeState::Waiting { reason } if reason.is_empty() => {
                write!(f, "standing by for {name}")
            }
            LifeState::Waiting { reason } => write!(f, "standing by for {name}: {reason}"),
            LifeState::Leading { token } => write!(f, "leading {name} with token {token}"),
            LifeState::Lost => write!(f, "no longer leading {name}: the lock is gone"),
            LifeState::Released => write!(f, "no longer leading {name}: released"),
            LifeState::Failed { message, .. } => write!(f, "not campaigning for {name}: {message}"),
        }
    }
}

/// The sender of the status.
#[derive(Debug, Clone)]
pub(super) struct Source(watch::Sender<LifeState>);

impl Source {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(LifeState::Idle))
    }

    pub(super) fn status(&self, name: &str) -> LifeStatus {
        LifeStatus { name: name.into(), state: self.0.subscribe() }
    }

    pub(super) fn reporter(self, name: &str, pod: &str) -> Reporter {
        self.0.send_replace(LifeState::Waiting { reason: "".into() });
        Reporter { state: self.0, telemetry: Telemetry::for_life(name, pod) }
    }

    pub(super) fn failed(&self, error: &LifeError) {
        let message = error.to_string().into();
        self.0.send_replace(LifeState::Failed { kind: error.kind(), message });
    }
}

/// Reports on one candidate, and on its leadership.
pub(super) struct Reporter {
    state: watch::Sender<LifeState>,
    telemetry: Telemetry,
}

impl Reporter {
    pub(super) fn waits(&self, reason: &str) {
        self.state.send_if_modified(|state| match state {
            LifeState::Waiting { reason: before } if **before == *reason => false,
            _ => {
                *state = LifeState::Waiting { reason: reason.into() };
                true
            }
        });
    }

    /// Counts an attempt to take the lock.
    pub(super) fn campaigns(&self) {
        self.telemetry.campaigned(State::Candidate);
    }

    /// Whether the checks of the lock succeed.
    pub(super) fn checked(&self, up: bool) {
        self.telemetry.lock_up(up);
    }

    /// `takeover`: how long after the lock was seen without a living owner; `resumed`: an earlier
    /// container of the pod became leader.
    pub(super) fn leads(&self, token: Token, takeover: Option<Duration>, resumed: bool) {
        if resumed {
            self.telemetry.resumed();
        } else {
            // The lock of the owner before, which the server or a candidate has deleted.
            self.telemetry.won(takeover, PreviousTerm::Deleted);
        }
        self.state.send_replace(LifeState::Leading { token });
    }

    /// Returns whether the loss had not been reported before.
    pub(super) fn lost(&self) -> bool {
        self.ends(LifeState::Lost, &Cause::Evicted)
    }

    pub(super) fn released(&self) {
        self.ends(LifeState::Released, &Cause::Resigned);
    }

    fn ends(&self, how: LifeState, cause: &Cause) -> bool {
        let ended = self.state.send_if_modified(|state| {
            let leads = state.is_leading();
            if leads {
                *state = how;
            }
            leads
        });
        if ended {
            self.telemetry.lost(cause);
        }
        ended
    }
}

impl Drop for Reporter {
    /// The state of a leader stays: its pod still owns the lock. Nothing checks the lock any more.
    fn drop(&mut self) {
        self.state.send_if_modified(|state| {
            let waits = matches!(state, LifeState::Waiting { .. });
            if waits {
                *state = LifeState::Idle;
            }
            waits
        });
        self.telemetry.finished();
    }
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    #[test]
    fn a_candidate_that_gives_up_shows_no_failing_lock() {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || {
            let reporter = Source::new().reporter("my-app", "my-app-0");
            reporter.checked(false);
            drop(reporter);
        });
        let seen = recorder.snapshotter().snapshot().into_vec();
        let up = seen.iter().find(|(key, ..)| key.key().name() == "incumbent_lock_up");
        assert_eq!(up.map(|(.., value)| value), Some(&DebugValue::Gauge(1.0.into())));
    }
}
