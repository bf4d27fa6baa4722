//! Answers to roll calls.

use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::debug;

use super::Driver;
use crate::election::shared::Shared;
use crate::lock::{CandidateInfo, CandidateRequest, CoolDownLeft, HandoverAnswer, Role, RollCall};
use crate::protocol::State;
use crate::time::timing::{ceil_millis, whole_millis};

/// How many messages may wait for their moment. Further calls go unanswered.
const MAX_PENDING: usize = 12;
/// The part of the time for answers in which they are sent: the rest is for the way.
const SPREAD: f64 = 0.8;

impl Driver {
    /// Answers a roll call at a random moment. An observer is no candidate.
    pub(super) fn on_roll_call(&mut self, lock: usize, call: RollCall) {
        if self.machine.is_eligible() && self.on_request(lock, &call) {
            self.answer(lock, call, None);
        }
    }

    /// `handover`: of the leader, to a request to hand over. It answers at once.
    pub(super) fn answer(&mut self, lock: usize, call: RollCall, handover: Option<HandoverAnswer>) {
        let settings = self.machine.settings();
        let Some(requests) = self.locks.get(lock) else { return };
        let since_origin = whole_millis(self.shared().started.since_origin());
        let as_leader = handover.is_some();
        let spread = if call.request.has_one_answer() { 0.0 } else { SPREAD * fastrand::f64() };
        let fixed = CandidateInfo {
            priority: settings.priority,
            site: settings.site.clone(),
            since_unix_ms: settings.origin_unix_ms.saturating_add(since_origin),
            handover,
            load: self.set_part.as_ref().map(|part| part.load()),
            ..CandidateInfo::new(Arc::clone(&self.shared().identity), settings.nonce)
        };
        let (lock, shared) = (Arc::clone(&requests.lock), Arc::clone(self.shared()));
        let Some(answers) = self.messages(room_for(&call.request)) else { return };
        let delay = call.within.min(RollCall::MAX_WITHIN).mul_f64(spread);
        // A leader states the term that it is asked about, which may end before the task runs.
        let stated = as_leader.then(|| with_status(&shared, fixed.clone()));
        answers.spawn(async move {
            tokio::time::sleep(delay).await;
            let info = stated.unwrap_or_else(|| with_status(&shared, fixed));
            let Some(messages) = lock.messages() else { return };
            if let Err(error) = messages.answer_roll_call(&shared.name, &call, &info).await {
                debug!(%error, "cannot answer a roll call");
            }
        });
        self.telemetry().roll_call_answered();
    }

    /// What is being sent, unless it is `limit` messages already.
    fn messages(&mut self, limit: usize) -> Option<&mut JoinSet<()>> {
        let messages = self.messages.get_or_insert_with(Box::<JoinSet<()>>::default);
        while messages.try_join_next().is_some() {}
        (messages.len() < limit).then_some(messages)
    }
}

/// How many messages may wait beside an answer to this: calls of observers leave room for moves,
/// and searches for a successor leave room for what a leader is asked.
fn room_for(request: &CandidateRequest) -> usize {
    match request {
        CandidateRequest::Identify => MAX_PENDING / 3,
        CandidateRequest::WhoCanSucceed(_) => MAX_PENDING / 3 * 2,
        _ => MAX_PENDING,
    }
}

/// Adds what the candidate is at this moment.
fn with_status(shared: &Shared, info: CandidateInfo) -> CandidateInfo {
    let status = shared.status.borrow();
    let (state, term) = shared.state_and_term(&status);
    let role = match state {
        State::Leader if term.is_some_and(|term| term.drain_ends().is_some()) => Role::Draining,
        State::Leader => Role::Leader,
        _ if status.cool_down.is_some() => Role::CoolingDown,
        _ => Role::Standby,
    };
    let leader = status.leader.as_ref();
    let cool_down = status.cool_down.filter(|_| role == Role::CoolingDown).map(|(ends, reason)| {
        let left = ends.saturating_since(shared.clock.now());
        CoolDownLeft { left_ms: ceil_millis(left), reason: reason.to_string().into() }
    });
    CandidateInfo {
        role,
        leader: leader.map(|leader| Arc::clone(&leader.identity)),
        token: leader.and_then(|leader| leader.token),
        readiness: status.readiness,
        cool_down,
        ..info
    }
}
