//! Answers to roll calls.

use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::debug;

use super::Driver;
use crate::election::shared::Shared;
use crate::lock::{CandidateInfo, HandoverAnswer, Nonce, Pause, Role, RollCall};
use crate::protocol::State;

/// How many answers may wait for their moment. Further calls go unanswered.
const MAX_PENDING: usize = 4;
/// The part of the time for answers in which they are sent: the rest is for the way.
const SPREAD: f64 = 0.8;

/// What a candidate states that is not part of its status.
struct Fixed {
    nonce: Nonce,
    priority: u8,
    site: Option<Arc<str>>,
    since_unix_ms: u64,
    pause: Option<Pause>,
    handover: Option<HandoverAnswer>,
}

impl Driver {
    /// Answers a roll call at a random moment. An observer is no candidate.
    pub(super) fn on_roll_call(&mut self, lock: usize, call: RollCall) {
        if self.machine.settings().eligible && self.on_request(lock, &call) {
            self.answer(lock, call, None);
        }
    }

    /// `handover`: of the leader, to a request to hand over. It answers at once.
    pub(super) fn answer(&mut self, lock: usize, call: RollCall, handover: Option<HandoverAnswer>) {
        let settings = self.machine.settings();
        let Some(requests_of) = self.requests_of.get(lock) else { return };
        let since_origin = u64::try_from(self.started.since_origin().as_millis());
        let as_leader = handover.is_some();
        let spread = if as_leader { 0.0 } else { SPREAD * fastrand::f64() };
        let fixed = Fixed {
            nonce: settings.nonce,
            priority: settings.priority,
            site: self.site.clone(),
            since_unix_ms: settings.origin_unix_ms.saturating_add(since_origin.unwrap_or(0)),
            pause: self.pause(),
            handover,
        };
        let (lock, shared) = (Arc::clone(&requests_of.lock), Arc::clone(self.shared()));
        let answers = self.answers.get_or_insert_with(Box::<JoinSet<()>>::default);
        while answers.try_join_next().is_some() {}
        // A flood of roll calls leaves room for the answers of a leader.
        let limit = if as_leader { 2 * MAX_PENDING } else { MAX_PENDING };
        if answers.len() >= limit {
            return;
        }
        let delay = call.within.min(RollCall::MAX_WITHIN).mul_f64(spread);
        // A leader states the term that it is asked about, which may end before the task runs.
        let stated = as_leader.then(|| info(&shared, &fixed));
        answers.spawn(async move {
            tokio::time::sleep(delay).await;
            let info = stated.unwrap_or_else(|| info(&shared, &fixed));
            if let Err(error) = lock.answer_roll_call(&shared.name, &call, &info).await {
                debug!(%error, "cannot answer a roll call");
            }
        });
    }
}

/// What the candidate states at this moment.
fn info(shared: &Shared, fixed: &Fixed) -> CandidateInfo {
    let status = shared.status.borrow();
    let (state, term) = shared.state_and_term(&status);
    let role = match state {
        State::Leader if term.is_some_and(|term| term.drain_ends().is_some()) => Role::Draining,
        State::Leader => Role::Leader,
        _ if status.cool_down.is_some() => Role::CoolingDown,
        _ => Role::Standby,
    };
    CandidateInfo {
        role,
        priority: fixed.priority,
        since_unix_ms: fixed.since_unix_ms,
        leader: status.leader.as_ref().map(|leader| Arc::clone(&leader.identity)),
        token: status.leader.as_ref().and_then(|leader| leader.token),
        site: fixed.site.clone(),
        standing: status.standing,
        pause: fixed.pause,
        handover: fixed.handover.clone(),
        ..CandidateInfo::new(Arc::clone(&shared.identity), fixed.nonce)
    }
}
