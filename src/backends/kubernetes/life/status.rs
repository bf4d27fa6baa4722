//! Where a candidate for life stands, as probes and metrics are told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::error::{LifeError, LifeErrorKind};
use crate::lock::Token;
use crate::protocol::{Cause, State};
use crate::telemetry::Telemetry;

/// Where a candidate for life stands: made by [`LeaderForLife::status`](super::LeaderForLife::status), before it is awaited.
///
/// Cheap to clone, and to ask. As text it is one line for people, such as `standing by for my-app: pod my-app-0 leads`.
#[derive(Debug, Clone)]
pub struct LifeStatus {
    name: Arc<str>,
    state: watch::Receiver<LifeState>,
}

/// What a [`LifeStatus`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LifeState {
    /// Nobody awaits the candidate: not yet, or no more.
    Idle,
    /// It stands by.
    Waiting {
        /// For what, as in `pod my-app-0 leads`, or what keeps it from looking. Empty before the first look.
        reason: Arc<str>,
    },
    /// Its pod leads.
    Leading {
        /// As [`LifeLeadership::token`](super::LifeLeadership::token).
        token: Token,
    },
    /// The lock is another's or gone. Told to who awaits [`LifeLeadership::lost`](super::LifeLeadership::lost), and known only
    /// then.
    Lost,
    /// It has given the lock up.
    Released,
    /// It has come to an end without leading.
    Failed {
        /// Why.
        kind: LifeErrorKind,
        /// The same for people.
        message: Arc<str>,
    },
}

impl LifeState {
    /// Whether the pod does what it is there for: it leads, or stands by. The answer for a readiness probe.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Leading { .. })
    }

    /// Whether its pod leads, as far as it knows.
    pub fn is_leading(&self) -> bool {
        matches!(self, Self::Leading { .. })
    }
}

impl LifeStatus {
    /// How it is now.
    pub fn state(&self) -> LifeState {
        self.state.borrow().clone()
    }

    /// Waits until it is otherwise than when this was last asked, and answers how; `None` once it can change no more.
    /// Cancel safe.
    pub async fn changed(&mut self) -> Option<LifeState> {
        self.state.changed().await.ok()?;
        Some(self.state.borrow_and_update().clone())
    }
}

impl fmt::Display for LifeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &*self.state.borrow() {
            LifeState::Idle => write!(f, "not standing for {name}"),
            LifeState::Waiting { reason } if reason.is_empty() => {
                write!(f, "standing by for {name}")
            }
            LifeState::Waiting { reason } => write!(f, "standing by for {name}: {reason}"),
            LifeState::Leading { token } => write!(f, "leading {name} with token {token}"),
            LifeState::Lost => write!(f, "no longer leading {name}: the lock is gone"),
            LifeState::Released => write!(f, "no longer leading {name}: released"),
            LifeState::Failed { message, .. } => write!(f, "not standing for {name}: {message}"),
        }
    }
}

/// Where the status comes from.
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

/// Tells of one candidacy, and of the leadership that comes of it.
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

    /// It asks for the lock.
    pub(super) fn campaigns(&self) {
        self.telemetry.campaigned(State::Candidate);
    }

    /// `takeover`: how long after the lock was seen to be nobody's; `resumed`: an earlier container of the pod has won.
    pub(super) fn leads(&self, token: Token, takeover: Option<Duration>, resumed: bool) {
        if resumed {
            self.telemetry.resumed();
        } else {
            self.telemetry.won(takeover);
        }
        self.state.send_replace(LifeState::Leading { token });
    }

    /// Whether that is news.
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
    /// A leader's stays: the lock is the pod's still.
    fn drop(&mut self) {
        self.state.send_if_modified(|state| {
            let waits = matches!(state, LifeState::Waiting { .. });
            if waits {
                *state = LifeState::Idle;
            }
            waits
        });
    }
}
