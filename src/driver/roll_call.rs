//! Answers to roll calls.

use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::debug;

use super::Driver;
use crate::election::shared::Shared;
use crate::lock::roll_call::MAX_WITHIN;
use crate::lock::{CandidateInfo, Nonce, Role, RollCall};
use crate::protocol::State;

/// How many answers may wait for their moment. Further calls go unanswered.
const MAX_PENDING: usize = 4;
/// The part of the time for answers in which they are sent: the rest is for the way.
const SPREAD: f64 = 0.8;

/// What does not change while a candidate runs.
struct Fixed {
    nonce: Nonce,
    priority: u8,
    since_unix_ms: u64,
}

impl Driver {
    /// Answers a roll call at a random moment. An observer is no candidate.
    pub(super) fn answer_roll_call(&mut self, lock: usize, call: RollCall) {
        let settings = self.machine.settings();
        let Some(requests_of) = self.requests_of.get(lock).filter(|_| settings.eligible) else {
            return;
        };
        let since_origin = u64::try_from(self.started.since_origin().as_millis());
        let fixed = Fixed {
            nonce: settings.nonce,
            priority: settings.priority,
            since_unix_ms: settings.origin_unix_ms.saturating_add(since_origin.unwrap_or(0)),
        };
        let (lock, shared) = (Arc::clone(&requests_of.lock), Arc::clone(self.shared()));
        let answers = self.answers.get_or_insert_with(Box::<JoinSet<()>>::default);
        while answers.try_join_next().is_some() {}
        if answers.len() >= MAX_PENDING {
            return;
        }
        let delay = call.within.min(MAX_WITHIN).mul_f64(SPREAD * fastrand::f64());
        answers.spawn(async move {
            tokio::time::sleep(delay).await;
            let info = info(&shared, &fixed);
            if let Err(error) = lock.answer_roll_call(&shared.name, &call, &info).await {
                debug!(%error, "cannot answer a roll call");
            }
        });
    }
}

/// What the candidate states at this moment.
fn info(shared: &Shared, fixed: &Fixed) -> CandidateInfo {
    let status = shared.status.borrow();
    let (state, _) = shared.state_and_term(&status);
    let role = match state {
        State::Leader if status.drain_ends.is_some() => Role::Draining,
        State::Leader => Role::Leader,
        _ if status.cool_down.is_some() => Role::CoolingDown,
        _ => Role::Standby,
    };
    CandidateInfo {
        identity: Arc::clone(&shared.identity),
        nonce: fixed.nonce,
        role,
        priority: fixed.priority,
        version: env!("CARGO_PKG_VERSION").into(),
        since_unix_ms: fixed.since_unix_ms,
        leader: status.leader.as_ref().map(|leader| Arc::clone(&leader.identity)),
        token: status.leader.as_ref().and_then(|leader| leader.token),
    }
}
